"""CUDA API calls, synchronizing calls and what they cost, NVTX ranges projected on the GPU."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, percent
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host import host_names, idle
from traceanalyzer.analyses.host.activity import names_around_launches, user_ranges
from traceanalyzer.analyses.host.idle import Gaps, one_off_calls, step_of_time
from traceanalyzer.analyses.spread import columns_of, counted_calls, spread, with_mean
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.analyses.trace import launch_moments, reduced
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, lengths_of, picked, sorted_by, table_of, whole_of

# Which CUDA API calls each rank's host made, how often and how long they took.


class CudaApi(Result):
    """One row for each rank and function, longest total first within a rank.

    The columns mean what those of `nsys stats --report cuda_api_sum` mean.
    """

    title = "CUDA API calls"
    keys = ("rank", "name")
    columns = {
        "rank": RANK,
        "name": Column.text("Function, without the CUDA version that nsys adds (`_v7000`).", written=Written.KERNEL),
        "share_pct": Column.share("100 · total / sum of the durations of all API calls of the rank."),
        "calls": Column.count("Calls of the function.", is_aside=True),
        **columns_of("ns", "the calls' durations on the host"),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        whole = table.groupby("rank")["total_ns"].transform("sum")
        return with_mean(table, "ns").assign(share_pct=percent(table["total_ns"], whole))


def cuda_api_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted API calls by name; with several GPUs in one process they are of all of them."""
    counted = counted_calls(trace)
    if not counted.any():
        return pd.DataFrame()
    names = {"name": trace.api_calls["name"].array[counted]}
    return sorted_by(table_of(spread(lengths_of(trace.api_calls)[counted], names, "ns")), "total_ns")


# Which synchronising calls make the GPU run dry, and what each one costs.


class SyncCalls(Result):
    """One row for each rank, step, synchronising call, operator and range around it; costliest first within a rank."""

    title = "Blocking calls"
    keys = ("rank", "step", "name", "operator", "range")
    columns = {
        "rank": RANK,
        "step": Column.ident("Step in whose GPU window the calls return; absent for none."),
        "name": Column.text("The call: cudaStreamSynchronize, …, or a copy that blocks.", written=Written.KERNEL),
        "operator": Column.text("The innermost operator around it; absent outside operators."),
        "range": Column.text("The user's innermost range around it.", written=Written.KERNEL),
        "calls": Column.count("How often.", is_aside=True),
        "host_ns": Column.time("Time that the host was blocked."),
        "idle_in_call_ns": Column.time("GPU idle time inside the calls."),
        "idle_after_ns": Column.time(
            "Rest of the gaps that were open when the calls returned: the GPU waited for what the host did then. "
            "It is no part of the calls' cost."
        ),
        "cost_ns": Column.time("What the calls are charged with: the idle time in them."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(cost_ns=table["idle_in_call_ns"])


def sync_calls_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's blocking calls that return inside its window, grouped.

    A gap counts with the last call that returned in it, until the operation that ends the gap starts.
    """
    rows, since = idle.blocking(trace)
    ends = array_of(trace.api_calls, "end_ns")[rows]
    # One that returns when the window ends is in it; `first_calls` has those that block so long but once.
    inside = trace.window.holds(ends - 1) & ~np.isin(rows, one_off_calls(trace))
    rows, since, ends = rows[inside], since[inside], ends[inside]
    if not len(rows):
        return pd.DataFrame()
    gaps = idle.find(trace)
    table = table_of(
        {
            "step": step_of_time(trace, ends),
            "name": trace.api_calls["name"].array.take(rows).astype("object"),
            "operator": names_around_launches(trace.host_ops, trace, rows),
            "range": names_around_launches(user_ranges(trace), trace, rows),
            "host_ns": ends - since,
            "idle_in_call_ns": _idle_within(gaps, since, ends),
            "idle_after_ns": _idle_after(gaps, ends),
        }
    )
    groups = Groups.of(table, ["step", "name", "operator", "range"], with_absent=True)
    sums = {name: groups.sums(array_of(table, name)) for name in ("host_ns", "idle_in_call_ns", "idle_after_ns")}
    order = np.lexsort((-sums["host_ns"], -sums["idle_in_call_ns"]))
    return picked(groups.table(**sums, calls=groups.counts()), order)


def _idle_within(gaps: Gaps, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    return Intervals(gaps.starts, gaps.ends).covered_ns(starts, ends)


def _idle_after(gaps: Gaps, ends: np.ndarray) -> np.ndarray:
    """From each call's return to the end of the gap that is open then; once a gap, for its last call."""
    if not len(gaps):
        return np.zeros(len(ends), dtype=np.int64)
    at = np.searchsorted(gaps.starts, ends, side="right") - 1
    is_open = (at >= 0) & (ends < gaps.ends[at])
    latest = pd.Series(np.where(is_open, ends, -1)).groupby(np.where(is_open, at, -1)).transform("max").to_numpy()
    return np.where(is_open & (ends == latest), gaps.ends[at] - ends, 0)


# Where each range on the host lies on the GPU: from the first start to the last end of what it launched.


class NvtxProjection(Result):
    """One row for each rank, domain and name of a range, longest total projection first within a rank."""

    title = "Ranges on the GPU"
    keys = ("rank", "domain", "name")
    columns = {
        "rank": RANK,
        "domain": Column.text("NVTX domain; absent for the default one and for PyTorch's record_function."),
        "name": Column.text("Name of the range.", written=Written.KERNEL),
        "ranges": Column.count("Ranges of that name.", is_compared=False),
        "calls": Column.count(
            "Those that launched a GPU operation which the capture has; the other columns count these only.",
            is_aside=True,
        ),
        "operations": Column.count("GPU operations launched inside them; inside nested ranges they count in each."),
        "host_ns": Column.time("Sum of the ranges' durations on the host."),
        **columns_of("ns", "the projections, each from the first start to the last end of its operations"),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return with_mean(table, "ns")


def nvtx_projection_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Project the ranges that launched a counted GPU operation.

    An operation belongs to a range when the call that launched it began inside the range on its thread, or on a
    thread of autograd's engine, which works for the thread that waits in backward.
    """
    ranges = trace.ranges
    launched = _launched(trace)
    if ranges.empty or launched.empty:
        return pd.DataFrame()
    found = {name: np.zeros(len(ranges), dtype=np.int64) for name in ("operations", "first_ns", "last_ns")}
    engine = _engine_threads(trace)
    starts, ends, threads = (array_of(ranges, name) for name in ("start_ns", "end_ns", "thread"))
    for thread in np.unique(threads):
        rows = np.flatnonzero(threads == thread)
        lane = picked(launched, np.isin(array_of(launched, "thread"), [thread, *engine]))
        for name, values in _projections(starts[rows], ends[rows], lane).items():
            found[name][rows] = values
    return _by_name(trace, **found)


def _launched(trace: RankTrace) -> pd.DataFrame:
    """Counted GPU operations with the time and thread of their launch, in its order."""
    rows = np.flatnonzero(trace.counted & (array_of(trace.gpu_ops, "launch") != NONE))
    moments, threads = launch_moments(trace, rows)
    order = np.argsort(moments, kind="stable")
    times = {name: array_of(trace.gpu_ops, name)[rows[order]] for name in ("start_ns", "end_ns")}
    return table_of({"launch_ns": moments[order], "thread": threads[order], **times})


def _engine_threads(trace: RankTrace) -> set[int]:
    """Threads on which autograd runs operators and no forward operator runs."""
    threads = array_of(trace.host_ops, "thread")
    is_autograd = whole_of(trace.host_ops, "forward_thread", 0) != 0
    has_sequence = trace.host_ops["sequence"].notna().to_numpy()
    return set(np.setdiff1d(threads[is_autograd], threads[~is_autograd & has_sequence]).tolist())


def _projections(starts: np.ndarray, ends: np.ndarray, lane: pd.DataFrame) -> dict[str, np.ndarray]:
    """First start, last end and number of the operations launched in each range."""
    launch = array_of(lane, "launch_ns")
    low, high = (np.searchsorted(launch, times, side="left") for times in (starts, ends))
    return {
        "operations": high - low,
        "first_ns": reduced(np.minimum, array_of(lane, "start_ns"), low, high),
        "last_ns": reduced(np.maximum, array_of(lane, "end_ns"), low, high),
    }


def _by_name(trace: RankTrace, operations: np.ndarray, first_ns: np.ndarray, last_ns: np.ndarray) -> pd.DataFrame:
    held = operations > 0
    if not held.any():
        return pd.DataFrame()
    texts = {name: trace.ranges[name].array for name in ("domain", "name")}
    columns = {name: own.reorder_categories(sorted(own.categories)) for name, own in texts.items()}
    groups = Groups.of(columns, ["domain", "name"], with_absent=True)
    lengths = spread((last_ns - first_ns)[held], {"group": groups.of_row[held]}, "ns")
    group = lengths.pop("group")
    host_ns = groups.sums(lengths_of(trace.ranges))
    sums = {"operations": groups.sums(operations), "host_ns": host_ns, "ranges": groups.counts()}
    names = {name: values[group].astype(object) for name, values in groups.keys.items()}
    return sorted_by(table_of({**names, **lengths, **{name: own[group] for name, own in sums.items()}}), "total_ns")


# What a GPU idles for calls that take long only when they are first made.


class FirstCalls(Result):
    """One row for each rank, step, and function whose first calls take far longer than later ones; costliest first."""

    title = "First calls"
    keys = ("rank", "step", "name", "operator")
    is_of_one_run = True
    columns = {
        "rank": RANK,
        "step": Column.ident("Step in whose GPU window the calls return; absent for none."),
        "name": Column.text("The function: cudaLaunchKernel, hipMemcpyWithStream.", written=Written.KERNEL),
        "operator": Column.text("The innermost operator around it; absent outside operators."),
        "calls": Column.count("Calls, each the first with its kernel or copy.", is_aside=True),
        "loads": Column.flag("They launch kernels or load modules: first calls do so for kernels that they lack."),
        "host_ns": Column.time("Time of the host in them."),
        "idle_ns": Column.time("GPU idle time in them.", leads=True),
        "since_ns": Column.time("From the rank's first event to the first of them.", adds=Adds.EXTREME),
    }


def first_calls_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's first calls in its window, by step, function and operator."""
    rows = one_off_calls(trace)
    rows = rows[trace.window.holds(array_of(trace.api_calls, "end_ns")[rows] - 1)]
    if not len(rows):
        return pd.DataFrame()
    calls, gaps = picked(trace.api_calls, rows), idle.find(trace)
    starts, ends = array_of(calls, "start_ns"), array_of(calls, "end_ns")
    every = (trace.api_calls, trace.host_ops, trace.gpu_ops)
    first = min(int(array_of(own, "start_ns").min()) for own in every if len(own))
    names = calls["name"].array.astype("object")
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
