"""How much memory each step needs at most, and whether it leaves more than it found."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack, typed
from traceanalyzer.analyses.memory.levels import RESERVED, moments, step_of
from traceanalyzer.analyses.names import MemoryStepsColumn
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, table_of

_SIZES = ("start_bytes", "peak_allocated_bytes", "end_bytes", "peak_reserved_bytes")


class MemorySteps(Result[MemoryStepsColumn]):
    """One row for each rank and step in which its allocator was at work."""

    title: ClassVar[str] = "Memory by step"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Number in the step's name, else its position."),
        "events": Column.count("Allocations and releases while the host was in the step.", is_compared=False),
        "start_bytes": Column.size(
            "What tensors held when the host began the step; absent when no event before it tells.", adds=Adds.EXTREME
        ),
        "peak_allocated_bytes": Column.size("The most that tensors held in it.", adds=Adds.EXTREME, better=Better.LESS),
        "end_bytes": Column.size("What tensors held after its last event.", adds=Adds.EXTREME),
        "growth_bytes": Column.size("end − start: what the step left behind.", adds=Adds.DERIVED),
        "peak_reserved_bytes": Column.size(
            "The most that the caching allocator had taken from the GPU in it.", adds=Adds.EXTREME, better=Better.LESS
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"growth_bytes": table["end_bytes"] - table["start_bytes"]})


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Levels by the step that the host was in: its range's start to the next one's."""
    held = moments(trace)
    row = step_of(trace, array_of(held, "time_ns"))
    if held.empty or (row < 0).all():
        return pd.DataFrame()
    inside = held[row >= 0].assign(row=row[row >= 0])
    grouped = inside.groupby("row")["level_bytes"]
    table = table_of({"events": grouped.size(), "peak_allocated_bytes": grouped.max(), "end_bytes": grouped.last()})
    before = np.searchsorted(array_of(held, "time_ns"), array_of(trace.steps, "host_start_ns")[table.index]) - 1
    start = pd.array(array_of(held, "level_bytes")[before], dtype="Int64")
    start[before < 0] = pd.NA
    taken = moments(trace, RESERVED)
    of_step = step_of(trace, array_of(taken, "time_ns"))
    reserved = taken["level_bytes"].groupby(of_step).max().reindex(table.index)
    table = table.assign(
        start_bytes=start, peak_reserved_bytes=reserved, step=array_of(trace.steps, "step")[table.index]
    ).reset_index(drop=True)
    table["peak_allocated_bytes"] = table["peak_allocated_bytes"].where(
        table["start_bytes"].isna() | (table["peak_allocated_bytes"] > table["start_bytes"]), table["start_bytes"]
    )
    return typed(table, {"step": "Int64", **dict.fromkeys(_SIZES, "Int64")})


def across(parts: Mapping[int, pd.DataFrame]) -> MemorySteps:
    """The ranks' steps under each other."""
    return MemorySteps(stack(parts, tuple(column for column in MemorySteps.columns if column != "growth_bytes")))
