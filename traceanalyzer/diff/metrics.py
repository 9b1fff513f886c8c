"""The figures that runs are compared by, and whether repeats differ by more than noise."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.diff.captures import Capture, Scale, Side
from traceanalyzer.diff.joins import WHOLE_RUN
from traceanalyzer.meaning.columns import Unit, unit_of
from traceanalyzer.meaning.vocabulary import COMM_PARTS, IDLE_CAUSES, UNMATCHED, Part, first_upper

# Whether two sets of repeats differ by more than their noise: Welch's t test, without scipy.


SIGNIFICANT = 0.05
"""Below this p a difference is called more than noise."""

CANNOT_TELL, NOISE, DIFFERS, EQUAL = "cannot tell", "within noise", "differs", "equal"


def compare(base: Sequence[float], other: Sequence[float]) -> tuple[float | None, str]:
    """Two-sided p, if known, and what follows: whether two samples have different means (Welch 1947).

    With fewer than two values on a side both are unknown. Two sides without any spread are equal or differ.
    """
    if len(base) < 2 or len(other) < 2:
        return None, EQUAL if list(base) == list(other) else CANNOT_TELL
    error, freedom = _error(base, other)
    difference = statistics.fmean(other) - statistics.fmean(base)
    if error == 0:
        return None, EQUAL if difference == 0 else DIFFERS
    p = two_sided_p(difference / error, freedom)
    return p, DIFFERS if p < SIGNIFICANT else NOISE


def margin(base: Sequence[float], other: Sequence[float]) -> float:
    """Half the width of the 95% confidence interval of the difference of means: a smaller one may be noise.

    Of two or more values on each side.
    """
    error, freedom = _error(base, other)
    if error == 0:
        return 0.0
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > SIGNIFICANT:
        high *= 2
    for _ in range(60):  # the quantile of t, to a double's precision
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, freedom) > SIGNIFICANT else (low, middle)
    return high * error


def _error(base: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom (n/a where there is no spread)."""
    variances = [statistics.variance(values) / len(values) for values in (base, other)]
    total = sum(variances)
    if total == 0:
        return 0.0, math.nan
    freedom = 1 / sum(
        (variance / total) ** 2 / (len(values) - 1) for variance, values in zip(variances, (base, other), strict=True)
    )
    return math.sqrt(total), freedom


def two_sided_p(t: float, freedom: float) -> float:
    """P(|T| ≥ |t|) of Student's t with ν degrees of freedom, of which there is at least one.

    With T = √ν / tan φ it is the integral of sin(φ)^(ν - 1) up to arctan(√ν / |t|) over that up to π / 2. With φ
    going as a cube, Gauss's quadrature has twelve digits of it.
    """
    nodes, weights = _GAUSS
    last = math.atan2(math.sqrt(freedom), abs(t))
    parts = 3 * nodes**2 * np.sin(last * nodes**3) ** (freedom - 1)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    return float(2 / math.sqrt(math.pi) * scale * last * (weights * parts).sum())


_GAUSS = tuple(part / 2 for part in np.polynomial.legendre.leggauss(64) + np.array([[1.0], [0.0]]))
"""Nodes between 0 and 1, and their weights."""


# The figures that runs are compared by: step time, its parts, communication, memory, throughput; with their noise.


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. `per_step` ones are divided by the comparison's scale; `better` is -1 if less is better, +1 if more.

    The name ends in the unit, as everywhere: `_ns` and `_bytes` of a step, `_pct` of something.
    """

    name: str
    definition: str
    read: Callable[[Capture], pd.Series | None]
    per_step: bool = True
    better: int = -1
    part: bool = False
    """Whether it is one of the parts that add up to `step_ns`."""
    source: str = ""
    """The Result that it is taken from; none of what run.json tells."""
    of_one_step: bool = False
    """Whether it is read of one step, and not as a sum over all that are compared."""

    @property
    def unit(self) -> Unit:
        """What it is in: the name ends in it, a count's in none."""
        return unit_of(self.name) or (Unit.NUMBER if self.name.endswith("_cv") else Unit.COUNT)


COLUMNS = {
    "metric": "Figure; its name ends in its unit.",
    "run": "Run.",
    "value": "Mean over ranks (and repeats).",
    "rank_min": "Least of the ranks' values.",
    "rank_max": "Greatest of the ranks' values.",
    "repeats": "Captures of this run.",
    "std": "Sample standard deviation of the repeats; absent with fewer than two.",
    "values": "Each repeat's value: a list of numbers.",
    "change": "Difference to the base run, in the figure's unit; absent for percentages.",
    "change_pct": "The same as percent of the base's value; absent for percentages.",
    "change_pct_points": "Difference of percentages in percentage points; absent for other figures.",
    "p_value": "Two-sided p of Welch's t test over the repeats; absent where it cannot be made.",
    "significance": "differs, within noise, equal, or cannot tell (fewer than two repeats of a run).",
    "definition": "What the figure means.",
}


def measured(capture: Capture, metric: Metric, scale: Scale) -> pd.Series | None:
    """The metric by rank; `None` when this capture cannot tell."""
    values = metric.read(capture)
    if values is None or values.isna().all():
        return None
    if not metric.per_step:
        return values.astype("Float64")
    return values.astype("Float64") / (scale.work(capture) if metric.of_one_step else scale.divisor(capture))


def table(sides: Sequence[Side], scale: Scale) -> pd.DataFrame:
    """One row for each metric that some run has and each run, the first run being the base."""
    rows = []
    for metric in METRICS:
        of_sides = [[measured(capture, metric, scale) for capture in side.captures] for side in sides]
        if all(values is None for own in of_sides for values in own):
            continue
        known = [[value for value in own if value is not None] for own in of_sides]
        rows += [_row(metric, side, len(side.captures), own, known[0]) for side, own in zip(sides, known, strict=True)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).convert_dtypes()


def value(table: pd.DataFrame, metric: str, run: str) -> Any:
    """One cell of the table's `value`; `None` when it is not known."""
    found = row(table, metric, run)
    return None if found is None or pd.isna(found["value"]) else found["value"]


def row(table: pd.DataFrame, metric: str, run: str) -> pd.Series | None:
    """All of one figure of a run; `None` when the table has it not."""
    found = table[(table["metric"] == metric) & (table["run"] == run)]
    return None if found.empty else found.iloc[0]


def _row(metric: Metric, side: Side, repeats: int, own: list[pd.Series], base: list[pd.Series]) -> dict[str, object]:
    values = [float(series.mean()) for series in own]
    base_values = [float(series.mean()) for series in base]
    by_rank = pd.concat(own, axis=1).mean(axis=1) if own else pd.Series(dtype="Float64")
    ranks = by_rank[by_rank.index != WHOLE_RUN]
    return {
        "metric": metric.name,
        "run": side.label,
        "value": statistics.fmean(values) if values else None,
        "rank_min": ranks.min() if len(ranks) else None,
        "rank_max": ranks.max() if len(ranks) else None,
        "repeats": repeats,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "values": values,
        **_change(metric, values, base_values),
        "definition": metric.definition,
    }


def _change(metric: Metric, values: list[float], base: list[float]) -> dict[str, object]:
    if not values or not base:
        return {}
    one, two = statistics.fmean(base), statistics.fmean(values)
    p, says = compare(base, values)
    return {
        "change": None if metric.unit is Unit.PCT else two - one,
        **difference(metric, one, two),
        "p_value": p,
        "significance": says,
    }


def difference(metric: Metric, base: float | None, value: float | None) -> dict[str, float | None]:
    """Percent of the base, or points of a percentage; absent where a value is, or where percent are of 0."""
    if base is None or value is None:
        return {"change_pct": None, "change_pct_points": None}
    is_share = metric.unit is Unit.PCT
    return {
        "change_pct": 100 * (value - base) / base if base and not is_share else None,
        "change_pct_points": value - base if is_share else None,
    }


def _if_matched(read: Callable[[Capture], pd.Series | None]) -> Callable[[Capture], pd.Series | None]:
    """A part of communication: not known where no call is matched with other ranks', for these have no trace."""
    parts = [_of_steps("exposed_comm", part.column) for part in COMM_PARTS]

    def read_known(capture: Capture) -> pd.Series | None:
        *known, unmatched = (0 if own is None else int(own.sum()) for own in (part(capture) for part in parts))
        return None if unmatched and not any(known) else read(capture)

    return read_known


def _require(analysis: str, column: str) -> None:
    """A figure of a column that no Result has would be absent without a word."""
    assert column in ANALYSES[analysis].result.columns, f"{analysis} has no column {column}"


def _column(analysis: str, column: str) -> Callable[[Capture], pd.Series | None]:
    """A column of a Result with one row a rank."""
    _require(analysis, column)

    def read(capture: Capture) -> pd.Series | None:
        frame = capture.table(analysis)
        return frame.set_index("rank")[column] if frame is not None and column in frame else None

    return read


def _of_steps(analysis: str, column: str) -> Callable[[Capture], pd.Series | None]:
    """The sum over the compared steps of a Result with a row for each step (the whole capture's row without steps)."""
    _require(analysis, column)

    def read(capture: Capture) -> pd.Series | None:
        frame = capture.table(analysis)
        if frame is None or column not in frame:
            return None
        own = capture.of_steps(frame)
        return own.groupby("rank")[column].sum(min_count=1) if len(own) else None

    return read


def _comm(column: str) -> Callable[[Capture], pd.Series | None]:
    """A sum over the rank's rows of communication; 0 for ranks without any."""
    _require("nccl", column)

    def read(capture: Capture) -> pd.Series | None:
        frame, ranks = capture.tables.get("nccl"), capture.table("breakdown")
        if frame is None or ranks is None or not capture.is_exact:
            return None
        if frame.empty:
            return pd.Series(0, index=ranks["rank"].to_numpy())
        groups = frame.groupby("rank")[column]
        sums = groups.sum(min_count=1).where(groups.count() == groups.size())
        return sums.reindex(ranks["rank"].to_numpy(), fill_value=0)

    return read


def _unprofiled(capture: Capture) -> pd.Series | None:
    timed = capture.known.unprofiled
    return None if timed is None or timed.mean is None else pd.Series({WHOLE_RUN: timed.mean})


def _tokens_per_s(capture: Capture) -> pd.Series | None:
    known = capture.known.tokens_per_s
    return None if known is None else pd.Series({WHOLE_RUN: known})


def _peak_memory(column: str) -> Callable[[Capture], pd.Series | None]:
    """Peak bytes of each rank: a `memory` Result, else run.json's counters."""

    def read(capture: Capture) -> pd.Series | None:
        of_trace = _column("memory", column)(capture)
        if of_trace is not None:
            return of_trace
        memory = enumerate(capture.known.memory or ())
        pairs = [(own.get("rank", place), own.get(column)) for place, own in memory if own is not None]
        known = {rank: value for rank, value in pairs if type(rank) is int and type(value) is int}
        values = pd.Series(known, dtype="Int64")
        return values if len(values) else None

    return read


def _stage(column: str) -> Callable[[Capture], pd.Series | None]:
    """A column of the pipelines, their mean."""
    _require("pipelines", column)

    def read(capture: Capture) -> pd.Series | None:
        frame = capture.table("pipelines")
        return None if frame is None else pd.Series({WHOLE_RUN: frame[column].mean()})

    return read


def _memory_cv(capture: Capture) -> pd.Series | None:
    peaks = _peak_memory("peak_allocated_bytes")(capture)
    if peaks is None or len(peaks) < 2 or capture.table("pipelines") is None:
        return None
    return pd.Series({WHOLE_RUN: peaks.std(ddof=0) / peaks.mean()})


def _block(column: str) -> Callable[[Capture], pd.Series | None]:
    """A part of the repeated blocks, of runs that copy their blocks from the CPU or back."""
    read = _column("block_bounds", column)

    def read_known(capture: Capture) -> pd.Series | None:
        copied = [_column("block_bounds", name)(capture) for name in ("upload_ns", "download_ns")]
        return read(capture) if any(times is not None and times.fillna(0).any() for times in copied) else None

    return read_known


def _hidden(traffic: str) -> Callable[[Capture], pd.Series | None]:
    """Percent of the time of this traffic in which compute runs, too."""

    def read(capture: Capture) -> pd.Series | None:
        frame = capture.table("stream_pairs")
        if frame is None:
            return None
        own = frame[(frame["of"] == "class") & (frame["first"] == "compute") & (frame["second"] == traffic)]
        own = own.set_index("rank")
        return 100 * own["both_ns"] / own["second_ns"] if len(own) else None

    return read


def _time(name: str, **more: Any) -> Metric:
    """A time of the headline, for a step."""
    definition = ANALYSES["headline"].result.columns[name].definition
    return Metric(name, definition, _column("headline", name), source="headline", **more)


def _part(name: str, part: Part, analysis: str) -> Metric:
    """A part of a step's time, of a Result with a row for each step."""
    return Metric(
        name, f"{first_upper(part.label)}. {part.definition}", _of_steps(analysis, part.column), source=analysis
    )


def _part_of_comm(part: Part) -> Metric:
    """Transfers and waits are not known where they are not split."""
    metric = _part(part.column, part, "exposed_comm")
    return replace(metric, read=metric.read if part is UNMATCHED else _if_matched(metric.read), part=True)


def _share(name: str) -> Metric:
    return _time(name, per_step=False, better=int(ANALYSES["headline"].result.columns[name].better))


def _peak(name: str, definition: str) -> Metric:
    return Metric(name, definition, _peak_memory(name), per_step=False, source="memory")


def _of_pipeline(name: str, definition: str, read: Callable[[Capture], pd.Series | None]) -> Metric:
    return Metric(name, definition, read, per_step=False, source="pipelines")


METRICS: tuple[Metric, ...] = (
    Metric(
        "step_ns",
        "Length of a step's GPU window (of the capture, without steps).",
        _column("headline", "window_ns"),
        source="headline",
    ),
    Metric(
        "step_std_ns",
        "Sample standard deviation of the steps' lengths inside a capture.",
        _column("headline", "step_std_ns"),
        better=0,
        source="headline",
        of_one_step=True,
    ),
    _time("compute_ns", part=True),
    *(_part_of_comm(part) for part in COMM_PARTS),
    _time("exposed_comm_ns", part=True),
    _time("exposed_copy_ns", part=True),
    _time("opaque_ns", part=True),
    _time("idle_ns", part=True),
    *(_part(f"idle_{cause.column}", cause.part, "idle") for cause in IDLE_CAUSES),
    _share("compute_pct"),
    _share("exposed_comm_pct"),
    _share("exposed_copy_pct"),
    _share("idle_pct"),
    _share("overlap_pct"),
    _time("comm_ns"),
    Metric("comm_calls", "Communication operations on the GPU.", _comm("calls"), better=0, source="nccl"),
    Metric("comm_bytes", "Sum of their sizes; n/a when one is unknown.", _comm("size_bytes"), better=0, source="nccl"),
    Metric(
        "unprofiled_step_ns", "Step time without a profiler, as the run recorded it.", _unprofiled, of_one_step=True
    ),
    Metric(
        "tokens_per_s", "Tokens a second of the job, as the run recorded it.", _tokens_per_s, per_step=False, better=1
    ),
    _peak("peak_allocated_bytes", "Peak of allocated memory."),
    _peak("peak_reserved_bytes", "Peak of reserved memory."),
    _of_pipeline("bubble_pct", "Pipeline bubble: share of the stages' time.", _stage("bubble_pct")),
    _of_pipeline("expected_bubble_pct", "Expected of the schedule, not measured.", _stage("expected_bubble_pct")),
    _of_pipeline("stage_cv", "Stages' compute: standard deviation / mean.", _stage("compute_cv")),
    _of_pipeline("memory_cv", "Ranks' peak allocated memory: standard deviation / mean.", _memory_cv),
    *(
        Metric(f"block_{part}_ns", f"Median {part} of a repeated block.", _block(f"{part}_ns"), per_step=False)
        for part in ("pitch", "compute", "upload", "download")
    ),
    *(
        Metric(
            f"{way}_hidden_pct",
            f"Share of the {way} time in which compute runs, too.",
            _hidden(way),
            per_step=False,
            better=1,
            source="stream_pairs",
        )
        for way in ("upload", "download", "exchange")
    ),
)
"""In the order in which they are shown."""

BY_NAME = {metric.name: metric for metric in METRICS}
