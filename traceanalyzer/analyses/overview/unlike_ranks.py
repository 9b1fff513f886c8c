"""Ranks whose time is split unlike the median rank's, and those that differ by about as much as each other."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, typed
from traceanalyzer.analyses.names import UnlikeRanksColumn
from traceanalyzer.analyses.overview.time_parts import TimeParts, leaves
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model.tables import without_rows

_ALIKE = 0.2
"""A rank that differs by this part less than the next one before it is not of its set."""


_FEWEST = 3
"""Of two ranks both are as far from their median."""


class UnlikeRanks(Result[UnlikeRanksColumn]):
    """One row for each rank and part whose share of its window is far from the median rank's, the farthest first."""

    title: ClassVar[str] = "Ranks unlike the others"
    keys: ClassVar[tuple[str, ...]] = ("rank", "part")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "part": Column.text("A part of its time: a column of `time_parts`.", written=Written.FIGURE),
        "time_ns": Column.time("Its time in a mean step, or the capture.", adds=Adds.DERIVED),
        "median_ns": Column.time("The same, of the median rank.", adds=Adds.DERIVED),
        "away_ns": Column.time("How far the one is from the other.", adds=Adds.DERIVED),
        "alike_ranks": Column.text("The ranks, itself among them, that differ by about as much, the same way."),
        "alike_ns": Column.time("Their median time.", adds=Adds.DERIVED),
        "alike_away_ns": Column.time("How far that is from the median rank's.", adds=Adds.DERIVED),
    }


def across(
    _parts: Mapping[int, pd.DataFrame],
    time_parts: TimeParts,
    unlike_points: float = 2.0,
    unlike_deviations: float = 5.0,
) -> UnlikeRanks:
    """Ranks more than so many median deviations, and percentage points, from a part's median share."""
    if len(time_parts) < _FEWEST:
        return UnlikeRanks(without_rows(UnlikeRanks.columns))
    rows = _far(time_parts.table.set_index("rank"), unlike_points, unlike_deviations)
    table = pd.DataFrame(rows, columns=["rank", "part", "time_ns", "median_ns"])
    table = table.assign(away_ns=(table["time_ns"] - table["median_ns"]).abs())
    table = table.sort_values("away_ns", ascending=False, kind="stable", ignore_index=True)
    return UnlikeRanks(typed(_with_sets(table), _DTYPES))


_DTYPES = {
    "rank": "int64", "part": "str", "alike_ranks": "str",
    **dict.fromkeys(("time_ns", "median_ns", "away_ns", "alike_ns", "alike_away_ns"), "float64"),
}  # fmt: skip


def _far(table: pd.DataFrame, points: float, deviations: float) -> list[tuple[int, str, float, float]]:
    found = []
    for part in leaves(table):
        share, times = table[part.share].astype("float64"), table[part.column].astype("float64")
        away = (share - share.median()).abs()
        limit = max(points, deviations * float(away.median()))
        middle = float(times.median())
        found += [(int(rank), part.column, float(times[rank]), middle) for rank in share.index[away > limit]]
    return found


def _with_sets(table: pd.DataFrame) -> pd.DataFrame:
    """Rows in order of distance: each begins a set, or is of the last one of its part that differs the same way."""
    last: dict[tuple[str, bool], tuple[int, float]] = {}
    sets = []
    for place, (part, time, median, away) in enumerate(
        table[["part", "time_ns", "median_ns", "away_ns"]].itertuples(index=False)
    ):
        key = (part, time > median)
        number, before = last.get(key, (place, away))
        last[key] = (number if away >= (1 - _ALIKE) * before else place, away)
        sets.append(last[key][0])
    groups = table.groupby(np.array(sets, dtype="int64"))  # of a list of one thing pandas makes other keys
    ranks = {number: ",".join(map(str, sorted(own["rank"]))) for number, own in groups}
    alike_ns = groups["time_ns"].transform("median")
    away = (alike_ns - table["median_ns"]).abs()
    return table.assign(alike_ranks=[ranks[number] for number in sets], alike_ns=alike_ns, alike_away_ns=away)
