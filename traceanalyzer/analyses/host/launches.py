"""How far each rank's CPU runs ahead of its GPU: launch delays, queue depth, short kernels."""

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import RANK, Result
from traceanalyzer.analyses.grouping import memoized_by_trace
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.analyses.time.intervals import bins_of
from traceanalyzer.meaning.columns import Adds, Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    nullable,
    picked,
    rows_named,
    single_integer,
    table_of,
)

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
        delay_max_ns=Column.time("Its maximum.", adds=Adds.EXTREME),
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
    is_awaitable = is_kernel & has_launch & ~is_graph & (ends - starts > _LONG_NS)
    has_queue = bool((trace.launch != NONE).any() and trace.window.length_ns)
    queue = launch_queue(trace) if has_queue else None
    row = {
        "operations": len(ops),
        "operations_without_launch": np.count_nonzero(~has_launch),
        "graph_operations": np.count_nonzero(is_graph),
        "delay_median_ns": round(float(np.median(delays))) if len(delays) else None,
        "delay_max_ns": delays.max() if len(delays) else None,
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
    return table_of({name: single_integer(None if value is None else int(value)) for name, value in row.items()})


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
