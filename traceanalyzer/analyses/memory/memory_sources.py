"""Which operators allocate memory, in which phase, and how much of it stays."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.host.host_activity import names_around
from traceanalyzer.analyses.memory.levels import moments
from traceanalyzer.analyses.names import MemorySourcesColumn
from traceanalyzer.analyses.phases.op_phases import NAMES, phases_of_moments
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, sorted_by, table_of

UNKNOWN = "unknown"


class MemorySources(Result[MemorySourcesColumn]):
    """One row for each rank, phase and operator; what stays adds up to the change over the capture."""

    title: ClassVar[str] = "Memory by phase and operator"
    keys: ClassVar[tuple[str, ...]] = ("rank", "phase", "operator")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "phase": Column.text("Phase that the host was in; unattributed when neither ranges nor autograd tell."),
        "operator": Column.text(
            "Innermost operator on the thread at the event; unknown outside any, as when Python frees a tensor.",
            written=Written.KERNEL,
        ),
        "events": Column.count("Allocations and releases."),
        "allocated_bytes": Column.size("Sum of its allocations."),
        "freed_bytes": Column.size("Sum of its releases."),
        "stays_bytes": Column.size(
            "allocated − freed. Over all rows of a rank: the level after the last event less that after the first.",
            adds=Adds.DERIVED,
        ),
        "highest_bytes": Column.size("The highest level of the GPU after one of its events.", adds=Adds.EXTREME),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"stays_bytes": table["allocated_bytes"] - table["freed_bytes"]})


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Add up the changes of the level by phase and innermost operator, largest allocations first."""
    held = moments(trace)
    if held.empty:
        return pd.DataFrame()
    threads, times = array_of(held, "thread"), array_of(held, "time_ns")
    operators = names_around(trace.host_ops, threads, times)
    change = array_of(held, "change_bytes")
    table = table_of(
        {
            "phase": np.array(NAMES, dtype=object)[phases_of_moments(trace, threads, times)],
            "operator": np.where(pd.isna(operators), UNKNOWN, operators),
            "events": 1,
            "allocated_bytes": np.maximum(change, 0),
            "freed_bytes": np.maximum(-change, 0),
            "highest_bytes": array_of(held, "level_bytes"),
        }
    )
    sums = dict.fromkeys(("events", "allocated_bytes", "freed_bytes"), "sum")
    made = table.groupby(["phase", "operator"], as_index=False).agg({**sums, "highest_bytes": "max"})
    return sorted_by(made, "allocated_bytes")


def across(parts: Mapping[int, pd.DataFrame]) -> MemorySources:
    """The ranks' rows under each other."""
    return MemorySources(stack(parts, tuple(column for column in MemorySources.columns if column != "stays_bytes")))
