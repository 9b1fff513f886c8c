"""How much GPU memory each rank's allocator held while it was recorded, and the most that it did."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack, typed
from traceanalyzer.analyses.names import MemoryColumn
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column, Unit, unit_of
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import under_each_other

RECORDED = "run.json: whole run"

PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes")

_LEVELS = {"memory_allocated_bytes": "allocated_bytes", "memory_reserved_bytes": "reserved_bytes"}


class Memory(Result[MemoryColumn]):
    """One row for each rank whose trace has the allocator's events, or whose run.json has its peak."""

    title: ClassVar[str] = "Memory"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "source": Column.text(
            "Where the levels come from: the trace's `[memory]` events, one for each allocation and release; without "
            "them what run.json recorded of the whole run."
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
        "device_bytes": Column.size("Memory of the GPU; absent where the trace does not say.", adds=Adds.NONE),
        "headroom_bytes": Column.size(
            "Device − peak reserved: what was left beside the allocator, for it and for libraries.",
            adds=Adds.EXTREME,
            better=Better.MORE,
        ),
        "headroom_pct": Column.share("100 · headroom / device.", better=Better.MORE),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        headroom = table["device_bytes"] - table["peak_reserved_bytes"]
        return self._with(table, {"headroom_bytes": headroom, "headroom_pct": percent(headroom, table["device_bytes"])})


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
    return typed(pd.DataFrame([row]), {column: "Int64" for column in row if unit_of(column) is Unit.BYTES})


_STORED = ("rank", "source", "events", *_LEVELS.values(), *(f"peak_{name}" for name in _LEVELS.values()))


def across(
    parts: Mapping[int, pd.DataFrame], ranks: Ranks, run_memory: Mapping[int, Mapping[str, int]] | None = None
) -> Memory:
    """The ranks' rows under each other; `run_memory` is what the run itself recorded: rank → figure → bytes."""
    table = stack(parts, _STORED)
    recorded = [
        {"rank": rank, "source": RECORDED, **{name: own.get(name, pd.NA) for name in PEAKS}}
        for rank, own in sorted((run_memory or {}).items())
        if rank not in set(table["rank"]) and rank in set(ranks.table["rank"]) and own
    ]
    if recorded:
        more = pd.DataFrame(recorded).reindex(columns=list(_STORED))
        table = under_each_other([table, more]) if len(table) else more
        integers = dict.fromkeys([name for name in _STORED if name not in ("rank", "source")], "Int64")
        table = typed(table, {"rank": "int64", **integers}).sort_values("rank", ignore_index=True)
    known = ranks.table.set_index("rank")["device_bytes"]
    return Memory(table.assign(device_bytes=table["rank"].map(known).astype("Int64")))
