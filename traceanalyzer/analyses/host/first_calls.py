"""What a GPU idles for calls that take long only when they are first made."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host import host_names, idle_causes
from traceanalyzer.analyses.host.gaps import step_of_time
from traceanalyzer.analyses.host.host_activity import names_around_launches
from traceanalyzer.analyses.host.one_off_calls import one_off_calls
from traceanalyzer.analyses.names import FirstCallsColumn
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of
from traceanalyzer.model.tables import array_of, column_of, picked, table_of


class FirstCalls(Result[FirstCallsColumn]):
    """One row for each rank, step, and function whose first calls take far longer than later ones; costliest first."""

    title: ClassVar[str] = "First calls"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step", "name", "operator")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step in whose GPU window the calls return; absent for none."),
        "name": Column.text("The function: cudaLaunchKernel, hipMemcpyWithStream.", written=Written.KERNEL),
        "operator": Column.text("The innermost operator around it; absent outside operators."),
        "calls": Column.count("Calls, each the first with its kernel or copy.", is_aside=True),
        "loads": Column.flag("They launch kernels or load modules: first calls do so for kernels that they lack."),
        "host_ns": Column.time("Time of the host in them."),
        "idle_ns": Column.time("GPU idle time in them.", leads=True),
        "since_ns": Column.time("From the rank's first event to the first of them.", adds=Adds.EXTREME),
    }


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's first calls in its window, by step, function and operator."""
    rows = one_off_calls(trace)
    rows = rows[trace.window.holds(array_of(trace.api_calls, "end_ns")[rows] - 1)]
    if not len(rows):
        return pd.DataFrame()
    calls, gaps = picked(trace.api_calls, rows), idle_causes.find(trace)
    starts, ends = array_of(calls, "start_ns"), array_of(calls, "end_ns")
    every = (trace.api_calls, trace.host_ops, trace.gpu_ops)
    first = min(int(array_of(own, "start_ns").min()) for own in every if len(own))
    names = column_of(calls, "name").astype("object")
    table = table_of(
        {
            "step": step_of_time(trace, ends),
            "name": names,
            "operator": names_around_launches(trace.host_ops, trace, rows),
        }
    )
    groups = Groups.of(table, ["step", "name", "operator"], with_absent=True)
    loads = np.array(["Launch" in name or host_names.is_module_load(name) for name in names], dtype=bool)
    idle_ns = groups.sums(Intervals(gaps.starts, gaps.ends).covered_ns(starts, ends))
    sums = {"calls": groups.counts(), "loads": groups.any(loads), "host_ns": groups.sums(lengths_of(calls))}
    found = groups.table(**sums, idle_ns=idle_ns, since_ns=groups.smallest(starts) - first)
    return picked(found, np.argsort(-idle_ns, kind="stable"))


def across(parts: Mapping[int, pd.DataFrame]) -> FirstCalls:
    """The ranks' rows under each other."""
    return FirstCalls(stack(parts, tuple(FirstCalls.columns)))
