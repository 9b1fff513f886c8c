"""What a comparison says, in sentences: which run is faster, what explains it, and what contradicts it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.diff import Comparison, TableDiff, joins, metrics, welch
from traceanalyzer.diff.names import MetricName
from traceanalyzer.diff.scales import CAPTURE
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import digits, text
from traceanalyzer.report.comparison import awaited, bound, path, recorded_otherwise, work_sentences
from traceanalyzer.report.comparison.waterfall import Part, parts

CONTRADICTS_POINTS = 3.0
"""A share that moves by less than this many percentage points contradicts nothing."""


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


def sentences(comparison: Comparison) -> list[str]:
    """What most of each run's step is, the ranking, then for each other run its difference and what changed."""
    made = of_all(comparison)
    at = len(made) + (len(comparison.sides) == 2)  # of two runs the difference comes before the doubt
    for one in of_runs(comparison):
        made += [one.change, *one.rest, *([one.bound_by] if one.bound_by else [])]
    doubted = doubt(comparison)
    return made if doubted is None else [*made[:at], doubted, *made[at:]]


def of_all(comparison: Comparison) -> list[str]:
    """What most of each run's step is; of three runs and more the ranking."""
    if comparison.is_empty:
        return ["No figure differs."]
    bound_by = bound.sentence(comparison)
    ranking = [_ranking(comparison)] if len(comparison.sides) > 2 else []
    return [*([bound_by] if bound_by else []), *ranking]


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
    times = [f"{run} {text(_value(comparison, 'step_ns', run), Unit.NS)}" for run in comparison.ranking]
    return f"Fastest first, by time {per(comparison)}: {', '.join(times)}."


def _of_run(comparison: Comparison, run: str) -> OfRun | None:
    row = _row(comparison, "step_ns", run)
    if row is None or pd.isna(row["change"]):
        said = f"{run}: its time cannot be compared with {comparison.base.label}'s."
        return OfRun(run, said, None, tuple(recorded_otherwise.unprofiled(comparison, run)))
    if row["change"] == 0 and comparison.is_empty:
        return None
    recorded = recorded_otherwise.sentences(comparison, run, per(comparison))
    if recorded:
        return OfRun(run, recorded[0], None, (*recorded[1:], *_work(comparison, run, row)))
    change = float(row["change"])
    rest = (
        *_explained(comparison, run, change),
        *_work(comparison, run, row),
        *work_sentences.phases(_table(comparison, run, "phases"), per(comparison)),
        *_without_profiler(comparison, run, change),
        *_contradictions(comparison, run, change),
    )
    other = next(side.first for side in comparison.sides if side.label == run)
    return OfRun(run, _time(comparison, run, row), path.sentence(comparison.base.first, other), rest)


def _work(comparison: Comparison, run: str, row: pd.Series) -> Iterator[str]:
    yield from _communication(comparison, run)
    each = next((table for table in comparison.by_rank[run] if table.analysis == "matrix_products"), None)
    table = _table(comparison, run, "matrix_products")
    yield from work_sentences.products(table, each, float(row["value"]))


def _table(comparison: Comparison, run: str, analysis: str) -> TableDiff | None:
    return next((table for table in comparison.tables[run] if table.analysis == analysis), None)


def _time(comparison: Comparison, run: str, row: pd.Series) -> str:
    base = comparison.base.label
    change = float(row["change"])
    times = (
        f"{run} takes {text(row['value'], Unit.NS)} {per(comparison)}, {base} {text(row['value'] - change, Unit.NS)}"
    )
    if change == 0:
        return f"{times}: the same."
    share = digits(abs(float(row["change_pct"])))
    how = f"{text(abs(change), Unit.NS)} ({share} %) {'longer' if change > 0 else 'shorter'}"
    return f"{times}: {how}. {_noise(comparison, run, row)}"


def _noise(comparison: Comparison, run: str, row: pd.Series) -> str:
    says = row["significance"]
    numbers = [len(side.captures) for side in comparison.sides if side.label in (comparison.base.label, run)]
    counts = " and ".join(map(str, numbers))
    if says == welch.CANNOT_TELL:
        who = "One capture of each" if max(numbers) == 1 else f"n = {counts}: one capture"
        return f"{who} cannot tell a difference from noise{_inside(comparison, run, float(row['change']))}."
    p = row["p_value"]
    tested = f"Welch's t test, n = {counts}" + ("" if pd.isna(p) else f", p = {digits(float(p))}")
    return (
        f"That is within the noise of the repeats ({tested})."
        if says == welch.NOISE
        else f"More than noise ({tested})."
    )


def _inside(comparison: Comparison, run: str, change: float) -> str:
    """How much steps vary inside the captures, of the two the one where they vary more; and whether that is as much."""
    known = [_value(comparison, "step_std_ns", one) for one in (comparison.base.label, run)]
    spreads = [float(spread) for spread in known if spread is not None]  # type: ignore[arg-type]  # a number
    if not spreads:
        return ""
    steps = f"steps inside a capture vary by ± {text(max(spreads), Unit.NS)}"
    return f", and {steps}, which is as much" if abs(change) <= max(spreads) else f" ({steps})"


def _explained(comparison: Comparison, run: str, change: float) -> Iterator[str]:
    """The part that adds most in the direction of the change, and what is most against it.

    Of the rank for which others wait, where one is; else of the means over ranks.
    """
    said = awaited.sentence(comparison, run, change, per(comparison))
    found = [] if said else parts(comparison, run)
    if said:
        yield said
    if found:
        yield _of_means(found, change, per(comparison), awaited.names_of_unsplit(comparison, run))


def _of_means(found: list[Part], change: float, unit: str, names: Mapping[str, str]) -> str:
    sign = 1 if change >= 0 else -1
    ordered = sorted(found, key=lambda part: -sign * part.change_ns)
    main = ordered[0]
    against = ordered[-1]
    both = f"{text(main.base_ns, Unit.NS)} → {text(main.other_ns, Unit.NS)}"
    made = f"Most of it is {names.get(main.label, main.label)}: {_signed(main.change_ns)} {unit} ({both})"
    if -sign * against.change_ns > awaited.LEAST_AGAINST * abs(change) and against is not main:
        made += f"; against it {names.get(against.label, against.label)}, {_signed(against.change_ns)}"
    return made + " (means over ranks)."


def _communication(comparison: Comparison, run: str) -> Iterator[str]:
    table = _table(comparison, run, "nccl")
    if table is None:
        return
    for row in table.frame.to_dict("records"):
        is_one = (table.frame["collective"] == row["collective"]).sum() == 1
        name = str(row["collective"]).replace("_", "-") + ("" if is_one else f" of {_element_type(row.get('dtype'))}")
        yield from _collective(name, row, per(comparison), _phases(comparison, run, row["collective"]))
    yield from _overlap(comparison, run)


def _element_type(dtype: object) -> str:
    return element_types(dtype) if isinstance(dtype, str) else "unknown type"


def _phases(comparison: Comparison, run: str, collective: object) -> dict[str, str]:
    """For each side in which phases of training its calls lie: `13 in forward, 13 in backward`."""
    table = _table(comparison, run, "comm_phases")
    if table is None:
        return {}
    own = table.frame[table.frame["collective"] == collective]
    made = {}
    for side in ("base", "other"):
        held = own[own[f"{side}_calls"].fillna(0) > 0].sort_values("phase")
        pieces = [
            f"{digits(float(calls))} in {phase}"
            for phase, calls in zip(held["phase"], held[f"{side}_calls"], strict=True)
        ]
        made[side] = f" ({', '.join(pieces)})" if pieces else ""
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
    sized = f", {text(size, Unit.BYTES)}" if size is not None and not pd.isna(size) else ""
    number = f"{digits(float(calls))} {'call' if calls == 1 else 'calls'}"  # type: ignore[arg-type]
    return f"{number}{sized}, {text(row[f'{side}_total_ns'], Unit.NS)}"


def _bytes(row: dict[str, object]) -> str:
    base, other = row.get("base_size_bytes"), row.get("other_size_bytes")
    if base is None or other is None or pd.isna(base) or pd.isna(other):
        return "of bytes that a capture does not tell"
    if base != other:
        return f"{text(base, Unit.BYTES)} → {text(other, Unit.BYTES)}"
    calls = row["base_calls"], row["other_calls"]
    each = " → ".join(text(float(base) / float(count), Unit.BYTES) for count in calls)  # type: ignore[arg-type]
    what = "larger" if float(calls[1]) < float(calls[0]) else "smaller"  # type: ignore[arg-type]
    return f"the same {text(base, Unit.BYTES)} in {'fewer' if what == 'larger' else 'more'}, {what} calls ({each} each)"


def _overlap(comparison: Comparison, run: str) -> Iterator[str]:
    base, other = (_row(comparison, "overlap_pct", one) for one in (comparison.base.label, run))
    if base is None or other is None or pd.isna(other["change_pct_points"]) or not other["change_pct_points"]:
        return
    points = _plus(float(other["change_pct_points"]))
    both = f"{_over_ranks(base)} → {_over_ranks(other)}"
    yield f"Overlap of communication with compute: {both}, {points} percentage points."


def _over_ranks(row: pd.Series) -> str:
    low, high = row["rank_min"], row["rank_max"]
    if pd.isna(low) or low == high:
        return f"{digits(float(row['value']))} %"
    return f"{digits(float(row['value']))} % ({digits(float(low))} to {digits(float(high))} over ranks)"


_SHARES: tuple[tuple[MetricName, str], ...] = (
    ("compute_pct", "compute share"),
    ("overlap_pct", "overlap"),
    ("exposed_comm_pct", "exposed communication"),
    ("idle_pct", "idle share"),
)


def _without_profiler(comparison: Comparison, run: str, change: float) -> Iterator[str]:
    """The runs' own step times, where they rank the two the other way round: a profiler slows hosts unequally."""
    row = _row(comparison, "unprofiled_step_ns", run)
    if row is None or pd.isna(row["change"]) or row["change"] * change >= 0:
        return
    own, its_change = float(row["value"]), float(row["change"])
    times = f"{run} {text(own, Unit.NS)}, {comparison.base.label} {text(own - its_change, Unit.NS)}"
    yield f"Contradiction: without the profiler it is the other way round ({times} a step). Trust those times."


def _contradictions(comparison: Comparison, run: str, change: float) -> Iterator[str]:
    """Shares that look better on the slower run, or worse on the faster: who ranks by them would be wrong."""
    against = []
    for name, words in _SHARES:
        row = _row(comparison, name, run)
        if row is None or pd.isna(row["change_pct_points"]):
            continue
        points = float(row["change_pct_points"])
        is_better = points * metrics.BY_NAME[name].better > 0
        if abs(points) >= CONTRADICTS_POINTS and change and is_better == (change > 0):
            against.append(f"{words} ({_plus(points)} percentage points)")
    if against:
        judged, but = ("better", "longer") if change > 0 else ("worse", "shorter")
        looks = f"{', '.join(against)} {'looks' if len(against) == 1 else 'look'} {judged}"
        yield f"Contradiction: its {looks}, and yet its step is {but}. Step time decides."


def _plus(value: float) -> str:
    return f"{'+' if value > 0 else ''}{digits(value)}"


def _signed(value_ns: float) -> str:
    return ("+" if value_ns > 0 else "") + text(value_ns, Unit.NS)


def _row(comparison: Comparison, metric: MetricName, run: str) -> pd.Series | None:
    table = comparison.metrics
    found = table[(table["metric"] == metric) & (table["run"] == run)]
    return None if found.empty else found.iloc[0]


def _value(comparison: Comparison, metric: MetricName, run: str) -> object:
    return metrics.value(comparison.metrics, metric, run)
