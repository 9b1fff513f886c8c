"""What a difference of step times is made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.analyses.overview import divided
from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.diff import Comparison, Side, metrics
from traceanalyzer.diff.captures import Capture
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    IDLE,
    IDLE_PARTS,
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


# Of each rank: a step by parts.


def rank_parts(capture: Capture) -> pd.DataFrame | None:
    """Ranks × columns of parts, in ns of the compared steps; wait and causes of idle time where they add up.

    `None` where a part of a rank is unknown.
    """
    headline: pd.DataFrame | None = capture.table("headline")
    columns = [part.column for part in PARTS]
    if headline is None or headline[columns].isna().any(axis=None):
        return None
    table = headline[["rank", *columns]]
    for analysis, whole, split in (("exposed_comm", COMM, COMM_PARTS), ("idle", IDLE, IDLE_PARTS)):
        table = _divided(table, capture, analysis, whole, split)
    return table.set_index("rank").astype("float64")


def _divided(
    table: pd.DataFrame, capture: Capture, analysis: str, whole: Part, parts: tuple[Part, ...]
) -> pd.DataFrame:
    """The table with a part in its own parts, where these are of the same steps and add up to it."""
    found, columns = capture.tables.get(analysis), [part.column for part in parts]
    if found is None or not {"rank", "step", *columns} <= set(found):
        return table
    for rows in (found[found["step"].isna()], found[found["step"].isin(capture.steps)]):
        made = divided(table, rows, whole, parts, ["rank"])
        if made[columns].notna().all(axis=None):
            return made.drop(columns=whole.column)
    return table


# Of the rank for which others wait.


def awaited_ranks(comparison: Comparison, base: Side, other: Side) -> tuple[tuple[int, pd.Series], ...] | None:
    """The rank for which others wait in each run, with its parts in ns; where there is none in one, the other's.

    `None` where waits are unknown, or where ranks' waits differ by less than 3% of a step in both runs.
    """
    scale, tables = comparison.fairness.scale, []
    for side in (base, other):
        table = rank_parts(side.first)
        if table is None or WAIT.column not in table or len(table) < 2:
            return None
        tables.append(table.rename(columns=_NAMES) / scale.divisor(side.first))
    ranks = [_awaited(table) for table in tables]
    known = [rank for rank in ranks if rank is not None]
    if not known:
        return None
    first, second = ranks[0] if ranks[0] is not None else known[0], ranks[1] if ranks[1] is not None else known[0]
    if first not in tables[0].index or second not in tables[1].index:
        return None
    return (first, tables[0].loc[first]), (second, tables[1].loc[second])


_NAMES = {part.column: part.label for part in (*PARTS, *COMM_PARTS, *IDLE_PARTS)}


def _awaited(parts: pd.DataFrame) -> int | None:
    waits, window = parts[WAIT.label], parts.sum(axis=1).max()
    return int(waits.idxmin()) if waits.max() - waits.min() > PERCENT / 100 * window else None


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
