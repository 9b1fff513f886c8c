"""Calls of the GPU's API: launches and their queue, functions, blocking and first calls; ranges on the GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import breakdown
from traceanalyzer.analyses.base import RANK, Result
from traceanalyzer.analyses.grouping import Groups, extreme_at, memoized_by_trace
from traceanalyzer.analyses.host import idle
from traceanalyzer.analyses.host.activity import names_around_launches, user_ranges
from traceanalyzer.analyses.host.idle import Gaps, one_off_calls, step_of_time
from traceanalyzer.analyses.intervals import Intervals, bins_of
from traceanalyzer.analyses.trace import launched_operations, projected
from traceanalyzer.meaning.columns import Adds, Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    lengths_of,
    nullable,
    picked,
    rows_named,
    sorted_by,
    table_of,
    text_array,
    texts_of,
    whole_of,
)
from traceanalyzer.selection import step_at

# How many launched GPU operations wait to start, at each time.


class Queue(Struct, frozen=True):
    """Depth of the launch queue inside a window as a step function: `depth[i]` holds from `times[i]` to `times[i+1]`.

    `times` begins and ends with the window's limits; there is one depth less than times. `lengths` is how long each
    depth holds, ns. Between the window's stretches both depth and length are 0.
    """

    times: np.ndarray
    depth: np.ndarray
    lengths: np.ndarray

    @property
    def waiting_ns(self) -> int:
        """Time integral of the depth: operations · ns."""
        return int((self.lengths * self.depth).sum())

    @property
    def empty_ns(self) -> int:
        """Time in which no launched operation waits."""
        return int(self.lengths[self.depth == 0].sum())

    def median(self) -> int:
        """Depth that is not exceeded in half of the time."""
        order = np.argsort(self.depth, kind="stable")
        half = np.searchsorted(np.cumsum(self.lengths[order]), self.lengths.sum() / 2)
        return int(self.depth[order][half])

    def waiting_in(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Time integral of the depth in each of these parts of the window."""
        times, waiting_ns = self.times - self.times[0], np.append(0, np.cumsum(self.lengths * self.depth))
        since, until = (np.interp(own - self.times[0], times, waiting_ns).round() for own in (starts, ends))
        return (until - since).astype(np.int64)


def launch_queue(trace: RankTrace) -> Queue:
    """The queue over the rank's window.

    An operation joins when the call that launched it returns and leaves when it starts; one that starts sooner
    never waits. Operations without a recorded launch are not in it, so it can only be longer than shown.
    """
    launch, window = trace.launch, trace.window
    leaves = array_of(trace.gpu_ops, "start_ns")[launch != NONE]
    joins = np.minimum(array_of(trace.api_calls, "end_ns")[launch[launch != NONE]], leaves)
    times = np.clip(np.concatenate([joins, leaves]), window.start_ns, window.end_ns)
    change = np.repeat([1, -1, 0, 0], [len(joins), len(leaves), len(window.starts), len(window.ends)])
    times, position = np.unique(np.concatenate([times, window.starts, window.ends]), return_inverse=True)
    depth = np.cumsum(np.bincount(position, weights=change, minlength=len(times)).astype(np.int64))
    is_inside = window.holds(times[:-1])
    return Queue(times, depth[:-1] * is_inside, np.diff(times) * is_inside)


# How far each rank's host runs ahead of its GPU: launch delays, launch queue, short kernels.


_LONG_NS, _SHORT_NS = 20_000, 10_000
"""A kernel of the first length outlives the call that launches it, unless that waits for it."""


class Launches(Result):
    """One row for each rank."""

    title = "Launches"
    keys = ("rank",)
    stored = ("waiting_ns",)
    derived = {
        "queue_mean": "waiting_ns / window_ns",
        "host_bound_pct": "empty_queue_ns / window_ns",
        "kernels_under_10us_pct": "kernels_under_10us / kernels",
    }
    columns = declared(
        rank=RANK,
        operations="GPU operations.",
        operations_without_launch=Column.count(
            "Those whose host call the capture does not have: in none of the figures below.", is_compared=False
        ),
        graph_operations=Column.count(
            "Operations launched as parts of a CUDA graph.", is_compared=False, is_secondary=True
        ),
        delay_median_ns=Column.time(
            "Median time from the launching call's start to the operation's start.", adds=Adds.DERIVED
        ),
        awaitable_kernels=Column.count(
            "Kernels of over 20 µs with a launching call of their own.", is_compared=False, is_secondary=True
        ),
        awaited_kernels=Column.count(
            "Those that had ended when that call returned: with CUDA_LAUNCH_BLOCKING=1 all of them.",
            is_compared=False,
            is_secondary=True,
        ),
        window_ns="Length of the window.",
        queue_mean=Column.number("Launched operations that wait to start: mean over time.", is_secondary=True),
        queue_median=Column.number("Median over time."),
        queue_max=Column.count("Largest number.", adds=Adds.EXTREME),
        empty_queue_ns="Time in which no launched operation waits to start.",
        host_bound_pct="100 · that time / window: the share in which the host is not ahead of the GPU.",
        kernels="Kernels, communication among them.",
        kernels_under_10us=Column.count("Kernels shorter than 10 µs.", is_compared=False),
        kernels_under_10us_pct="100 · kernels under 10 µs / kernels.",
        kernel_median_ns=Column.time("Median duration of a kernel.", adds=Adds.DERIVED),
    )


def launches_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's counted operations; the queue over its window."""
    ops = picked(trace.gpu_ops, trace.counted, ("start_ns", "end_ns", "launch", "activity", "graph_node"))
    launch, starts, ends = arrays_of(ops, "launch", "start_ns", "end_ns")
    is_kernel, is_graph = rows_named(ops, "activity", "kernel"), ops["graph_node"].notna().to_numpy()
    has_launch, lengths = launch != NONE, (ends - starts)[is_kernel]
    called, returned = (np.append(array_of(trace.api_calls, name), 0)[launch] for name in ("start_ns", "end_ns"))
    delays = (starts - called)[has_launch]
    is_alone = np.bincount(launch[has_launch], minlength=1)[launch] == 1  # a graph's launch holds many
    is_awaitable = is_kernel & has_launch & is_alone & (ends - starts > _LONG_NS)
    has_queue = bool((trace.launch != NONE).any() and trace.window.length_ns)
    queue = launch_queue(trace) if has_queue else None
    row = {
        "operations": len(ops),
        "operations_without_launch": np.count_nonzero(~has_launch),
        "graph_operations": np.count_nonzero(is_graph),
        "delay_median_ns": round(float(np.median(delays))) if len(delays) else None,
        "awaitable_kernels": is_awaitable.sum(),
        "awaited_kernels": (returned >= ends)[is_awaitable].sum(),
        "window_ns": trace.window.length_ns,
        "waiting_ns": queue and queue.waiting_ns,
        "queue_median": queue and queue.median(),
        "queue_max": queue and queue.depth.max(),
        "empty_queue_ns": queue and queue.empty_ns,
        "kernels": len(lengths),
        "kernels_under_10us": (lengths < _SHORT_NS).sum(),
        "kernel_median_ns": round(float(np.median(lengths))) if len(lengths) else None,
    }
    return table_of({name: pd.array([value], dtype="Int64") for name, value in row.items()})


# Launches that wait because the GPU has as many operations before it as its queue holds.


FULL_QUEUE = 900
"""Launches ahead of the GPU from which on a launch may block: the queue holds 1,024."""

SLOW_LAUNCH_NS = 30_000
"""A launch into a full queue blocks for longer than this; others are work."""


@memoized_by_trace
def into_full_queue(trace: RankTrace) -> np.ndarray:
    """Mask of the rank's API calls that take long while about as many operations wait as the queue holds.

    That is no launch time: the host is ahead of its GPU.
    """
    calls, launch = trace.api_calls, trace.launch
    starts = array_of(calls, "start_ns")
    is_slow = array_of(calls, "end_ns") - starts > SLOW_LAUNCH_NS
    if not is_slow.any() or len(launch) < FULL_QUEUE:
        return np.zeros(len(calls), dtype=bool)
    begins, is_launched = array_of(trace.gpu_ops, "start_ns"), launch != NONE
    # What has no launch and begins before anything that has one was queued before the capture began.
    first = begins[is_launched].min(initial=np.iinfo(np.int64).max)
    is_before = ~is_launched & (begins < first)
    launched = np.searchsorted(np.sort(starts[launch[is_launched]]), starts) + is_before.sum()
    started = np.searchsorted(np.sort(begins[is_launched | is_before]), starts)
    return is_slow & (launched - started >= FULL_QUEUE)


# How busy each rank's GPU is over time, and how many launched operations wait: the window in equal stretches.


class GpuUtilization(breakdown.OfKnownWork):
    """One row for each rank and stretch of its window, in order of time; the parts add up to the stretch."""

    title = "GPU utilization and launch queue over time"
    is_detail = True
    keys = ("rank", "bin")
    stored = ("waiting_ns",)
    derived = {
        "busy_ns": "length_ns - idle_ns",
        "busy_pct": "busy_ns / length_ns",
        "mean_depth": "waiting_ns / length_ns",
    }
    columns = declared(
        rank=RANK,
        bin="Position of the stretch.",
        start_ns="Its start.",
        length_ns=Column.time("Its length.", adds=Adds.DERIVED),
        busy_ns=Column.time("Time in it in which anything runs on the GPU.", leads=True),
        busy_pct="100 · busy / length. Says that something ran, not how much of the GPU it used.",
        **{name: breakdown.DEFINITIONS[name] for name in breakdown.PARTS},
        mean_depth=Column.number(
            "Launched operations that wait to start: mean over the stretch's time; absent where no launch is known."
        ),
    )


def gpu_utilization_per_rank(trace: RankTrace, bins: int = 200) -> pd.DataFrame:
    """The breakdown and the queue of each stretch; fewer stretches when the window has fewer nanoseconds."""
    if not trace.window.length_ns:
        return pd.DataFrame()
    starts, ends = bins_of(trace.window, bins)
    parts = breakdown.split(trace, starts, ends)
    has_launch = bool((trace.launch != NONE).any())
    waiting_ns = launch_queue(trace).waiting_in(starts, ends) if has_launch else np.zeros(len(starts), dtype=np.int64)
    return table_of(
        {
            "bin": np.arange(len(starts)),
            "start_ns": starts,
            "length_ns": parts.pop("window_ns"),
            **parts,
            "waiting_ns": nullable(waiting_ns, np.full(len(starts), not has_launch)),
        }
    )


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


def spread(groups: Groups, times_ns: np.ndarray) -> dict[str, Any]:
    """For each group `calls`, and total, median, min, max and sample standard deviation of its rows' times."""
    std_ns = pd.Series(times_ns).groupby(groups.of_row).std()
    return groups.spread(times_ns) | {"std_ns": pd.array(std_ns, dtype="Float64")}


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
    groups = Groups.of({"name": trace.api_calls["name"].array[counted]}, with_absent=True)
    return sorted_by(groups.table(**spread(groups, lengths_of(trace.api_calls)[counted])), "total_ns")


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
        "name": text_array(texts_of(trace.api_calls["name"].array[rows])),
        "operator": text_array(names_around_launches(trace.host_ops, trace, rows)),
        "range": text_array(names_around_launches(user_ranges(trace), trace, rows)),
    }
    groups = Groups.of(columns, keys[1:], with_absent=True)
    sums = {name: groups.sums(values) for name, values in {**by, **more}.items()}
    order = np.lexsort([-sums[name] for name in reversed([*by])])
    return picked(groups.table(calls=groups.counts(), **sums), order)


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
    texts = {name: text_array(texts_of(ranges[name].array)) for name in ("domain", "name")}
    groups, held = Groups.of(texts, with_absent=True), found["operations"] > 0
    host_ns = groups.sums(lengths_of(ranges))
    sums = groups.table(operations=groups.sums(found["operations"]), host_ns=host_ns, ranges=groups.counts())
    launching = Groups.of_numbers(groups.of_row[held])
    projections = spread(launching, (found["end_ns"] - found["start_ns"])[held])
    names = np.flatnonzero(groups.any(held))
    return sorted_by(picked(sums, names).assign(**projections), "total_ns")


def _engine_threads(trace: RankTrace) -> set[int]:
    """Threads on which autograd runs operators and no forward operator runs."""
    threads = array_of(trace.host_ops, "thread")
    is_autograd = whole_of(trace.host_ops, "forward_thread", 0) != 0
    has_sequence = trace.host_ops["sequence"].notna().to_numpy()
    return set(np.setdiff1d(threads[is_autograd], threads[~is_autograd & has_sequence]).tolist())


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
