"""Calls by which the caching allocator takes memory from the GPU and gives it back, by step, with the host's time."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack, typed
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.host_time import looked_at
from traceanalyzer.analyses.memory.levels import step_of
from traceanalyzer.analyses.names import MemoryCallsColumn
from traceanalyzer.analyses.time.intervals import new_ns
from traceanalyzer.analyses.time.steps import complete_steps
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of
from traceanalyzer.model.tables import array_of, rows_where, table_of


class MemoryCalls(Result[MemoryCallsColumn]):
    """One row for each rank, step and function; `step` is absent for calls outside any."""

    title: ClassVar[str] = "Calls for GPU memory"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step", "name")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step that the host was in; absent outside any."),
        "name": Column.text("Function.", written=Written.KERNEL),
        "calls": Column.count("Its calls."),
        "host_ns": Column.time(
            "Time of the host in them, once where threads are in several; cudaFree waits for the GPU too.", leads=True
        ),
        "longest_ns": Column.time("The longest of them.", adds=Adds.EXTREME),
        "is_complete": Column.flag("The step counts in means."),
    }


def per_rank(trace: RankTrace, steps: pd.DataFrame) -> pd.DataFrame:
    """Group the calls of the whole capture, or of the chosen steps, by step and name."""
    names = trace.api_calls["name"]
    known = [name for name in names.cat.categories if host_names.is_memory_call(name)]
    calls = rows_where(trace.api_calls, names.isin(known))
    row = step_of(trace, array_of(calls, "start_ns"))
    numbers = np.append(array_of(trace.steps, "step"), -1)[row]
    if trace.window.steps is not None:
        held = np.isin(numbers, trace.window.steps)
        calls, numbers = calls[held], numbers[held]
    if calls.empty:
        return pd.DataFrame()
    complete = set(complete_steps(steps)["step"]) if len(steps) else set()
    starts, ends = looked_at(trace, array_of(calls, "start_ns"), array_of(calls, "end_ns"))
    called = calls["name"].astype("str").to_numpy()
    new = new_ns(starts, ends, numbers)
    table = table_of({"step": numbers, "name": called, "new": new, "length": lengths_of(calls)})
    by_name = table.groupby(["step", "name"])
    grouped = by_name.agg(calls=("new", "size"), host_ns=("new", "sum"), longest_ns=("length", "max")).reset_index()
    is_complete = grouped["step"].isin(complete)
    return typed(grouped.assign(step=grouped["step"].where(grouped["step"] >= 0), is_complete=is_complete),
                 {"step": "Int64"})  # fmt: skip


def across(parts: Mapping[int, pd.DataFrame]) -> MemoryCalls:
    """The ranks' rows under each other."""
    return MemoryCalls(stack(parts, tuple(MemoryCalls.columns)))
