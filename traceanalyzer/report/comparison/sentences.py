"""What a comparison says: a verdict for each run, and named points that explain it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import pandas as pd

from traceanalyzer.analyses.grouping import memoized_by_tables
from traceanalyzer.analyses.host.host_names import UNATTRIBUTED
from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.diff import Comparison, TableDiff, joins, metrics
from traceanalyzer.diff.captures import CAPTURE, Capture, Side, world_size
from traceanalyzer.findings.savings import CUTS
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Unit, digits, per_cent, signed, text
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import ON_PATH, in_a_sentence
from traceanalyzer.report.comparison import step_parts
from traceanalyzer.report.layout import LAYOUT

_ns, _size = partial(text, unit=Unit.NS), partial(text, unit=Unit.BYTES)


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
    points: tuple[tuple[str, str], ...] = ()

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
    times = [f"{run} {_time_of(comparison, run)}" for run in comparison.ranking]
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


def per(comparison: Comparison) -> str:
    """`per step`, `per 1,000 tokens of a rank`, or `in the whole capture`."""
    scale = comparison.fairness.scale
    if scale.per_token:
        return f"per {scale.name}"
    return "in the whole capture" if scale == CAPTURE else "per step"


def each(comparison: Comparison) -> str:
    """The same behind a number: `/step`."""
    unit = per(comparison)
    return "/step" if unit == "per step" else f" {unit}"


# How long its step is.


def _of_run(comparison: Comparison, run: str) -> OfRun | None:
    row = metrics.row(comparison.metrics, "step_ns", run)
    base = comparison.base.label
    if row is None or pd.isna(row["change"]):
        has_figures = comparison.metrics["value"].notna().any()
        why = "" if has_figures else ": only GPU work is compared, and none was recorded"
        return OfRun(run, f"{run} cannot be compared with {base}{why}.", tuple(_unprofiled(comparison, run, 0)))
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
        *_bound_by(comparison.base.first, step_parts.side_of(comparison, run).first),
    ]
    return OfRun(run, verdict, tuple(points))


def _step_times(comparison: Comparison, run: str, row: pd.Series) -> str:
    change, base = float(row["change"]), comparison.base.label
    times = f"{run} takes {_ns(row['value'])}{each(comparison)}, {base} {_ns(row['value'] - change)}"
    if change == 0:
        return f"{times}: the same."
    return f"{times} ({_change(change, float(row['value']) - change)}). {_noise(comparison, run, row)}"


def _change(change_ns: float, base_ns: float) -> str:
    """`+1.88 ms, +2.91%`."""
    sign = "+" if change_ns > 0 else "−"
    return f"{signed(change_ns, Unit.NS)}, {sign}{per_cent(abs(100 * change_ns / base_ns))}%"


def _noise(comparison: Comparison, run: str, row: pd.Series) -> str:
    """Whether repeats differ by more than noise; of one capture each by how much its steps vary."""
    numbers = [len(side.captures) for side in comparison.sides if side.label in (comparison.base.label, run)]
    counts = " and ".join(map(str, numbers))
    if row["significance"] == metrics.CANNOT_TELL:
        who = "With one capture of each" if max(numbers) == 1 else f"With {counts} captures"
        known = step_parts.values_of(comparison, "step_std_ns", run)
        spread = max((float(one) for one in known if one is not None), default=None)
        if spread is None:
            return f"{who}, run-to-run noise is unknown."
        within = "within" if abs(float(row["change"])) <= spread else "beyond"
        return f"That is {within} the variation of steps (± {_ns(spread)}). {who}, run-to-run noise is unknown."
    p = "" if pd.isna(row["p_value"]) else f", p = {digits(float(row['p_value']))}"
    says = "Within run-to-run noise" if row["significance"] == metrics.NOISE else "More than run-to-run noise"
    return f"{says} (Welch's t-test, n = {counts}{p})."


def _throughput(comparison: Comparison, run: str, row: pd.Series) -> str:
    """What unequal steps mean for the job: tokens per second, without the profiler where both runs recorded them."""
    if not comparison.fairness.scale.per_token or pd.isna(row["change_pct"]):
        return ""
    sizes = [world_size(side.first) or 1 for side in comparison.sides if side.label in (comparison.base.label, run)]
    own = metrics.row(comparison.metrics, "tokens_per_s", run)
    growth = sizes[1] / sizes[0]
    ratio, how = growth / (1 + row["change_pct"] / 100), "profiled"
    if own is not None and not pd.isna(own["change_pct"]):
        ratio, how = 1 + own["change_pct"] / 100, "without the profiler"
    text = f"{run} processes {digits(float(ratio))} times as many tokens/s as {comparison.base.label} ({how})"
    if growth == 1:
        return f"{text}. "
    return f"{text} with {sizes[1]} ranks instead of {sizes[0]}: scaling efficiency {per_cent(100 * ratio / growth)}%. "


_FACTS = ("profiler", "profiler's options")


def _recorded_otherwise(comparison: Comparison, run: str) -> str | None:
    """Both times with what recorded them; `None` where that is the same."""
    number = comparison.runs.index(run)
    known = [fact for fact in comparison.fairness.facts if fact.name in _FACTS]
    differing = [fact for fact in known if None not in (fact.by_run[0], fact.by_run[number])]
    differing = [fact for fact in differing if fact.by_run[0] != fact.by_run[number]]
    if not differing:
        return None
    how = {at: ", ".join(str(fact.by_run[at]) for fact in differing) for at in (0, number)}
    times = [
        f"{name} {_time_of(comparison, name)}{each(comparison)} under {how[at]}"
        for name, at in ((run, number), (comparison.base.label, 0))
    ]
    return f"Recorded differently, so times are not comparable: {', '.join(times)}."


def _compute(comparison: Comparison, run: str) -> Iterator[tuple[str, str]]:
    """Time in kernels, which a profiler hardly changes."""
    before, after = step_parts.values_of(comparison, "compute_ns", run)
    if before and after:
        yield "Compute", f"{_times(before, after, each(comparison))}; profilers hardly change it."


def _unprofiled(comparison: Comparison, run: str, change: float) -> Iterator[tuple[str, str]]:
    """Both steps without the profiler: as the runs measured them, else estimated where that is another change."""
    scale = comparison.fairness.scale
    unit = f" per {scale.name}" if scale.per_token else "/step"
    before, after = step_parts.values_of(comparison, "unprofiled_step_ns", run)
    if before and after:
        row = metrics.row(comparison.metrics, "unprofiled_step_ns", run)
        other_way = row is not None and not pd.isna(row["change"]) and row["change"] * change < 0
        trust = (
            " The profiled steps differ the other way: trust these."
            if other_way and comparison.fairness.is_fair
            else ""
        )
        yield "Without the profiler", f"{_times(before, after, unit)}.{trust}"
        return
    before, after = _estimate_ns(comparison.base), _estimate_ns(step_parts.side_of(comparison, run))
    row = metrics.row(comparison.metrics, "step_ns", run)
    if row is None or before is None or after is None or scale.per_token or pd.isna(row["change"]):
        return
    if 100 * abs(float(row["change"]) - (after - before)) >= PERCENT * float(row["value"]):
        yield "Without the profiler", f"{_times(before, after, unit)}, estimated."


def _estimate_ns(side: Side) -> float | None:
    """The mean over its captures; `None` where one does not say, or much communication has unknown partners."""
    known = [_unprofiled_ns(capture) for capture in side.captures]
    return None if None in known else fmean(ns for ns in known if ns is not None)


def _unprofiled_ns(capture: Capture) -> float | None:
    table = capture.table("bottleneck")
    if table is None or not len(table) or not table["is_unprofiled"].all():
        return None
    row = table.iloc[0]
    is_open = row.get("unmatched_ns", 0) > PERCENT / 100 * row["step_ns"]
    return None if is_open else float(row["step_ns"])


def _times(before: float, after: float, unit: str) -> str:
    return f"{_ns(before)} → {_ns(after)}{unit} ({signed(100 * (float(after) / float(before) - 1))}%)"


def _time_of(comparison: Comparison, run: str) -> str:
    return _ns(metrics.value(comparison.metrics, "step_ns", run))


# What the difference is made of, and what binds the step.


def _most_of(comparison: Comparison, run: str, change: float) -> Iterator[tuple[str, str]]:
    """The part that adds most in the direction of the change, and the one that is most against it.

    Of the rank for which others wait, whose waits are only its shadow; else of the means over ranks.
    """
    pair = step_parts.awaited_ranks(comparison, comparison.base, step_parts.side_of(comparison, run))
    if pair is None:
        found, where = step_parts.parts(comparison, run), "mean over ranks"
        before = pd.Series({part.label: part.base_ns for part in found}, dtype="float64")
        after = pd.Series({part.label: part.other_ns for part in found}, dtype="float64")
    else:
        (base_rank, before), (rank, after) = pair
        where = f"on rank {rank}" if rank == base_rank else f"rank {base_rank} → rank {rank}"
        where += ", for which others wait"
    changes = after.sub(before, fill_value=0).sort_values(ascending=change < 0, kind="stable")
    if changes.empty:
        return
    main, against = str(changes.index[0]), str(changes.index[-1])
    times = f"{_ns(before.get(main, 0))} → {_ns(after.get(main, 0))}{each(comparison)}"
    text = f"{in_a_sentence(main)} {signed(changes[main], Unit.NS)} ({times}, {where})"
    if changes[against] * change < 0 and abs(changes[against]) > PERCENT / 100 * abs(change):
        text += f"; offset by {in_a_sentence(against)} {signed(changes[against], Unit.NS)}"
    yield "Most of it", f"{text}."


_ON_PATH: Mapping[str, str] = {one.key: one.label for one in ON_PATH}


def _bound_by(base: Capture, other: Capture) -> Iterator[tuple[str, str]]:
    """The category that takes most of each run's critical path without the profiler."""
    paths = [capture.table("bottleneck") for capture in (base, other)]
    if any(path is None or not path["path_ns"].sum() for path in paths):
        return
    rows = [path.loc[path["path_ns"].idxmax()] for path in paths if path is not None]
    (before, was), (after, now) = ((_ON_PATH[row["category"]], f"{row['path_pct']:.0f}%") for row in rows)
    if before == after:
        yield "Bound by", f"{before} in both ({was} → {now} of the critical path)."
    else:
        yield "Bound by", f"{before} ({was} of the critical path) → {after} ({now})."


# Communication: collectives that came, went or changed, and their overlap.


def _communication(comparison: Comparison, run: str) -> Iterator[tuple[str, str]]:
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
            yield "Communication", f"{name} is NEW: {_sums(row, 'other')}{phases['other']}."
        elif row["status"] == joins.REMOVED:
            yield "Communication", f"{name} is REMOVED: {_sums(row, 'base')} before{phases['base']}."
        elif row["change_calls"]:
            calls = f"{digits(row['base_calls'])} → {digits(row['other_calls'])} calls{each(comparison)}"
            yield "Communication", f"{name}: {calls}, {_bytes(row)}."


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


def _sums(row: dict[Any, Any], side: str) -> str:
    calls, size = row[f"{side}_calls"], row.get(f"{side}_size_bytes")
    sized = f", {_size(size)}" if size is not None and not pd.isna(size) else ""
    return f"{digits(float(calls))} {'call' if calls == 1 else 'calls'}{sized}, {_ns(row[f'{side}_total_ns'])}"


def _bytes(row: dict[Any, Any]) -> str:
    base, other = row.get("base_size_bytes"), row.get("other_size_bytes")
    if base is None or other is None or pd.isna(base) or pd.isna(other):
        return "bytes unknown"
    if base != other:
        return f"{_size(base)} → {_size(other)}"
    each_call = " → ".join(_size(float(base) / float(row[f"{side}_calls"])) for side in ("base", "other"))
    return f"{_size(base)} in both ({each_call} per call)"


def _overlap(comparison: Comparison, run: str) -> Iterator[tuple[str, str]]:
    base, other = (metrics.row(comparison.metrics, "overlap_pct", one) for one in (comparison.base.label, run))
    if base is None or other is None or pd.isna(other["change_pct_points"]) or not other["change_pct_points"]:
        return
    both = f"{per_cent(float(base['value']))}% → {per_cent(float(other['value']))}%"
    yield "Overlap", f"{both} of communication runs beside compute ({signed(float(other['change_pct_points']))} pp)."


# Which matrix products take longer, and whether communication beside them is why.


def products(table: TableDiff | None, step_ns: float | None) -> Iterator[str]:
    """The matrix products that move the step most, with those of their calls that communication runs beside."""
    if table is None or table.frame.empty:
        return
    rows = table.frame[table.frame["status"] == joins.CHANGED]
    rows = rows[(rows["base_calls"] > 0) & (rows["other_calls"] > 0)]
    change = (rows["other_gpu_ns"] - rows["base_gpu_ns"]).astype("float64")
    least_ns = CUTS[-1][0] / 100 * (step_ns or 0)
    order = change[change.abs() >= least_ns].abs().sort_values(ascending=False, kind="stable").index
    for row in rows.loc[order[: LAYOUT.named]].to_dict("records"):
        yield _product(row)
    if len(order) > LAYOUT.named:
        rest = float(change[order[LAYOUT.named :]].sum())
        yield f"{len(order) - LAYOUT.named} other matrix products: {signed(rest, Unit.NS)} together."


def _product(row: dict[Any, Any]) -> str:
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


def _both(row: dict[Any, Any], name: str) -> str:
    shown = [digits(float(row[f"{side}_{name}"] or 0)) for side in ("base", "other")]
    return shown[0] if shown[0] == shown[1] else " → ".join(shown)


def _alone_ns(row: dict[Any, Any], side: str) -> float | None:
    """A call's mean while no communication runs; `None` without such calls."""
    calls = float(row[f"{side}_calls"]) - float(row[f"{side}_calls_beside_comm"] or 0)
    return (float(row[f"{side}_gpu_ns"]) - float(row[f"{side}_gpu_beside_comm_ns"])) / calls if calls > 0 else None
