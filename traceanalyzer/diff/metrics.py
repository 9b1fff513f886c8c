"""The figures that runs are compared by, and whether repeats differ by more than noise."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.diff.captures import WHOLE_RUN, Capture, Scale, Side, known_sums
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

Read = Callable[[Capture], pd.Series | None]
"""A figure of a capture by rank, `WHOLE_RUN` for one of the whole run; `None` when the capture does not have it."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure; `per_step` ones are divided by the comparison's scale.

    The name ends in the unit, as everywhere: `_ns` and `_bytes` of a step, `_pct` of something.
    """

    name: str
    definition: str
    read: Read
    per_step: bool = True
    source: str = ""
    """The Result that it is taken from; none of what run.json has."""
    of_one_step: bool = False
    """Whether it is read of one step, and not as a sum over all that are compared."""

    @property
    def unit(self) -> Unit:
        """What it is in: the name ends in it, a count's in none."""
        return unit_of(self.name) or (Unit.NUMBER if self.name.endswith("_cv") else Unit.COUNT)

    def of(self, capture: Capture, scale: Scale) -> pd.Series | None:
        """Its values by rank; `None` when this capture does not have it."""
        values = self.read(capture)
        if values is None or values.isna().all():
            return None
        if self.per_step:
            values = values / (scale.work(capture) if self.of_one_step else scale.divisor(capture))
        return values.astype("Float64")


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


def table(sides: Sequence[Side], scale: Scale, metrics: Iterable[Metric] | None = None) -> pd.DataFrame:
    """One row for each metric that some run has and each run, the first run being the base."""
    rows = []
    for metric in METRICS if metrics is None else metrics:
        known = [[own for capture in side.captures if (own := metric.of(capture, scale)) is not None] for side in sides]
        if any(known):
            rows += [_row(metric, side, own, known[0]) for side, own in zip(sides, known, strict=True)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).convert_dtypes()


def value(table: pd.DataFrame, metric: str, run: str) -> Any:
    """One cell of the table's `value`; `None` when it is not known."""
    found = row(table, metric, run)
    return None if found is None or pd.isna(found["value"]) else found["value"]


def row(table: pd.DataFrame, metric: str, run: str) -> pd.Series | None:
    """All of one figure of a run; `None` when the table does not have it."""
    found = table[(table["metric"] == metric) & (table["run"] == run)]
    return None if found.empty else found.iloc[0]


def _row(metric: Metric, side: Side, own: list[pd.Series], base: list[pd.Series]) -> dict[str, object]:
    values, base_values = ([float(series.mean()) for series in each] for each in (own, base))
    by_rank = pd.concat(own, axis=1).mean(axis=1) if own else pd.Series(dtype="Float64")
    ranks = by_rank[by_rank.index != WHOLE_RUN]
    made = {
        "metric": metric.name,
        "run": side.label,
        "value": statistics.fmean(values) if values else None,
        "rank_min": ranks.min() if len(ranks) else None,
        "rank_max": ranks.max() if len(ranks) else None,
        "repeats": len(side.captures),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "values": values,
        "definition": metric.definition,
    }
    if not values or not base_values:
        return made
    one, two = statistics.fmean(base_values), statistics.fmean(values)
    p, says = compare(base_values, values)
    change = None if metric.unit is Unit.PCT else two - one
    return made | {"change": change, "p_value": p, "significance": says} | difference(metric, one, two)


def difference(metric: Metric, base: float | None, value: float | None) -> dict[str, float | None]:
    """Percent of the base, or points of a percentage; absent where a value is, or where percent are of 0."""
    if base is None or value is None:
        return {"change_pct": None, "change_pct_points": None}
    is_share = metric.unit is Unit.PCT
    return {
        "change_pct": 100 * (value - base) / base if base and not is_share else None,
        "change_pct_points": value - base if is_share else None,
    }


def _of(analysis: str, column: str) -> Read:
    """A column of a Result by rank: of a row for each step the sum over the compared ones."""
    # A figure of a column that no Result has would be absent without a word.
    assert column in ANALYSES[analysis].result.columns, f"{analysis} has no column {column}"

    def read(capture: Capture) -> pd.Series | None:
        frame = capture.table(analysis)
        if frame is None or column not in frame:
            return None
        own = capture.of_steps(frame)
        return own.groupby("rank")[column].sum(min_count=1) if len(own) else None

    return read


def _if_matched(read: Read) -> Read:
    """A part of communication: not known where no call is matched with other ranks', for these have no trace."""
    parts = [_of("exposed_comm", part.column) for part in COMM_PARTS]

    def read_known(capture: Capture) -> pd.Series | None:
        *known, unmatched = (0 if own is None else int(own.sum()) for own in (part(capture) for part in parts))
        return None if unmatched and not any(known) else read(capture)

    return read_known


def _comm(column: str) -> Read:
    """A sum over the rank's rows of communication; 0 for ranks without any."""

    def read(capture: Capture) -> pd.Series | None:
        frame, ranks = capture.tables.get("nccl"), capture.table("breakdown")
        if frame is None or ranks is None or not capture.is_exact:
            return None
        if frame.empty:
            return pd.Series(0, index=ranks["rank"].to_numpy())
        return known_sums(frame.groupby("rank"), [column])[column].reindex(ranks["rank"].to_numpy(), fill_value=0)

    return read


def _of_run(read: Callable[[Capture], float | None]) -> Read:
    """A figure of the whole run."""

    def read_run(capture: Capture) -> pd.Series | None:
        known = read(capture)
        return None if known is None else pd.Series({WHOLE_RUN: known})

    return read_run


def _peak_memory(column: str) -> Read:
    """Peak bytes of each rank: a `memory` Result, else run.json's counters."""

    def read(capture: Capture) -> pd.Series | None:
        of_trace = _of("memory", column)(capture)
        if of_trace is not None:
            return of_trace
        memory = enumerate(capture.known.memory or ())
        pairs = [(own.get("rank", place), own.get(column)) for place, own in memory if own is not None]
        known = {rank: value for rank, value in pairs if type(rank) is int and type(value) is int}
        return pd.Series(known, dtype="Int64") if known else None

    return read


def _stages(column: str) -> Read:
    """A column of the pipelines, their mean."""
    return _of_run(lambda capture: None if (own := capture.table("pipelines")) is None else own[column].mean())


def _memory_cv(capture: Capture) -> float | None:
    peaks = _peak_memory("peak_allocated_bytes")(capture)
    if peaks is None or len(peaks) < 2 or capture.table("pipelines") is None:
        return None
    return float(peaks.std(ddof=0) / peaks.mean())


def _block(column: str) -> Read:
    """A part of the repeated blocks, of runs that copy their blocks from the CPU or back."""
    copied = [_of("block_bounds", name) for name in ("upload_ns", "download_ns")]
    read = _of("block_bounds", column)

    def read_known(capture: Capture) -> pd.Series | None:
        times = [each(capture) for each in copied]
        return read(capture) if any(own is not None and own.fillna(0).any() for own in times) else None

    return read_known


def _hidden(traffic: str) -> Read:
    """Percent of the time of this traffic in which compute runs, too."""

    def read(capture: Capture) -> pd.Series | None:
        frame = capture.table("stream_pairs")
        if frame is None:
            return None
        own = frame[(frame["first"] == "compute") & (frame["second"] == traffic)]
        own = own.set_index("rank")
        return 100 * own["both_ns"] / own["second_ns"] if len(own) else None

    return read


def _headline(name: str, column: str = "", definition: str = "", **more: Any) -> Metric:
    """A column of the headline, called as it is."""
    known = ANALYSES["headline"].result.columns[column or name]
    read = _of("headline", column or name)
    return Metric(name, definition or known.definition, read, source="headline", **more)


def _part(name: str, part: Part, analysis: str) -> Metric:
    """A part of a step's time, of a Result with a row for each step."""
    read = _of(analysis, part.column)
    if part in COMM_PARTS and part is not UNMATCHED:
        read = _if_matched(read)
    return Metric(name, f"{first_upper(part.label)}. {part.definition}", read, source=analysis)


def _whole(source: str, name: str, definition: str, read: Read) -> Metric:
    """A figure that is not of a step."""
    return Metric(name, definition, read, per_step=False, source=source)


METRICS: tuple[Metric, ...] = (
    _headline("step_ns", "window_ns", "Length of a step's GPU window (of the capture, without steps)."),
    _headline(
        "step_std_ns",
        definition="Sample standard deviation of the steps' lengths inside a capture.",
        of_one_step=True,
    ),
    _headline("compute_ns"),
    *(_part(part.column, part, "exposed_comm") for part in COMM_PARTS),
    *map(_headline, ("exposed_comm_ns", "exposed_copy_ns", "opaque_ns", "idle_ns")),
    *(_part(f"idle_{cause.column}", cause.part, "idle") for cause in IDLE_CAUSES),
    *(
        _headline(name, per_step=False)
        for name in ("compute_pct", "exposed_comm_pct", "exposed_copy_pct", "idle_pct", "overlap_pct")
    ),
    _headline("comm_ns"),
    Metric("comm_calls", "Communication operations on the GPU.", _comm("calls"), source="nccl"),
    Metric("comm_bytes", "Sum of their sizes; n/a when one is unknown.", _comm("size_bytes"), source="nccl"),
    Metric(
        "unprofiled_step_ns",
        "Step time without a profiler, as the run recorded it.",
        _of_run(lambda capture: None if (own := capture.known.unprofiled) is None else own.mean),
        of_one_step=True,
    ),
    _whole(
        "",
        "tokens_per_s",
        "Tokens a second of the job, as the run recorded it.",
        _of_run(lambda capture: capture.known.tokens_per_s),
    ),
    *(
        _whole("memory", f"peak_{name}_bytes", f"Peak of {name} memory.", _peak_memory(f"peak_{name}_bytes"))
        for name in ("allocated", "reserved")
    ),
    *(
        _whole("pipelines", name, definition, read)
        for name, definition, read in (
            ("bubble_pct", "Pipeline bubble: share of the stages' time.", _stages("bubble_pct")),
            ("expected_bubble_pct", "Expected of the schedule, not measured.", _stages("expected_bubble_pct")),
            ("stage_cv", "Stages' compute: standard deviation / mean.", _stages("compute_cv")),
            ("memory_cv", "Ranks' peak allocated memory: standard deviation / mean.", _of_run(_memory_cv)),
        )
    ),
    *(
        _whole("", f"block_{part}_ns", f"Median {part} of a repeated block.", _block(f"{part}_ns"))
        for part in ("pitch", "compute", "upload", "download")
    ),
    *(
        _whole(
            "stream_pairs",
            f"{way}_hidden_pct",
            f"Share of the {way} time in which compute runs, too.",
            _hidden(way),
        )
        for way in ("upload", "download", "exchange")
    ),
)
"""In the order in which they are shown."""

BY_NAME = {metric.name: metric for metric in METRICS}
