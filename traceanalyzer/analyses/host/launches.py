"""How far each rank's CPU runs ahead of its GPU: launch delays, queue depth, short kernels."""

from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import RANK, Result, percent, ratio
from traceanalyzer.analyses.grouping import memoized_by_trace
from traceanalyzer.analyses.time.intervals import bins_of
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, picked, rows_named, single, single_integer, table_of

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

    def binned(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Time integral of the depth inside each bin of the window, and the largest depth there."""
        at = self._at(starts)
        last = np.maximum(np.searchsorted(self.times, ends, side="left") - 1, at)
        bounds = np.stack([at, last + 1], axis=1).ravel()
        highest = np.maximum.reduceat(np.append(self.depth, 0), bounds)[::2]
        return self._integral(ends) - self._integral(starts), highest

    def _integral(self, times: np.ndarray) -> np.ndarray:
        """Time integral of the depth from the window's start."""
        at = self._at(times)
        before = np.concatenate([[0], np.cumsum(self.lengths * self.depth)])[at]
        return before + (times - self.times[at]) * self.depth[at]

    def _at(self, times: np.ndarray) -> np.ndarray:
        return np.clip(np.searchsorted(self.times, times, side="right") - 1, 0, len(self.depth) - 1)


def launch_queue(trace: RankTrace) -> Queue:
    """The queue over the rank's window.

    An operation joins when the call that launched it returns and leaves when it starts; one that starts sooner
    never waits. Operations without a recorded launch are not in it, so it can only be longer than shown.
    """
    joins, leaves = waiting(trace)
    window = trace.window
    start, end = window.start_ns, window.end_ns
    limits = np.concatenate([window.starts, window.ends])
    times = np.concatenate([np.clip(joins, start, end), np.clip(leaves, start, end), limits])
    change = np.concatenate([np.ones(len(joins)), -np.ones(len(leaves)), np.zeros(len(limits))]).astype(np.int64)
    distinct, position = np.unique(times, return_inverse=True)
    depth = np.cumsum(np.bincount(position, weights=change, minlength=len(distinct)).astype(np.int64))
    is_inside = window.holds(distinct[:-1])
    return Queue(distinct, depth[:-1] * is_inside, np.diff(distinct) * is_inside)


def waiting(trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
    """When each operation with a launch joins the queue and leaves it."""
    launch = array_of(trace.gpu_ops, "launch")
    held = launch != NONE
    leaves = array_of(trace.gpu_ops, "start_ns")[held]
    returned = array_of(trace.api_calls, "end_ns")[launch[held]]
    return np.minimum(returned, leaves), leaves


# How far each rank's host runs ahead of its GPU: launch delays, launch queue, short kernels.


_LONG_NS = 20_000
"""A kernel of this length outlives the call that launches it, unless that waits for it."""


class Launches(Result):
    """One row for each rank."""

    title = "Launches"
    keys = ("rank",)
    stored = ("waiting_ns",)
    columns = {
        "rank": RANK,
        "operations": Column.count("GPU operations."),
        "operations_without_launch": Column.count(
            "Those whose host call the capture does not have: in none of the figures below.", is_compared=False
        ),
        "graph_operations": Column.count(
            "Operations launched as parts of a CUDA graph.", is_compared=False, is_secondary=True
        ),
        "delay_median_ns": Column.time(
            "Median time from the launching call's start to the operation's start.", adds=Adds.DERIVED
        ),
        "delay_p95_ns": Column.time("Its 95th percentile.", adds=Adds.DERIVED, is_secondary=True),
        "delay_max_ns": Column.time("Its maximum.", adds=Adds.EXTREME),
        "awaitable_kernels": Column.count(
            "Kernels of over 20 µs with a launching call of their own.", is_compared=False, is_secondary=True
        ),
        "awaited_kernels": Column.count(
            "Those that had ended when that call returned: with CUDA_LAUNCH_BLOCKING=1 all of them.",
            is_compared=False,
            is_secondary=True,
        ),
        "awaited_pct": Column.share("100 · awaited / awaitable kernels.", is_secondary=True),
        "window_ns": Column.time("Length of the window.", better=Better.LESS),
        "queue_mean": Column.number("Launched operations that wait to start: mean over time.", is_secondary=True),
        "queue_median": Column.number("Median over time."),
        "queue_max": Column.count("Largest number.", adds=Adds.EXTREME),
        "empty_queue_ns": Column.time("Time in which no launched operation waits to start."),
        "host_bound_pct": Column.share(
            "100 · that time / window: the share in which the host is not ahead of the GPU."
        ),
        "kernels": Column.count("Kernels, communication among them."),
        "kernels_under_5us": Column.count("Kernels shorter than 5 µs.", is_compared=False, is_secondary=True),
        "kernels_under_10us": Column.count("Kernels shorter than 10 µs.", is_compared=False),
        "kernels_under_5us_pct": Column.share("100 · kernels under 5 µs / kernels.", is_secondary=True),
        "kernels_under_10us_pct": Column.share("100 · kernels under 10 µs / kernels."),
        "kernels_under_10us_ns": Column.time("Sum of the durations of kernels shorter than 10 µs.", is_secondary=True),
        "kernels_ns": Column.time("Sum of the durations of all kernels.", is_secondary=True),
        "kernel_median_ns": Column.time("Median duration of a kernel.", adds=Adds.DERIVED),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(
            queue_mean=ratio(table["waiting_ns"], table["window_ns"]),
            awaited_pct=percent(table["awaited_kernels"], table["awaitable_kernels"]),
            host_bound_pct=percent(table["empty_queue_ns"], table["window_ns"]),
            kernels_under_5us_pct=percent(table["kernels_under_5us"], table["kernels"]),
            kernels_under_10us_pct=percent(table["kernels_under_10us"], table["kernels"]),
        )


_MAYBE = ("delay_median_ns", "delay_p95_ns", "delay_max_ns", "queue_median", "queue_max", "empty_queue_ns",
          "waiting_ns", "kernel_median_ns")  # fmt: skip


def launches_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's counted operations; the queue over its window."""
    names = ("start_ns", "end_ns", "launch", "activity", "graph_node")
    ops = picked(trace.gpu_ops, trace.counted, names)
    row: dict[str, Any] = {
        "operations": len(ops),
        "operations_without_launch": int(np.count_nonzero(array_of(ops, "launch") == NONE)),
        "graph_operations": int(np.count_nonzero(ops["graph_node"].notna().to_numpy())),
        "window_ns": trace.window.length_ns,
        **_delays(trace, ops),
        **_awaited(trace, ops),
        **_queue(trace),
        **_kernels(ops),
    }
    return table_of({name: (single_integer if name in _MAYBE else single)(value) for name, value in row.items()})


def _delays(trace: RankTrace, ops: pd.DataFrame) -> dict[str, int | None]:
    launch = array_of(ops, "launch")
    held = launch != NONE
    if not held.any():
        return dict.fromkeys(("delay_median_ns", "delay_p95_ns", "delay_max_ns"))
    delay = (array_of(ops, "start_ns") - np.append(array_of(trace.api_calls, "start_ns"), 0)[launch])[held]
    median, p95 = (round(float(value)) for value in np.percentile(delay, (50, 95)))
    return {"delay_median_ns": median, "delay_p95_ns": p95, "delay_max_ns": int(delay.max())}


def _awaited(trace: RankTrace, ops: pd.DataFrame) -> dict[str, int]:
    launch, starts, ends = (array_of(ops, name) for name in ("launch", "start_ns", "end_ns"))
    is_long_kernel = rows_named(ops, "activity", "kernel") & (ends - starts > _LONG_NS)
    held = is_long_kernel & (launch != NONE) & ~ops["graph_node"].notna().to_numpy()
    returned = np.append(array_of(trace.api_calls, "end_ns"), 0)[launch[held]]
    return {"awaitable_kernels": int(held.sum()), "awaited_kernels": int((returned >= ends[held]).sum())}


def _queue(trace: RankTrace) -> dict[str, int | None]:
    queue = launch_queue(trace)
    if not len(queue.depth) or (array_of(trace.gpu_ops, "launch") == NONE).all():
        return dict.fromkeys(("queue_median", "queue_max", "empty_queue_ns", "waiting_ns"))
    return {
        "queue_median": queue.median(),
        "queue_max": int(queue.depth.max()),
        "empty_queue_ns": queue.empty_ns,
        "waiting_ns": queue.waiting_ns,
    }


def _kernels(ops: pd.DataFrame) -> dict[str, int | None]:
    durations = (array_of(ops, "end_ns") - array_of(ops, "start_ns"))[rows_named(ops, "activity", "kernel")]
    return {
        "kernels": len(durations),
        "kernels_under_5us": int((durations < 5_000).sum()),
        "kernels_under_10us": int((durations < 10_000).sum()),
        "kernels_under_10us_ns": int(durations[durations < 10_000].sum()),
        "kernels_ns": int(durations.sum()),
        "kernel_median_ns": round(float(np.median(durations))) if len(durations) else None,
    }


# Launches that wait because the GPU has as many operations before it as its queue holds.


FULL_QUEUE = 900
"""Launches ahead of the GPU from which on a launch may block: the queue holds 1,024."""

SLOW_LAUNCH_NS = 30_000
"""A launch into a full queue blocks for longer than this; others are work."""


@memoized_by_trace
def into_full_queue(trace: RankTrace) -> np.ndarray:
    """Mask of the rank's API calls that take long while about as many operations wait as the queue holds.

    The host needs nothing of that time: it is ahead of its GPU.
    """
    calls, launch = trace.api_calls, array_of(trace.gpu_ops, "launch")
    starts = array_of(calls, "start_ns")
    is_slow = array_of(calls, "end_ns") - starts > SLOW_LAUNCH_NS
    if not is_slow.any() or len(launch) < FULL_QUEUE:
        return np.zeros(len(calls), dtype=bool)
    begins, is_launched = array_of(trace.gpu_ops, "start_ns"), launch != NONE
    # What has no launch and begins before anything that has one was queued before the capture began.
    first = begins[is_launched].min(initial=np.iinfo(np.int64).max)
    is_before = ~is_launched & (begins < first)
    launched = np.searchsorted(np.sort(starts[launch[is_launched]]), starts) + is_before.sum()
    begun = np.searchsorted(np.sort(begins[is_launched | is_before]), starts)
    return is_slow & (launched - begun >= FULL_QUEUE)


# How many launched operations wait to start, over time: a small series for a chart.


class QueueDepth(Result):
    """One row for each rank and bin of its window."""

    title = "Launch queue over time"
    is_detail = True
    keys = ("rank", "bin")
    stored = ("waiting_ns",)
    columns = {
        "rank": RANK,
        "bin": Column.ident("Position of the bin in the window."),
        "start_ns": Column.moment("Its start."),
        "length_ns": Column.time("Its length."),
        "mean_depth": Column.number("Launched operations that wait to start, mean over the bin's time."),
        "max_depth": Column.count("Largest number in the bin.", adds=Adds.EXTREME),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(mean_depth=ratio(table["waiting_ns"], table["length_ns"]))


def queue_depth_per_rank(trace: RankTrace, queue_bins: int = 200) -> pd.DataFrame:
    """The window in `queue_bins` equal bins (fewer when it is shorter than that many ns); none without launches."""
    window = trace.window
    if not window.length_ns or (array_of(trace.gpu_ops, "launch") == NONE).all():
        return pd.DataFrame()
    starts, ends = bins_of(window, queue_bins)
    waiting_ns, highest = launch_queue(trace).binned(starts, ends)
    return table_of(
        {
            "bin": np.arange(len(starts)),
            "start_ns": starts,
            "length_ns": ends - starts,
            "waiting_ns": waiting_ns,
            "max_depth": highest,
        }
    )
