"""How far each rank's host runs ahead of its GPU: launch delays, launch queue, short kernels."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack
from traceanalyzer.analyses.host.launch_queue import launch_queue
from traceanalyzer.analyses.names import LaunchesColumn
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import known_of, rows_named, single, single_integer
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, picked, table_of

_LONG_NS = 20_000
"""A kernel of this length outlives the call that launches it, unless that waits for it."""


class Launches(Result[LaunchesColumn]):
    """One row for each rank."""

    title: ClassVar[str] = "Launches"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
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
        return self._with(
            table,
            {
                "queue_mean": ratio(table["waiting_ns"], table["window_ns"]),
                "awaited_pct": percent(table["awaited_kernels"], table["awaitable_kernels"]),
                "host_bound_pct": percent(table["empty_queue_ns"], table["window_ns"]),
                "kernels_under_5us_pct": percent(table["kernels_under_5us"], table["kernels"]),
                "kernels_under_10us_pct": percent(table["kernels_under_10us"], table["kernels"]),
            },
        )


_MAYBE = ("delay_median_ns", "delay_p95_ns", "delay_max_ns", "queue_median", "queue_max", "empty_queue_ns",
          "waiting_ns", "kernel_median_ns")  # fmt: skip


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's counted operations; the queue over its window."""
    if trace.gpu_ops.empty:
        return pd.DataFrame()
    names = ("start_ns", "end_ns", "launch", "activity", "graph_node")
    ops = picked(trace.gpu_ops, trace.counted, names)
    row: dict[str, Any] = {
        "operations": len(ops),
        "operations_without_launch": int(np.count_nonzero(array_of(ops, "launch") == NONE)),
        "graph_operations": int(np.count_nonzero(known_of(ops, "graph_node"))),
        "window_ns": trace.window.length_ns,
        **_delays(trace, ops),
        **_awaited(trace, ops),
        **_queue(trace),
        **_kernels(ops),
    }
    return table_of({name: (single_integer if name in _MAYBE else single)(value) for name, value in row.items()})


def across(parts: Mapping[int, pd.DataFrame]) -> Launches:
    """The ranks' rows under each other."""
    return Launches(stack(parts, (*Launches.columns, "waiting_ns")))


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
    held = is_long_kernel & (launch != NONE) & ~known_of(ops, "graph_node")
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
