"""What a comparison says, in sentences: which run is faster, what explains it, and what contradicts it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses.once import once_of_tables
from traceanalyzer.diff import Comparison, metrics, welch
from traceanalyzer.diff.names import MetricName
from traceanalyzer.diff.scales import CAPTURE, world_size
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import named
from traceanalyzer.meaning.quantities import digits, per_cent, signed, text
from traceanalyzer.meaning.vocabulary import in_a_sentence
from traceanalyzer.report.comparison import (
    awaited,
    bound,
    communication_sentences,
    path,
    recorded_otherwise,
    work_sentences,
)
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


@once_of_tables
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
    first = "Shortest" if comparison.fairness.scale.per_token else "Fastest"
    return f"{first} first, by time {per(comparison)}: {', '.join(times)}."


_NO_FIGURES = ", for GPU work is compared, and none was recorded: the report of each says what its CPUs do"


def _of_run(comparison: Comparison, run: str) -> OfRun | None:
    row = metrics.row(comparison.metrics, "step_ns", run)
    if row is None or pd.isna(row["change"]):
        why = "" if comparison.metrics["value"].notna().any() else _NO_FIGURES
        said = f"{run}: its time cannot be compared with {comparison.base.label}'s{why}."
        return OfRun(run, said, None, tuple(recorded_otherwise.unprofiled(comparison, run)))
    if row["change"] == 0 and comparison.is_empty:
        return None
    recorded = recorded_otherwise.sentences(comparison, run, per(comparison))
    if recorded:
        return OfRun(run, recorded[0], None, (*recorded[1:], *_work(comparison, run, row)))
    change = float(row["change"])
    rest = (
        *recorded_otherwise.estimated(comparison, run),
        *_explained(comparison, run, change),
        *_work(comparison, run, row),
        *work_sentences.phases(comparison.table(run, "phases"), per(comparison)),
        *_without_profiler(comparison, run, change),
        *_contradictions(comparison, run, change),
    )
    other = next(side.first for side in comparison.sides if side.label == run)
    return OfRun(run, _time(comparison, run, row), path.sentence(comparison.base.first, other), rest)


def _work(comparison: Comparison, run: str, row: pd.Series) -> Iterator[str]:
    yield from communication_sentences.sentences(comparison, run, per(comparison))
    each = comparison.table_by_rank(run, "matrix_products")
    table = comparison.table(run, "matrix_products")
    yield from work_sentences.products(table, each, float(row["value"]))


def _time(comparison: Comparison, run: str, row: pd.Series) -> str:
    base = comparison.base.label
    change = float(row["change"])
    times = (
        f"{run} takes {text(row['value'], Unit.NS)} {per(comparison)}, {base} {text(row['value'] - change, Unit.NS)}"
    )
    if change == 0:
        return f"{_throughput(comparison, run, row)}{times}: the same."
    share = per_cent(abs(float(row["change_pct"])))
    how = f"{text(abs(change), Unit.NS)} ({share} %) {'longer' if change > 0 else 'shorter'}"
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
    if says == welch.CANNOT_TELL:
        who = "One capture of each" if max(numbers) == 1 else f"n = {counts}: one capture"
        spread = _spread_ns(comparison, run)
        if spread and abs(float(row["change"])) >= _FAR * spread:
            far = f"That is far beyond what steps inside a capture vary by (± {text(spread, Unit.NS)})"
            return f"{far}. {who} does not tell how runs vary."
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
    spread = _spread_ns(comparison, run)
    if spread is None:
        return ""
    steps = f"steps inside a capture vary by ± {text(spread, Unit.NS)}"
    return f", and {steps}, which is as much" if abs(change) <= spread else f" ({steps})"


def _spread_ns(comparison: Comparison, run: str) -> float | None:
    """By how much steps vary inside the capture in which they vary more."""
    known = [_value(comparison, "step_std_ns", one) for one in (comparison.base.label, run)]
    return max((float(spread) for spread in known if spread is not None), default=None)  # type: ignore[arg-type]  # a number


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
    longest, shorter = (names.get(part.label, in_a_sentence(part.label)) for part in (main, against))
    made = f"Most of the difference is {longest}, {signed(main.change_ns, Unit.NS)} {unit} ({both})"
    if -sign * against.change_ns > awaited.LEAST_AGAINST * abs(change) and against is not main:
        made += f"; against it {shorter}, {signed(against.change_ns, Unit.NS)}"
    return made + " (means over ranks)."


_SHARES: tuple[tuple[MetricName, str], ...] = (
    ("compute_pct", "compute share"),
    ("overlap_pct", "overlap"),
    ("exposed_comm_pct", "exposed communication"),
    ("idle_pct", "idle share"),
)


def _without_profiler(comparison: Comparison, run: str, change: float) -> Iterator[str]:
    """The runs' own step times, where they rank the two the other way round: a profiler slows hosts unequally."""
    row = metrics.row(comparison.metrics, "unprofiled_step_ns", run)
    if row is None or pd.isna(row["change"]) or row["change"] * change >= 0 or not comparison.fairness.is_fair:
        return
    own, its_change = float(row["value"]), float(row["change"])
    times = f"{run} {text(own, Unit.NS)}, {comparison.base.label} {text(own - its_change, Unit.NS)}"
    unit = recorded_otherwise.of_a_step(comparison)
    yield f"Contradiction: without the profiler it is the other way round ({times} {unit}). Trust those times."


def _contradictions(comparison: Comparison, run: str, change: float) -> Iterator[str]:
    """Shares that look better on the slower run, or worse on the faster: who ranks by them would be wrong."""
    against = []
    for name, words in _SHARES:
        row = metrics.row(comparison.metrics, name, run)
        if row is None or pd.isna(row["change_pct_points"]):
            continue
        points = float(row["change_pct_points"])
        is_better = points * metrics.BY_NAME[name].better > 0
        if abs(points) >= CONTRADICTS_POINTS and change and is_better == (change > 0):
            against.append(f"{words} ({signed(points)} percentage points)")
    if against:
        judged, but = ("better", "longer") if change > 0 else ("worse", "shorter")
        looks = f"{named(against)} {'looks' if len(against) == 1 else 'look'} {judged}"
        what = f"time {per(comparison)}" if comparison.fairness.scale.per_token else "step"
        decides = "Step time" if what == "step" else "That time"
        yield f"Contradiction: in {run} {looks}, and yet its {what} is {but}. {decides} decides."


def _value(comparison: Comparison, metric: MetricName, run: str) -> object:
    return metrics.value(comparison.metrics, metric, run)
