"""What a difference of step times is made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.diff import Comparison, Side, metrics
from traceanalyzer.diff.captures import Capture
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    COMPUTE,
    COPY,
    IDLE,
    IDLE_PARTS,
    OPAQUE,
    PARTS,
    TRANSFER,
    WAIT,
    Part,
)

SPLIT = tuple(part.column for part in COMM_PARTS)

_LOOKS = {part.column: part for part in (*PARTS, *COMM_PARTS)}


def side_of(comparison: Comparison, run: str) -> Side:
    """The run of that label."""
    return next(side for side in comparison.sides if side.label == run)


def values_of(comparison: Comparison, metric: str, run: str) -> list[Any]:
    """A figure's value in the base and in the run; `None` where it is not known."""
    return [metrics.value(comparison.metrics, metric, one) for one in (comparison.base.label, run)]


# Of the rank for which others wait.


def awaited_ranks(comparison: Comparison, base: Side, other: Side) -> tuple[tuple[int, pd.Series], ...] | None:
    """The rank for which others wait in each run, with its parts in ns; where there is none in one, the other's.

    `None` where waits are unknown, or where ranks' waits differ by less than 3% of a step in both runs.
    """
    tables = [_parts_by_rank(side.first) for side in (base, other)]
    if any(table is None or WAIT.label not in table or len(table) < 2 for table in tables):
        return None
    scale = comparison.fairness.scale
    held = [
        table / scale.divisor(side.first)
        for table, side in zip(tables, (base, other), strict=True)
        if table is not None
    ]
    ranks = [_awaited(table) for table in held]
    first, second = ranks[0] if ranks[0] is not None else ranks[1], ranks[1] if ranks[1] is not None else ranks[0]
    if first is None or second is None or first not in held[0].index or second not in held[1].index:
        return None
    return (first, held[0].loc[first]), (second, held[1].loc[second])


def _awaited(parts: pd.DataFrame) -> int | None:
    waits, window = parts[WAIT.label], parts.sum(axis=1).max()
    return int(waits.idxmin()) if waits.max() - waits.min() > PERCENT / 100 * window else None


def _parts_by_rank(capture: Capture) -> pd.DataFrame | None:
    """Each rank's window by part in ns, under the parts' labels; wait and causes of idle time where they are known."""
    breakdown = capture.table("breakdown")
    if breakdown is None or not capture.is_exact:
        return None
    parts = _columns(_by_rank(breakdown), (COMPUTE, COPY, OPAQUE))
    for table, split, whole in (("exposed_comm", COMM_PARTS, COMM), ("idle", IDLE_PARTS, IDLE)):
        frame = capture.table(table)
        own = None if frame is None else _columns(_by_rank(frame), split)
        is_split = own is not None and len(own.columns) == len(split) and own.notna().to_numpy().all()
        parts = parts.join(own if is_split and own is not None else _columns(_by_rank(breakdown), (whole,)))
    return parts.astype("float64").fillna(0.0)


def _by_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each rank: of tables that have steps too, that of the whole window."""
    return (frame[frame["step"].isna()] if "step" in frame else frame).set_index("rank")


def _columns(frame: pd.DataFrame, parts: tuple[Part, ...]) -> pd.DataFrame:
    own = {part.column: part.label for part in parts if part.column in frame}
    return frame[list(own)].rename(columns=own)


# Of the means over ranks: from the base's step time to another run's, what each part adds or takes away.


@dataclass(frozen=True, slots=True)
class WaterfallPart:
    """One part of a step in two runs, mean over ranks."""

    metric: str
    label: str
    kind: str
    base_ns: float
    other_ns: float

    @property
    def change_ns(self) -> float:
        """Other − base."""
        return self.other_ns - self.base_ns


def parts(comparison: Comparison, run: str) -> list[WaterfallPart]:
    """The parts of the base's and the run's step; their changes add up to the step's change.

    Exposed communication is split into transfer and wait only where both runs have them. Empty when the parts of a
    run are unknown.
    """
    names = [metric.name for metric in metrics.METRICS if metric.part]
    found = {}
    for name in names:
        base, other = values_of(comparison, name, run)
        if base is not None and other is not None:
            found[name] = WaterfallPart(name, _LOOKS[name].label, _LOOKS[name].kind, float(base), float(other))
    steps = values_of(comparison, "step_ns", run)
    wholes = (SPLIT,) if _one_splits_none(found) else ((COMM.column,), SPLIT)
    for left_out in wholes:
        chosen = [part for name, part in found.items() if name not in left_out]
        sums = (sum(part.base_ns for part in chosen), sum(part.other_ns for part in chosen))
        # Means over ranks of whole nanoseconds: less than one nanosecond of rounding.
        if None not in steps and all(abs(one - two) < 1 for one, two in zip(sums, steps, strict=True)):
            return [part for part in chosen if part.base_ns or part.other_ns]
    return []


def _one_splits_none(found: Mapping[str, WaterfallPart]) -> bool:
    """Whether all exposed communication of one run is neither transfer nor wait, and the other's is."""
    split = [found[one.column] for one in (TRANSFER, WAIT) if one.column in found]
    whole = found.get(COMM.column)
    if whole is None or not split:
        return False
    tells = [sum(getattr(part, side) for part in split) > 0 for side in _SIDES]
    has = [getattr(whole, side) > 0 for side in _SIDES]
    return all(has) and tells[0] != tells[1]


_SIDES = ("base_ns", "other_ns")
