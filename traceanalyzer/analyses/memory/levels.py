"""The allocator's levels on a rank's GPU, moment by moment, as the trace's `[memory]` events tell them."""

import numpy as np
import pandas as pd

from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, column_of, table_of

ALLOCATED, RESERVED = "memory_allocated_bytes", "memory_reserved_bytes"


def moments(trace: RankTrace, name: str = ALLOCATED) -> pd.DataFrame:
    """One row for each event in order of time: `time_ns`, `thread`, `address`, `level_bytes`, `change_bytes`.

    The change is since the event before; `address` is that of the block that was given or taken back, NA where not
    told. The first event's change is 0: what was held before it is not told. So they add up to last less first.
    """
    counters = trace.counters
    told = counters[(counters["name"] == name) & counters["value"].notna()]
    level = told["value"].to_numpy(np.int64)
    return table_of(
        {
            "time_ns": array_of(told, "time_ns"),
            "thread": array_of(told, "thread"),
            "address": column_of(told, "address"),
            "level_bytes": level,
            "change_bytes": np.diff(level, prepend=level[:1]),
        }
    )


def step_of(trace: RankTrace, times: np.ndarray) -> np.ndarray:
    """Row in `trace.steps` of the step that the host was in, -1 for none: from its start to the next one's."""
    starts = trace.steps["host_start_ns"].to_numpy(np.int64)
    if not len(starts):
        return np.full(len(times), -1, dtype=np.int64)
    row = np.searchsorted(starts, times, side="right") - 1
    last_end = int(trace.steps["host_end_ns"].iloc[-1])
    return np.where((row == len(starts) - 1) & (times >= last_end), -1, row)
