"""The memory of each rank's GPU over time by category, thinned to what a picture shows."""

from collections.abc import Mapping
from typing import ClassVar, cast

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.memory.held import CATEGORIES, Held
from traceanalyzer.analyses.names import MemoryLevelsColumn
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, table_of

COLUMN = {name: cast("MemoryLevelsColumn", f"{name.replace(' ', '_')}_bytes") for name in CATEGORIES}
"""Category → column."""


class MemoryLevels(Result[MemoryLevelsColumn]):
    """One row for each rank and moment: of each of several hundred equal stretches its highest moment, and its last.

    What lies between is lower than the one or follows from the next; the categories add up to `allocated_bytes`.
    """

    title: ClassVar[str] = "Memory over time by category"
    is_detail: ClassVar[bool] = True
    is_of_one_run: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "time_ns")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "time_ns": Column.moment("Of the event."),
        "allocated_bytes": Column.size("What tensors held after it.", adds=Adds.EXTREME),
        **{
            column: Column.size(f"Of that {name}, as `memory_categories` has it.", adds=Adds.EXTREME)
            for name, column in COLUMN.items()
        },
        "is_peak": Column.flag("The rank's peak."),
    }


def per_rank(_trace: RankTrace, held: Held, memory_points: int = 600) -> pd.DataFrame:
    """At most `memory_points` stretches of the whole capture."""
    if held.events.empty:
        return pd.DataFrame()
    times, level = array_of(held.events, "time_ns"), array_of(held.events, "level_bytes")
    span = max(int(times[-1] - times[0]), 1)
    stretch = np.minimum((times - times[0]) * memory_points // span, memory_points - 1)
    by_stretch = pd.Series(level).groupby(stretch)
    kept = np.union1d(by_stretch.idxmax().to_numpy(), np.append(np.flatnonzero(np.diff(stretch)), len(level) - 1))
    table = table_of(
        {
            "time_ns": times[kept],
            "allocated_bytes": level[kept],
            **{COLUMN[name]: held.level_bytes[kept, place] for place, name in enumerate(CATEGORIES)},
            "is_peak": kept == int(level.argmax()),
        }
    )
    # Of events of one moment the last one speaks, but for the peak.
    table = table.iloc[np.lexsort((table["is_peak"], table["time_ns"]))]
    return table.drop_duplicates("time_ns", keep="last", ignore_index=True)


def across(parts: Mapping[int, pd.DataFrame]) -> MemoryLevels:
    """The ranks' rows under each other."""
    return MemoryLevels(stack(parts, tuple(MemoryLevels.columns)))
