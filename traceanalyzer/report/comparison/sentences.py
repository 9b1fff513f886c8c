"""What a comparison says: a verdict for each run, and named points that explain it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import memoized_by_tables
from traceanalyzer.analyses.host.host_names import UNATTRIBUTED
from traceanalyzer.analyses.replay.replay import run_to_run
from traceanalyzer.analyses.statistics import LEAST_PCT, PERCENT
from traceanalyzer.diff import Comparison, TableDiff, joins, metrics
from traceanalyzer.diff.captures import Capture, Side, world_size
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Unit, digits, per_cent, signed, text
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import ON_PATH, in_a_sentence
from traceanalyzer.report.comparison.rows import COLUMNS, each, per, step_change
from traceanalyzer.report.contents import LAYOUT

_ns, _size = partial(text, unit=Unit.NS), partial(text, unit=Unit.BYTES)

Point = tuple[str, str]
"""A name, and what is said under it."""


@dataclass(frozen=True, slots=True)
class OfRun:
    """The verdict on one run beside the base.

    Attributes:
        run: its label.
        verdict: how long its step is and the base's, and whether that is more than noise.
        points: name and text of what explains the difference, and of what else changed.
    """

    run: str
    verdict: str
    points: tuple[Point, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """The verdict, then each point after its name."""
        return [self.verdict, *(f"{name}: {text}" for name, text in self.points)]


def verdict_sentences(comparison: Comparison) -> list[str]:
    """The ranking of three runs or more, then for each other run its verdict and points."""
    made = [*of_all(comparison), *(one for run in of_runs(comparison) for one in run.sentences)]
    doubted = doubt(comparison)
    return made if doubted is None else [*made[:1], doubted, *made[1:]]


def of_all(comparison: Comparison) -> list[str]:
    """Of three runs and more the ranking."""
    if comparison.is_empty:
        return ["No figure differs."]
    if len(comparison.sides) < 3:
        return []
    times = [f"{run} {_step_text(comparison, run)}" for run in comparison.ranking]
    first = "Shortest" if comparison.fairness.scale.per_token else "Fastest"
    return [f"{first} first, time {per(comparison)}: {', '.join(times)}."]


@memoized_by_tables
def of_runs(comparison: Comparison) -> list[OfRun]:
    """Each run beside the base, in order; none of a comparison without a difference."""
    return [made for side in comparison.others if (made := _of_run(comparison, side.label)) is not None]


def doubt(comparison: Comparison) -> str | None:
    """That the same work is not known, if it is not."""
    reason = comparison.fairness.doubt
    return None if reason is None or comparison.is_empty else f"The runs may not have done the same work ({reason})."


# How long its step is.


def _of_run(comparison: Comparison, run: str) -> OfRun | None:
    row = metrics.row(comparison.metrics, "step_ns", run)
    base = comparison.base
    if row is None or pd.isna(row["change"]):
        has_figures = comparison.metrics["value"].notna().any()
        why = "" if has_figures else ": only GPU work is compared, and none was recorded"
        return OfRun(run, f"{run} cannot be compared with {base.label}{why}.", tuple(_unprofiled(comparison, run, 0)))
    if row["change"] == 0 and comparison.is_empty:
        return None
    recorded = _recorded_otherwise(comparison, run)
    change = float(row["change"])
    verdict = recorded or f"{_throughput(comparison, run, row)}{_step_times(comparison, run, row)}"
    points = [
        *_unprofiled(comparison, run, 0 if recorded else change),
        *(_compute(comparison, run) if recorded else _most_of(comparison, run, change)),
        *_communication(comparison, run),
        *_overlap(comparison, run),
        *(("Kernels", text) for text in products(comparison.table(run, "matrix_products"), float(row["value"]))),
        *_bound_by(base.first, comparison.side(run).first),
    ]
    return OfRun(run, verdict, tuple(points))


def _step_text(comparison: Comparison, run: str) -> str:
    return _ns(metrics.value(comparison.metrics, "step_ns", run))


def _step_times(comparison: Comparison, run: str, row: pd.Series) -> str:
    change, base = float(row["change"]), comparison.base.label
    times = f"{run} takes {_ns(row['value'])}{each(comparison)}, {base} {_step_text(comparison, base)}"
    if change == 0:
        return f"{times}: the same."
    percent = signed(100 * change / (float(row["value"]) - change))
    return f"{times} ({signed(change, Unit.NS)}, {percent}%){_noise(comparison, run, row)}"


def _noise(comparison: Comparison, run: str, row: pd.Series) -> str:
    """Between which values the change lies, and how that is known: by repeats, else by how much steps vary."""
    sides = (comparison.base, comparison.side(run))
    numbers = [len(side.captures) for side in sides]
    counts = " and ".join(map(str, numbers))
    if row["significance"] == metrics.CANNOT_TELL:
        who = "With one capture of each" if max(numbers) == 1 else f"With {counts} captures"
        known = [_windows(side) for side in sides]
        span = _span(*(_Steps.of(comparison, side, "step_ns", own) for side, own in zip(sides, known, strict=True)))
        varies = f"; {span}, by how much steps vary" if all(known) else ""
        return f"{varies}. {who}, run-to-run noise is unknown."
    p = "" if pd.isna(row["p_value"]) else f", p = {digits(float(row['p_value']))}"
    span = _span(*(_Steps.of(comparison, side, "step_ns") for side in sides))
    return f"; {span} (Welch's t-test, n = {counts}{p})."


def _windows(side: Side) -> list[float]:
    """Lengths of the steps of all captures, each the mean over ranks; none of whole captures."""
    tables = [capture.of_steps(capture.tables["steps"]) for capture in side.captures if capture.steps]
    return [float(ns) for table in tables for ns in table.groupby("step")["window_ns"].mean()]


@dataclass(frozen=True, slots=True)
class _Steps:
    """How long a run's mean step is.

    Attributes:
        corners_ns: its length; of an estimate without the profiler at the typical, least and most overhead.
        factors: between which factors of it another run's lies, by how much steps vary.
        repeats: the same of each capture.
    """

    corners_ns: np.ndarray
    factors: np.ndarray
    repeats: Sequence[float] = ()

    @classmethod
    def of(cls, comparison: Comparison, side: Side, metric: str, steps: Sequence[float] = ()) -> "_Steps":
        """By a figure of the comparison, and by the steps that it is of."""
        row = metrics.row(comparison.metrics, metric, side.label)
        assert row is not None, metric
        return cls(np.array([float(row["value"])]), _factors(steps), row["values"])


def _factors(steps: Sequence[float]) -> np.ndarray:
    """As `run_to_run`; two steps, whose ends are evened there, tell no more than one."""
    return run_to_run(np.array(steps if len(steps) > 2 else steps[:1]))


def _ends(base: _Steps, other: _Steps) -> tuple[float, float]:
    """Between which values the change lies: with 95% by repeats (Welch), else at each overhead and by the steps."""
    if min(len(base.repeats), len(other.repeats)) > 1:
        change, margin = fmean(other.repeats) - fmean(base.repeats), metrics.margin(base.repeats, other.repeats)
        return change - margin, change + margin
    low = other.corners_ns * other.factors[0] - base.corners_ns * base.factors[1]
    high = other.corners_ns * other.factors[1] - base.corners_ns * base.factors[0]
    return float(low.min()), float(high.max())


def _span(base: _Steps, other: _Steps) -> str:
    low, high = _ends(base, other)
    between = f"between {signed(low, Unit.NS)} and {signed(high, Unit.NS)}"
    return f"cannot tell them apart: {between}" if low <= 0 <= high else between


def _throughput(comparison: Comparison, run: str, row: pd.Series) -> str:
    """What unequal steps mean for the job: tokens per second, without the profiler where both runs recorded them."""
    if not comparison.fairness.scale.per_token or pd.isna(row["change_pct"]):
        return ""
    sizes = [world_size(side.first) or 1 for side in (comparison.base, comparison.side(run))]
    own = metrics.row(comparison.metrics, "tokens_per_s", run)
    growth = sizes[1] / sizes[0]
    ratio, how = growth / (1 + row["change_pct"] / 100), "profiled"
    if own is not None and not pd.isna(own["change_pct"]):
        ratio, how = 1 + own["change_pct"] / 100, "without the profiler"
    text = f"{run} processes {digits(float(ratio))} times as many tokens/s as {comparison.base.label} ({how})"
    if growth == 1:
        return f"{text}. "
    return f"{text} with {sizes[1]} ranks instead of {sizes[0]}: scaling efficiency {per_cent(100 * ratio / growth)}%. "


def _recorded_otherwise(comparison: Comparison, run: str) -> str | None:
    """Both times with what recorded them; `None` where that is the same."""
    places = (comparison.runs.index(run), 0)
    facts = [fact for fact in comparison.fairness.facts if fact.name in ("profiler", "profiler's options")]
    known = [own for fact in facts if None not in (own := tuple(fact.by_run[at] for at in places))]
    differing = [own for own in known if len(set(own)) > 1]
    if not differing:
        return None
    times = [
        f"{comparison.runs[at]} {_step_text(comparison, comparison.runs[at])}{each(comparison)} under {', '.join(how)}"
        for at, how in zip(places, zip(*differing, strict=True), strict=True)
    ]
    return f"Recorded differently, so times are not comparable: {', '.join(times)}."


def _compute(comparison: Comparison, run: str) -> Iterator[Point]:
    """Time in kernels, which a profiler hardly changes."""
    before, after = comparison.values("compute_ns", run)
    if before and after:
        yield "Compute", f"{_times(before, after, each(comparison))}; profilers hardly change it."


def _times(before: float, after: float, unit: str) -> str:
    return f"{_ns(before)} → {_ns(after)}{unit} ({signed(100 * (float(after) / float(before) - 1))}%)"


# The steps without the profiler.


def _unprofiled(comparison: Comparison, run: str, change: float) -> Iterator[Point]:
    """Both steps without the profiler: as the runs measured them, else estimated where that is another change."""
    scale, sides = comparison.fairness.scale, (comparison.base, comparison.side(run))
    unit = f" per {scale.name}" if scale.per_token else "/step"
    is_measured = None not in comparison.values("unprofiled_step_ns", run)
    found = [_measured(comparison, side) if is_measured else _estimated(side) for side in sides]
    base, other = found
    if base is None or other is None:
        return
    before, after = float(base.corners_ns[0]), float(other.corners_ns[0])
    varies = "" if min(len(base.repeats), len(other.repeats)) > 1 else ", by how much steps vary"
    said = f"{_times(before, after, unit)}{'' if is_measured else ', estimated'}; {_span(base, other)}{varies}."
    if is_measured:
        low, high = _ends(base, other)
        is_other_way = (high < 0 < change or change < 0 < low) and comparison.fairness.is_fair
        trust = " The profiled steps differ the other way: trust these." if is_other_way else ""
        yield "Without the profiler", f"{said}{trust}"
        return
    base_ns, step_ns = comparison.values("step_ns", run)
    if base_ns is None or step_ns is None or scale.per_token:
        return
    if 100 * abs(step_ns - base_ns - (after - before)) >= PERCENT * step_ns:
        yield "Without the profiler", said


def _measured(comparison: Comparison, side: Side) -> _Steps:
    """As the run recorded it."""
    times = [known for capture in side.captures if (known := capture.known.unprofiled) is not None]
    steps = [float(ns) for own in times for ns in own.values]  # noqa: PD011 - of no table
    return _Steps.of(comparison, side, "unprofiled_step_ns", steps)


def _estimated(side: Side) -> _Steps | None:
    """The mean over its captures; `None` where one does not say, or much communication has unknown partners."""
    corners = []
    for capture in side.captures:
        table = capture.table("bottleneck")
        if table is None or not table["is_unprofiled"].all():
            return None
        row = table.iloc[0]
        if row.get("unmatched_ns", 0) > PERCENT / 100 * row["step_ns"]:
            return None
        ends = [row.get(name) for name in ("step_ns", "step_most_ns", "step_least_ns")]  # old baselines have no ends
        corners.append([float(row["step_ns"] if pd.isna(ns) else ns) for ns in ends])
    return _Steps(np.mean(corners, axis=0), _factors(_windows(side)))


# What the difference is made of, and what binds the step.


def _most_of(comparison: Comparison, run: str, change: float) -> Iterator[Point]:
    """The part that adds most in the direction of the change, and the one that is most against it."""
    made = step_change(comparison, run)
    if made is None or made.base.empty:
        return
    changes = made.by_part.sort_values(ascending=change < 0, kind="stable")
    main, against = str(changes.index[0]), str(changes.index[-1])
    label, other_label = (in_a_sentence(COLUMNS[column].label) for column in (main, against))
    times = f"{_ns(made.base[main])} → {_ns(made.other[main])}{each(comparison)}, {made.basis}"
    text = f"{label} {signed(changes[main], Unit.NS)} ({times})"
    if changes[against] * change < 0 and abs(changes[against]) > PERCENT / 100 * abs(change):
        text += f"; offset by {other_label} {signed(changes[against], Unit.NS)}"
    yield "Most of it", f"{text}."


_ON_PATH: Mapping[str, str] = {one.key: one.label for one in ON_PATH}


def _bound_by(base: Capture, other: Capture) -> Iterator[Point]:
    """The category that takes most of each run's critical path without the profiler."""
    paths = [path for capture in (base, other) if (path := capture.table("bottleneck")) is not None]
    if len(paths) < 2 or not all(path["path_ns"].sum() for path in paths):
        return
    rows = [path.loc[path["path_ns"].idxmax()] for path in paths]
    (before, was), (after, now) = ((_ON_PATH[row["category"]], f"{row['path_pct']:.0f}%") for row in rows)
    if before == after:
        yield "Bound by", f"{before} in both ({was} → {now} of the critical path)."
    else:
        yield "Bound by", f"{before} ({was} of the critical path) → {after} ({now})."


# Communication: collectives that came, went or changed, and their overlap.


def _communication(comparison: Comparison, run: str) -> Iterator[Point]:
    """Collectives that are new, gone, or called more or less often."""
    table = comparison.table(run, "nccl")
    if table is None:
        return
    for row in table.frame.to_dict("records"):
        is_one = (table.frame["collective"] == row["collective"]).sum() == 1
        dtype = row.get("dtype")
        of = "" if is_one else f" of {element_types(dtype) if isinstance(dtype, str) else 'unknown type'}"
        name = f"{collective_words(row['collective'])}{of}"
        phases = _phases(comparison, run, row["collective"], is_one=is_one)
        if row["status"] == joins.NEW:
            yield "Communication", f"{name} is NEW: {_sums(row, 'other')} per rank{phases['other']}."
        elif row["status"] == joins.REMOVED:
            yield "Communication", f"{name} is REMOVED: {_sums(row, 'base')} per rank before{phases['base']}."
        elif row["change_calls"]:
            yield "Communication", f"{name}: {_both(row, 'calls')} calls{each(comparison)} per rank, {_bytes(row)}."


def _phases(comparison: Comparison, run: str, collective: object, *, is_one: bool) -> dict[str, str]:
    """For each side in which phases of training its calls lie: `13 in forward, 13 in backward`.

    They are counted of a collective's calls together: where these are of several element types, only the phase is
    named in which all of them lie.
    """
    table, made = comparison.table(run, "comm_phases"), {"base": "", "other": ""}
    if table is None:
        return made
    own = table.frame[table.frame["collective"] == collective]
    for side in made:
        shown = own[own[f"{side}_calls"].fillna(0) > 0].sort_values("phase")
        pieces = [
            f"{digits(float(calls))} in {phase}" if is_one else f"in {phase}"
            for phase, calls in zip(shown["phase"], shown[f"{side}_calls"], strict=True)
        ]
        if {*shown["phase"]} - {UNATTRIBUTED} and (is_one or len(pieces) == 1):
            made[side] = f" ({', '.join(pieces)})"
    return made


def _sums(row: Mapping[Any, Any], side: str) -> str:
    calls, size = row[f"{side}_calls"], row.get(f"{side}_size_bytes")
    sized = f", {_size(size)}" if size is not None and not pd.isna(size) else ""
    return f"{digits(float(calls))} {'call' if calls == 1 else 'calls'}{sized}, {_ns(row[f'{side}_total_ns'])}"


def _bytes(row: Mapping[Any, Any]) -> str:
    base, other = row.get("base_size_bytes"), row.get("other_size_bytes")
    if base is None or other is None or pd.isna(base) or pd.isna(other):
        return "bytes unknown"
    if base != other:
        return f"{_size(base)} → {_size(other)}"
    each_call = " → ".join(_size(float(base) / float(row[f"{side}_calls"])) for side in ("base", "other"))
    return f"{_size(base)} in both ({each_call} per call)"


def _overlap(comparison: Comparison, run: str) -> Iterator[Point]:
    base, other = comparison.values("overlap_pct", run)
    if base is None or other is None or base == other:
        return
    both = f"{per_cent(float(base))}% → {per_cent(float(other))}%"
    yield "Overlap", f"{both} of communication runs beside compute ({signed(float(other - base))} pp)."


# Which matrix products take longer, and whether communication beside them is why.


def products(table: TableDiff | None, step_ns: float | None) -> Iterator[str]:
    """The matrix products that move the step most, with those of their calls that communication runs beside."""
    if table is None or table.frame.empty:
        return
    rows = table.frame[table.frame["status"] == joins.CHANGED]
    change = rows["change_gpu_ns"].where((rows["base_calls"] > 0) & (rows["other_calls"] > 0), 0.0).astype("float64")
    change = change[change.abs() >= max(LEAST_PCT / 100 * (step_ns or 0), 1)]
    order = change.abs().sort_values(ascending=False, kind="stable").index
    for row in rows.loc[order[: LAYOUT.named]].to_dict("records"):
        yield _product(row)
    if len(order) > LAYOUT.named:
        rest = float(change[order[LAYOUT.named :]].sum())
        yield f"{len(order) - LAYOUT.named} other matrix products: {signed(rest, Unit.NS)} together."


def _product(row: Mapping[Any, Any]) -> str:
    dtype = f" {element_types(str(row['dtype']))}" if isinstance(row["dtype"], str) else ""
    means = (row[f"{side}_gpu_ns"] / row[f"{side}_calls"] for side in ("base", "other"))
    text = (
        f"{row['product']}{dtype}, {row['phase']}: {' → '.join(map(_ns, means))} per call, {_both(row, 'calls')} calls"
    )
    if not any(row[f"{side}_calls_beside_comm"] or 0 for side in ("base", "other")):
        return f"{text}, none while communication runs."
    text += f", {_both(row, 'calls_beside_comm')} of them while communication runs"
    alone = [_alone_ns(row, side) for side in ("base", "other")]
    return f"{text}." if None in alone else f"{text}; the others {' → '.join(_ns(one) for one in alone)}."


def _both(row: Mapping[Any, Any], name: str) -> str:
    """`48 → 96`; one where they read alike."""
    return " → ".join(dict.fromkeys(digits(float(row[f"{side}_{name}"] or 0)) for side in ("base", "other")))


def _alone_ns(row: Mapping[Any, Any], side: str) -> float | None:
    """A call's mean while no communication runs; `None` without such calls."""
    calls = float(row[f"{side}_calls"]) - float(row[f"{side}_calls_beside_comm"] or 0)
    return (float(row[f"{side}_gpu_ns"]) - float(row[f"{side}_gpu_beside_comm_ns"])) / calls if calls > 0 else None
