"""When each rank's tensors held most, and what the host was doing then."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack, typed
from traceanalyzer.analyses.host.host_activity import names_around
from traceanalyzer.analyses.memory.levels import moments, step_of
from traceanalyzer.analyses.names import MemoryPeaksColumn
from traceanalyzer.analyses.phases.op_phases import NAMES, phases_of_moments
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, table_of

_MODULE = "nn.Module: "


class MemoryPeaks(Result[MemoryPeaksColumn]):
    """One row for each rank whose trace has the allocator's events."""

    title: ClassVar[str] = "Peak of memory"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "peak_allocated_bytes": Column.size(
            "The most that tensors held after any event of the capture.", adds=Adds.EXTREME, better=Better.LESS
        ),
        "peak_ns": Column.moment("The event after which they did, the first if several."),
        "step": Column.ident("Step that the host was in; absent outside any."),
        "phase": Column.text("Phase that the host was in."),
        "operator": Column.text("Innermost operator on the thread; absent outside any.", written=Written.KERNEL),
        "module": Column.text("Innermost nn.Module on the thread, where Python frames were recorded."),
    }


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The highest event of the capture, and what is around it on its thread."""
    held = moments(trace)
    if held.empty:
        return pd.DataFrame()
    top = held.iloc[[int(array_of(held, "level_bytes").argmax())]]
    thread, time = array_of(top, "thread"), array_of(top, "time_ns")
    row = int(step_of(trace, time)[0])
    is_module = trace.frames["name"].astype(str).str.startswith(_MODULE)
    module = names_around(trace.frames[is_module].reset_index(drop=True), thread, time)[0]
    table = table_of(
        {
            "peak_allocated_bytes": array_of(top, "level_bytes"),
            "peak_ns": time,
            "step": [trace.steps["step"].iloc[row] if row >= 0 else pd.NA],
            "phase": np.array(NAMES, dtype=object)[phases_of_moments(trace, thread, time)],
            "operator": names_around(trace.host_ops, thread, time),
            "module": [None if module is None else str(module).removeprefix(_MODULE)],
        }
    )
    texts = dict.fromkeys(("phase", "operator", "module"), "str")
    return typed(table, {"peak_allocated_bytes": "Int64", "step": "Int64", **texts})


def across(parts: Mapping[int, pd.DataFrame]) -> MemoryPeaks:
    """The ranks' rows under each other."""
    return MemoryPeaks(stack(parts, tuple(MemoryPeaks.columns)))
