"""What a comparison says, in sentences."""

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
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Unit, digits, per_cent, signed, text
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import in_a_sentence
from traceanalyzer.report.comparison import step_parts
from traceanalyzer.report.comparison.step_parts import WaterfallPart, has_open_waits, parts

_ns, _size = partial(text, unit=Unit.NS), partial(text, unit=Unit.BYTES)


# What a comparison says of communication: collectives that came, went or changed, and their overlap.


def communication_sentences_sentences(comparison: Comparison, run: str, unit: str) -> Iterator[str]:
    """Collectives that are new, gone, or called more or less often `unit` (`a step`), then overlap."""
    table = comparison.table(run, "nccl")
    if table is None:
        return
    for row in table.frame.to_dict("records"):
        is_one = (table.frame["collective"] == row["collective"]).sum() == 1
        name = collective_words(row["collective"]) + ("" if is_one else f" of {_element_type(row.get('dtype'))}")
        yield from _collective(name, row, unit, _phases(comparison, run, row["collective"], is_one=is_one))
    yield from _overlap(comparison, run)


def _element_type(dtype: object) -> str:
    return element_types(dtype) if isinstance(dtype, str) else "unknown type"


def _phases(comparison: Comparison, run: str, collective: object, *, is_one: bool) -> dict[str, str]:
    """For each side in which phases of training its calls lie: `13 in forward, 13 in backward`.

    They are counted of a collective's calls together: where these are of several element types, only the phase is said
    that all of them lie in.
    """
    table = comparison.table(run, "comm_phases")
    if table is None:
        return {}
    own = table.frame[table.frame["collective"] == collective]
    made = {}
    for side in ("base", "other"):
        held = own[own[f"{side}_calls"].fillna(0) > 0].sort_values("phase")
        pieces = [
            f"{digits(float(calls))} in {phase}" if is_one else f"in {phase}"
            for phase, calls in zip(held["phase"], held[f"{side}_calls"], strict=True)
        ]
        is_known = bool(set(held["phase"]) - {UNATTRIBUTED}) and (is_one or len(pieces) == 1)
        made[side] = f" ({', '.join(pieces)})" if is_known else ""
    return made


def _collective(name: str, row: dict[str, object], unit: str, phases: dict[str, str]) -> Iterator[str]:
    base, other = (_sums(row, side) for side in ("base", "other"))
    if row["status"] == joins.NEW:
        yield f"{name} is NEW: {other}{phases.get('other', '')}."
    elif row["status"] == joins.REMOVED:
        yield f"{name} is REMOVED: {base} before{phases.get('base', '')}."
    elif row["change_calls"]:
        yield f"{name}: {digits(row['base_calls'])} → {digits(row['other_calls'])} calls {unit}, {_bytes(row)}."  # type: ignore[arg-type]


def _sums(row: dict[str, object], side: str) -> str:
    calls, size = row[f"{side}_calls"], row.get(f"{side}_size_bytes")
    sized = f", {_size(size)}" if size is not None and not pd.isna(size) else ""
    number = f"{digits(float(calls))} {'call' if calls == 1 else 'calls'}"  # type: ignore[arg-type]
    return f"{number}{sized}, {_ns(row[f'{side}_total_ns'])}"


def _bytes(row: dict[str, object]) -> str:
    base, other = row.get("base_size_bytes"), row.get("other_size_bytes")
    if base is None or other is None or pd.isna(base) or pd.isna(other):
        return "bytes unknown"
    if base != other:
        return f"{_size(base)} → {_size(other)}"
    calls = row["base_calls"], row["other_calls"]
    each = " → ".join(_size(float(base) / float(count)) for count in calls)  # type: ignore[arg-type]
    what = "larger" if float(calls[1]) < float(calls[0]) else "smaller"  # type: ignore[arg-type]
    return f"the same {_size(base)} in {'fewer' if what == 'larger' else 'more'}, {what} calls ({each} each)"


def _overlap(comparison: Comparison, run: str) -> Iterator[str]:
    base, other = (metrics.row(comparison.metrics, "overlap_pct", one) for one in (comparison.base.label, run))
    if base is None or other is None or pd.isna(other["change_pct_points"]) or not other["change_pct_points"]:
        return
    points = signed(float(other["change_pct_points"]))
    both = f"{_over_ranks(base)} → {_over_ranks(other)}"
    yield f"Overlap of communication with compute: {both}, {points} percentage points."


def _over_ranks(row: pd.Series) -> str:
    low, high = row["rank_min"], row["rank_max"]
    if pd.isna(low) or low == high:
        return f"{per_cent(float(row['value']))}%"
    return f"{per_cent(float(row['value']))}% ({per_cent(float(low))} to {per_cent(float(high))} over ranks)"


# Which phase and which matrix products take longer, and whether communication beside them is why.


LEAST_PCT = 5.0
"""A product whose mean moves by less is not said to be slower or faster."""

LEAST_SHARE = 0.01
"""Of the step: what moves it by less is left to the tables."""

LEAST_ALONE = 0.05
"""The same of a product that only one run has."""

MOST_PRODUCTS = 3

_SLOWED = 0.5
"""Of a product's change: what the calls beside communication must explain to be called the cause."""


def products(table: TableDiff | None, step_ns: float | None) -> Iterator[str]:
    """The matrix products that move the step most, by their mean or their number, with contention told apart."""
    if table is None or table.frame.empty:
        return
    rows = table.frame[table.frame["status"] == joins.CHANGED]
    rows = rows[(rows["base_calls"] > 0) & (rows["other_calls"] > 0)]
    means = [rows[f"{side}_gpu_ns"] / rows[f"{side}_calls"] for side in ("base", "other")]
    slower = (means[1] - means[0]) * rows["other_calls"]
    more = (rows["other_calls"] - rows["base_calls"]) * means[0]
    least = LEAST_SHARE * (step_ns or 0)
    is_slower = ((means[1] / means[0] - 1).abs() >= LEAST_PCT / 100) & (slower.abs() >= least)
    is_told = is_slower | (more.abs() >= LEAST_ALONE * (step_ns or 0))
    change = slower + more
    order = change[is_told.fillna(value=False)].abs().sort_values(ascending=False, kind="stable").index
    for row in rows.loc[order[:MOST_PRODUCTS]].to_dict("records"):
        yield _product(row)
    if len(order) > MOST_PRODUCTS:
        rest = float(change[order[MOST_PRODUCTS:]].sum())
        yield f"{len(order) - MOST_PRODUCTS} other matrix products: {signed(rest, Unit.NS)} together."


def _what(row: dict[str, Any]) -> str:
    dtype = f" {element_types(str(row['dtype']))}" if isinstance(row["dtype"], str) else ""
    return f"{row['product']}{dtype}, {row['phase']},"


def _product(row: dict[str, Any]) -> str:
    base, other = (_mean(row, side, "gpu_ns", "calls") for side in ("base", "other"))
    calls = {digits(float(row[f"{side}_calls"])) for side in ("base", "other")}
    number = " → ".join(sorted(calls)) if len(calls) == 1 else f"{_number(row, 'base')} → {_number(row, 'other')}"
    head = f"{_what(row)[:-1]}: {_ns(base)} → {_ns(other)} a call, {number} calls"
    return head + _contention(row, float(other or 0) - float(base or 0)) + "."


def _contention(row: dict[str, Any], change_ns: float) -> str:
    """What the calls alone do, where communication runs beside others of them."""
    beside = [float(row[f"{side}_calls_beside_comm"] or 0) for side in ("base", "other")]
    alone = [_alone(row, side) for side in ("base", "other")]
    counted = f"{digits(beside[0])} → {digits(beside[1])} of them beside communication"
    if not any(beside):
        return ", none beside communication"
    if None in alone:
        return f", {counted}"
    own = float(alone[1] or 0) - float(alone[0] or 0)
    times = f"alone {_ns(alone[0])} → {_ns(alone[1])}"
    if abs(own) <= (1 - _SLOWED) * abs(change_ns):
        verb = "slows" if change_ns > 0 else "slowed"
        return f", {counted}: {times}, communication {verb} it"
    return f", {counted}: {times}, not because of communication"


def _alone(row: dict[str, Any], side: str) -> float | None:
    calls = float(row[f"{side}_calls"]) - float(row[f"{side}_calls_beside_comm"])
    return (float(row[f"{side}_gpu_ns"]) - float(row[f"{side}_gpu_beside_comm_ns"])) / calls if calls > 0 else None


def _mean(row: dict[str, Any], side: str, time: str, count: str) -> float | None:
    total, calls = row[f"{side}_{time}"], row[f"{side}_{count}"]
    return None if pd.isna(total) or not calls else float(total) / float(calls)


def _number(row: dict[str, Any], side: str) -> str:
    return digits(float(row[f"{side}_calls"]))


# What can be said of times that different profilers, or one with other options, recorded: not that one is longer.
#
# And of times in which recording itself took hosts long: what they are without, by an estimate.


_FACTS = ("profiler", "profiler's options")


def recorded_otherwise_sentences(comparison: Comparison, run: str, unit: str) -> list[str]:
    """Both times with what recorded them, and what may be compared all the same; nothing where that is the same."""
    number = comparison.runs.index(run)
    told = [fact for fact in comparison.fairness.facts if fact.name in _FACTS]
    differing = [fact for fact in told if None not in (fact.told[0], fact.told[number])]
    differing = [fact for fact in differing if fact.told[0] != fact.told[number]]
    if not differing:
        return []
    base = comparison.base.label
    times = [
        f"{_time_of(comparison, name)} {unit} under {', '.join(str(fact.told[place]) for fact in differing)}"
        for name, place in ((run, number), (base, 0))
    ]
    made = [f"{run} takes {times[0]}, {base} {times[1]}: recorded differently, so the times are not comparable."]
    compute = _change(comparison, run, "compute_ns", "Compute, whose kernels a profiler hardly changes", unit)
    return [*made, *unprofiled(comparison, run), *compute]


def unprofiled(comparison: Comparison, run: str) -> list[str]:
    """The two step times that run.json has without a profiler, where both runs have one."""
    return _change(comparison, run, "unprofiled_step_ns", "Without a profiler", of_a_step(comparison))


def estimated(comparison: Comparison, run: str) -> list[str]:
    """Both steps without what recording takes the hosts, where that is another change; none where runs tell theirs."""
    row = metrics.row(comparison.metrics, "step_ns", run)
    before, after = _estimate_ns(comparison.base), _estimate_ns(step_parts.side_of(comparison, run))
    if row is None or before is None or after is None or unprofiled(comparison, run):
        return []
    change, is_longer = after - before, after > before
    if comparison.fairness.scale.per_token or 100 * abs(float(row["change"]) - change) < PERCENT * float(row["value"]):
        return []
    share = f"{per_cent(100 * abs(change) / before)}% {'longer' if is_longer else 'shorter'}"
    times = f"{_ns(after)}, {comparison.base.label} {_ns(before)}"
    return [f"Profiler overhead: without the profiler {run} takes an estimated {times}: {share}."]


def _estimate_ns(side: Side) -> float | None:
    """The mean over its captures; `None` where one does not tell."""
    known = [_unprofiled_ns(held) for held in side.captures]
    return None if None in known else fmean(ns for ns in known if ns is not None)


def _unprofiled_ns(held: Capture) -> float | None:
    table = held.table("bottleneck")
    if table is None or not len(table) or not table["is_unprofiled"].all() or has_open_waits(held):
        return None
    return float(table["step_ns"].iloc[0])


def of_a_step(comparison: Comparison) -> str:
    """What a step's own time is of: `a step`, or of unequal steps the same work."""
    scale = comparison.fairness.scale
    return f"per {scale.name}" if scale.per_token else "a step"


def _change(comparison: Comparison, run: str, metric: str, what: str, unit: str) -> list[str]:
    before, after = step_parts.values_of(comparison, metric, run)
    if not before or not after:
        return []
    change = 100 * (float(after) / float(before) - 1)
    return [f"{what}: {_ns(before)} → {_ns(after)} {unit} ({signed(change)}%)."]


def _time_of(comparison: Comparison, run: str) -> str:
    return _ns(metrics.value(comparison.metrics, "step_ns", run))


# What a comparison says, in sentences: which run is faster, what explains it, and what contradicts it.


@dataclass(frozen=True, slots=True)
class OfRun:
    """What is said of one run beside the base.

    Attributes:
        run: its label.
        change: how long its step is and the base's.
        bound_by: what bound the base's step and what binds its own; `None` where either has no critical path.
        rest: what explains the change, and what else changed.
    """

    run: str
    change: str
    bound_by: str | None
    rest: tuple[str, ...]


def verdict_sentences(comparison: Comparison) -> list[str]:
    """The ranking, then for each other run its difference and what changed."""
    made = of_all(comparison)
    at = len(made) + (len(comparison.sides) == 2)  # of two runs the difference comes before the doubt
    for one in of_runs(comparison):
        made += [one.change, *one.rest, *([one.bound_by] if one.bound_by else [])]
    doubted = doubt(comparison)
    return made if doubted is None else [*made[:at], doubted, *made[at:]]


def of_all(comparison: Comparison) -> list[str]:
    """Of three runs and more the ranking."""
    if comparison.is_empty:
        return ["No figure differs."]
    return [_ranking(comparison)] if len(comparison.sides) > 2 else []


@memoized_by_tables
def of_runs(comparison: Comparison) -> list[OfRun]:
    """Each run beside the base, in order; none of a comparison without a difference."""
    return [made for side in comparison.others if (made := _of_run(comparison, side.label)) is not None]


def doubt(comparison: Comparison) -> str | None:
    """That the same work is not known, if it is not."""
    said = comparison.fairness.doubt
    if said is None or comparison.is_empty:
        return None
    return f"Read with care: it is not known that they did the same work ({said})."


def per(comparison: Comparison) -> str:
    """`a step`, `per 1,000 tokens of a rank`, or `in the capture`."""
    scale = comparison.fairness.scale
    if scale.per_token:
        return f"per {scale.name}"
    return "in the whole capture" if scale == CAPTURE else "a step"


def _ranking(comparison: Comparison) -> str:
    times = [f"{run} {_time_of(comparison, run)}" for run in comparison.ranking]
    first = "Shortest" if comparison.fairness.scale.per_token else "Fastest"
    return f"{first} first, by time {per(comparison)}: {', '.join(times)}."


_NO_FIGURES = ", for GPU work is compared, and none was recorded: the report of each says what its CPUs do"


def _of_run(comparison: Comparison, run: str) -> OfRun | None:
    row = metrics.row(comparison.metrics, "step_ns", run)
    if row is None or pd.isna(row["change"]):
        why = "" if comparison.metrics["value"].notna().any() else _NO_FIGURES
        said = f"{run}: its time cannot be compared with {comparison.base.label}'s{why}."
        return OfRun(run, said, None, tuple(unprofiled(comparison, run)))
    if row["change"] == 0 and comparison.is_empty:
        return None
    recorded = recorded_otherwise_sentences(comparison, run, per(comparison))
    if recorded:
        return OfRun(run, recorded[0], None, (*recorded[1:], *_work(comparison, run, row)))
    change = float(row["change"])
    rest = (
        *estimated(comparison, run),
        *_explained(comparison, run, change),
        *_work(comparison, run, row),
        *_without_profiler(comparison, run, change),
    )
    other = step_parts.side_of(comparison, run).first
    return OfRun(run, _verdict_time(comparison, run, row), step_parts.path_sentence(comparison.base.first, other), rest)


def _work(comparison: Comparison, run: str, row: pd.Series) -> Iterator[str]:
    yield from communication_sentences_sentences(comparison, run, per(comparison))
    yield from products(comparison.table(run, "matrix_products"), float(row["value"]))


def _verdict_time(comparison: Comparison, run: str, row: pd.Series) -> str:
    base = comparison.base.label
    change = float(row["change"])
    times = f"{run} takes {_ns(row['value'])} {per(comparison)}, {base} {_ns(row['value'] - change)}"
    if change == 0:
        return f"{_throughput(comparison, run, row)}{times}: the same."
    share = per_cent(abs(float(row["change_pct"])))
    how = f"{_ns(abs(change))} ({share}%) {'longer' if change > 0 else 'shorter'}"
    return f"{_throughput(comparison, run, row)}{times}: {how}. {_noise(comparison, run, row)}"


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
    said = f"{run} processes {digits(float(ratio))} times as many tokens/s as {comparison.base.label} ({how})"
    if growth == 1:
        return f"{said}. "
    return f"{said} with {sizes[1]} ranks instead of {sizes[0]}: scaling efficiency {per_cent(100 * ratio / growth)}%. "


_FAR = 5
"""Times by which steps vary inside a capture: a change of this much is not theirs."""


def _noise(comparison: Comparison, run: str, row: pd.Series) -> str:
    says = row["significance"]
    numbers = [len(side.captures) for side in comparison.sides if side.label in (comparison.base.label, run)]
    counts = " and ".join(map(str, numbers))
    if says == metrics.CANNOT_TELL:
        who = "One capture of each" if max(numbers) == 1 else f"n = {counts}: one capture"
        spread = _spread_ns(comparison, run)
        if spread and abs(float(row["change"])) >= _FAR * spread:
            far = f"That is far beyond what steps inside a capture vary by (± {_ns(spread)})"
            return f"{far}. {who} does not show how runs vary."
        return f"{who} cannot tell a difference from noise{_inside(comparison, run, float(row['change']))}."
    p = row["p_value"]
    tested = f"Welch's t test, n = {counts}" + ("" if pd.isna(p) else f", p = {digits(float(p))}")
    return (
        f"That is within the noise of the repeats ({tested})."
        if says == metrics.NOISE
        else f"More than noise ({tested})."
    )


def _inside(comparison: Comparison, run: str, change: float) -> str:
    """How much steps vary inside the captures, of the two the one where they vary more; and whether that is as much."""
    spread = _spread_ns(comparison, run)
    if spread is None:
        return ""
    steps = f"steps inside a capture vary by ± {_ns(spread)}"
    return f", and {steps}, which is as much" if abs(change) <= spread else f" ({steps})"


def _spread_ns(comparison: Comparison, run: str) -> float | None:
    """By how much steps vary inside the capture in which they vary more."""
    known = step_parts.values_of(comparison, "step_std_ns", run)
    return max((float(spread) for spread in known if spread is not None), default=None)


def _explained(comparison: Comparison, run: str, change: float) -> Iterator[str]:
    """The part that adds most in the direction of the change, and what is most against it.

    Of the rank for which others wait, where one is; else of the means over ranks.
    """
    said = step_parts.awaited_sentence(comparison, run, change, per(comparison))
    found = [] if said else parts(comparison, run)
    if said:
        yield said
    if found:
        yield _of_means(found, change, per(comparison), step_parts.names_of_unsplit(comparison, run))


def _of_means(found: list[WaterfallPart], change: float, unit: str, names: Mapping[str, str]) -> str:
    sign = 1 if change >= 0 else -1
    ordered = sorted(found, key=lambda part: -sign * part.change_ns)
    main = ordered[0]
    against = ordered[-1]
    both = f"{_ns(main.base_ns)} → {_ns(main.other_ns)}"
    longest, shorter = (names.get(part.label, in_a_sentence(part.label)) for part in (main, against))
    made = f"Most of the difference is {longest}, {signed(main.change_ns, Unit.NS)} {unit} ({both})"
    if -sign * against.change_ns > step_parts.LEAST_AGAINST * abs(change) and against is not main:
        made += f"; against it {shorter}, {signed(against.change_ns, Unit.NS)}"
    return made + " (means over ranks)."


def _without_profiler(comparison: Comparison, run: str, change: float) -> Iterator[str]:
    """The runs' own step times, where they rank the two the other way round: a profiler slows hosts unequally."""
    row = metrics.row(comparison.metrics, "unprofiled_step_ns", run)
    if row is None or pd.isna(row["change"]) or row["change"] * change >= 0 or not comparison.fairness.is_fair:
        return
    own, its_change = float(row["value"]), float(row["change"])
    times = f"{run} {_ns(own)}, {comparison.base.label} {_ns(own - its_change)}"
    unit = of_a_step(comparison)
    yield f"Contradiction: without the profiler it is the other way round ({times} {unit}). Trust those times."
