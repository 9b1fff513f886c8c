"""How much GPU memory each rank's allocator held while it was recorded, and the most that it did."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.columns import Adds, Better, Column
from traceanalyzer.model import RankTrace

_LEVELS = {"memory_allocated_bytes": "allocated_bytes", "memory_reserved_bytes": "reserved_bytes"}


class Memory(Result):
    """One row for each rank whose trace has the allocator's events; no rows otherwise."""

    title: ClassVar[str] = "Memory"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "source": Column.text(
            "Where the levels come from: the trace's `[memory]` events, one for each allocation and release."
        ),
        "events": Column.count("Events that tell a level on the rank's GPU.", is_compared=False),
        "allocated_bytes": Column.size("What tensors held after the last event of the capture.", adds=Adds.EXTREME),
        "peak_allocated_bytes": Column.size(
            "The most that tensors held after any event of the capture.", adds=Adds.EXTREME, better=Better.LESS
        ),
        "reserved_bytes": Column.size(
            "What PyTorch's caching allocator had taken from the GPU after the last event.", adds=Adds.EXTREME
        ),
        "peak_reserved_bytes": Column.size(
            "The most that it had taken after any event of the capture.", adds=Adds.EXTREME, better=Better.LESS
        ),
    }


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Last and highest level of both counters, over the whole capture: steps before it may have needed more."""
    counters = trace.counters
    told = counters[counters["name"].isin(_LEVELS) & counters["value"].notna()]
    if told.empty:
        return pd.DataFrame()
    levels = told.sort_values("time_ns", kind="stable").groupby("name", observed=True)["value"]
    row: dict[str, object] = {"source": "[memory] events", "events": int(levels.size().max())}
    for name, column in _LEVELS.items():
        known = name in levels.groups
        row[column] = int(levels.last()[name]) if known else pd.NA
        row[f"peak_{column}"] = int(levels.max()[name]) if known else pd.NA
    return pd.DataFrame([row]).astype({column: "Int64" for column in row if column.endswith("_bytes")})


def across(parts: Mapping[int, pd.DataFrame]) -> Memory:
    """The ranks' rows under each other."""
    return Memory(stack(parts, tuple(Memory.columns)))
