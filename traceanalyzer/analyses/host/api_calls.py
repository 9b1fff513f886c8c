"""CUDA API calls, synchronizing calls and what they cost, NVTX ranges projected on the GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result
from traceanalyzer.analyses.grouping import Groups, extreme_at
from traceanalyzer.analyses.host import idle
from traceanalyzer.analyses.host.activity import names_around_launches, user_ranges
from traceanalyzer.analyses.host.idle import Gaps, one_off_calls, step_of_time
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.analyses.trace import launched_operations, projected
from traceanalyzer.meaning.columns import Adds, Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, lengths_of, picked, sorted_by, table_of, whole_of
from traceanalyzer.selection import step_at

# How times spread within each group of calls.


def spread_columns(what: str) -> Mapping[str, Column]:
    """Columns of `spread`, and the mean."""
    std = "Sample standard deviation (divides by calls − 1); absent for a single call."
    return {
        "total_ns": Column.time(f"Sum of {what}.", leads=True),
        "mean_ns": Column.time("Total / calls.", adds=Adds.DERIVED),
        "median_ns": Column.time(f"Median of {what}.", adds=Adds.DERIVED, is_secondary=True),
        "min_ns": Column.time("Smallest.", adds=Adds.EXTREME),
        "max_ns": Column.time("Largest.", adds=Adds.EXTREME),
        "std_ns": Column.time(std, adds=Adds.DERIVED, is_secondary=True),
    }


def spread(times_ns: np.ndarray, keys: Mapping[str, Any]) -> dict[str, Any]:
    """For each distinct row of keys: these, `calls`, and total, median, min, max and sample standard deviation."""
    groups = Groups.of(keys, with_absent=True)
    std = pd.Series(times_ns).groupby(groups.of_row).std().to_numpy()
    is_single = np.isnan(std)
    std_ns = pd.arrays.FloatingArray(np.where(is_single, 1.0, std), is_single)
    return {**groups.keys, **groups.spread(times_ns), "std_ns": std_ns}


# Which CUDA API calls each rank's host made, how often and how long they took.


class CudaApi(Result):
    """One row for each rank and function, longest total first within a rank.

    The columns mean what those of `nsys stats --report cuda_api_sum` mean.
    """

    title = "CUDA API calls"
    keys = ("rank", "name")
    derived = {"mean_ns": "total_ns / calls", "share_pct": "total_ns / rank"}
    columns = declared(
        rank=RANK,
        name="Function, without the CUDA version that nsys adds (`_v7000`).",
        share_pct="100 · total / sum of the durations of all API calls of the rank.",
        calls="Calls of the function.",
        **spread_columns("the calls' durations on the host"),
    )


def cuda_api_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's API calls by name: all, or those that begin in the selected steps on the host.

    With several GPUs in one process they are of all of them.
    """
    counted, starts = np.ones(len(trace.api_calls), dtype=bool), array_of(trace.api_calls, "start_ns")
    if trace.window.steps is not None:
        chosen = trace.steps[trace.steps["step"].isin(trace.window.steps)].sort_values("host_start_ns")
        counted = step_at(array_of(chosen, "host_start_ns"), array_of(chosen, "host_end_ns"), starts) != NONE
    if not counted.any():
        return pd.DataFrame()
    names = {"name": trace.api_calls["name"].array[counted]}
    return sorted_by(table_of(spread(lengths_of(trace.api_calls)[counted], names)), "total_ns")


# Which synchronising calls make the GPU run dry, and what each one costs.


class SyncCalls(Result):
    """One row for each rank, step, synchronising call, operator and range around it; costliest first within a rank."""

    title = "Blocking calls"
    keys = ("rank", "step", "name", "operator", "range")
    columns = declared(
        rank=RANK,
        step="Step in whose GPU window the calls return; absent for none.",
        name="The call: cudaStreamSynchronize, …, or a copy that blocks.",
        operator="The innermost operator around it; absent outside operators.",
        range="The user's innermost range around it.",
        calls="How often.",
        host_ns="Time that the host was blocked.",
        idle_in_call_ns="GPU idle time inside the calls.",
        idle_after_ns=(
            "Rest of the gaps that were open when the calls returned: the GPU waited for what the host did then. "
            "It is no part of the calls' cost, which is the time in them."
        ),
    )


def sync_calls_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's blocking calls that return inside its window, grouped.

    A gap counts with the last call that returned in it, until the operation that ends the gap starts.
    """
    rows, since = idle.blocking(trace)
    ends = array_of(trace.api_calls, "end_ns")[rows]
    # One that returns when the window ends is in it; `first_calls` has those that block so long but once.
    inside = trace.window.holds(ends - 1) & ~np.isin(rows, one_off_calls(trace))
    rows, since, ends = rows[inside], since[inside], ends[inside]
    gaps = idle.find(trace)
    idle_ns = Intervals(gaps.starts, gaps.ends).covered_ns(since, ends)
    by = {"idle_in_call_ns": idle_ns, "host_ns": ends - since}
    return _by_place(trace, rows, SyncCalls.keys, by, idle_after_ns=_idle_after(gaps, ends))


def _by_place(
    trace: RankTrace, rows: np.ndarray, keys: Sequence[str], by: Mapping[str, np.ndarray], **more: np.ndarray
) -> pd.DataFrame:
    """Figures of these API calls added up by where in the program they are, the most first by those of `by` in turn."""
    columns = {
        "step": step_of_time(trace, array_of(trace.api_calls, "end_ns")[rows]),
        "name": trace.api_calls["name"].array.take(rows).astype("object"),
        "operator": names_around_launches(trace.host_ops, trace, rows),
        "range": names_around_launches(user_ranges(trace), trace, rows),
    }
    groups = Groups.of(columns, [name for name in keys if name != "rank"], with_absent=True)
    sums = {name: groups.sums(values) for name, values in {**by, **more}.items()}
    order = np.lexsort([-sums[name] for name in reversed([*by])])
    return picked(groups.table(**sums, calls=groups.counts()), order)


def _idle_after(gaps: Gaps, ends: np.ndarray) -> np.ndarray:
    """From each call's return to the end of the gap that is open then; once a gap, for its last call."""
    at = step_at(gaps.starts, gaps.ends, ends)
    latest = extreme_at(np.maximum, at, ends, len(gaps) + 1)  # of calls outside gaps: at the end
    return np.where((at != NONE) & (ends == latest[at]), np.append(gaps.ends, 0)[at] - ends, 0)


# Where each range on the host lies on the GPU: from the first start to the last end of what it launched.


class NvtxProjection(Result):
    """One row for each rank, domain and name of a range, longest total projection first within a rank."""

    title = "Ranges on the GPU"
    keys = ("rank", "domain", "name")
    derived = {"mean_ns": "total_ns / calls"}
    columns = declared(
        rank=RANK,
        domain="NVTX domain; absent for the default one and for PyTorch's record_function.",
        name="Name of the range.",
        ranges=Column.count("Ranges of that name.", is_compared=False),
        calls="Those that launched a GPU operation which the capture has; the other columns count these only.",
        operations="GPU operations launched inside them; inside nested ranges they count in each.",
        host_ns="Sum of the ranges' durations on the host.",
        **spread_columns("the projections, each from the first start to the last end of its operations"),
    )


def nvtx_projection_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Project the ranges that launched a counted GPU operation.

    An operation belongs to a range when the call that launched it began inside the range on its thread, or on a
    thread of autograd's engine, which works for the thread that waits in backward.
    """
    ranges = trace.ranges
    launched = launched_operations(trace)
    if ranges.empty or launched.empty:
        return pd.DataFrame()
    found = {name: np.zeros(len(ranges), dtype=np.int64) for name in ("operations", "start_ns", "end_ns")}
    engine, threads = _engine_threads(trace), array_of(ranges, "thread")
    for thread in np.unique(threads):
        rows = np.flatnonzero(threads == thread)
        own = picked(launched, np.isin(array_of(launched, "thread"), [thread, *engine]))
        for name, values in projected(ranges.iloc[rows], own).items():
            found[name][rows] = values
    return _by_name(trace, found["operations"], found["end_ns"] - found["start_ns"])


def _engine_threads(trace: RankTrace) -> set[int]:
    """Threads on which autograd runs operators and no forward operator runs."""
    threads = array_of(trace.host_ops, "thread")
    is_autograd = whole_of(trace.host_ops, "forward_thread", 0) != 0
    has_sequence = trace.host_ops["sequence"].notna().to_numpy()
    return set(np.setdiff1d(threads[is_autograd], threads[~is_autograd & has_sequence]).tolist())


def _by_name(trace: RankTrace, operations: np.ndarray, projected_ns: np.ndarray) -> pd.DataFrame:
    held = operations > 0
    if not held.any():
        return pd.DataFrame()
    texts = {name: trace.ranges[name].array for name in ("domain", "name")}
    columns = {name: own.reorder_categories(sorted(own.categories)) for name, own in texts.items()}
    groups = Groups.of(columns, ["domain", "name"], with_absent=True)
    lengths = spread(projected_ns[held], {"group": groups.of_row[held]})
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
    columns = declared(
        rank=RANK,
        step="Step in whose GPU window the calls return; absent for none.",
        name="The function: cudaLaunchKernel, hipMemcpyWithStream.",
        operator="The innermost operator around it; absent outside operators.",
        calls="Calls, each the first with its kernel or copy.",
        host_ns="Time of the host in them.",
        idle_ns=Column.time("GPU idle time in them.", leads=True),
    )


def first_calls_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's first calls in its window, by step, function and operator."""
    rows = one_off_calls(trace)
    rows = rows[trace.window.holds(array_of(trace.api_calls, "end_ns")[rows] - 1)]
    calls, gaps = trace.api_calls.iloc[rows], idle.find(trace)
    idle_ns = Intervals(gaps.starts, gaps.ends).covered_ns(array_of(calls, "start_ns"), array_of(calls, "end_ns"))
    return _by_place(trace, rows, FirstCalls.keys, {"idle_ns": idle_ns}, host_ns=lengths_of(calls))
