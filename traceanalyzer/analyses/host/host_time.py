"""Time that hosts spend in something, in a mean step, and how much of it their GPUs idle: what tables of it share."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import ratio
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.analyses.time.intervals import busy, new_ns
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import known_of
from traceanalyzer.model.tables import array_of, rows_where

TIMES: Mapping[str, Column] = MappingProxyType(
    {
        "idle_ns": Column.time(
            "The part of it in which nothing ran on the GPU; absent in a capture without GPU work.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "seen_ns": Column.time(
            "The part of it between the rank's first and last GPU operation: before and after, whether the GPU idled "
            "is not known.",
            is_compared=False,
            is_secondary=True,
        ),
        "steps": Column.count("Complete steps that it is of; absent for the whole capture.", adds=Adds.NONE),
        "host_per_step_ns": Column.time("host_ns / steps.", adds=Adds.DERIVED),
        "idle_per_step_ns": Column.time(
            "host_per_step_ns, times the part of it that the GPU was seen to idle; n/a where none of it was seen.",
            adds=Adds.DERIVED,
        ),
    }
)
"""Columns beside `host_ns`, the time on the host."""


def with_steps(table: pd.DataFrame) -> pd.DataFrame:
    """The table with what is derived of a mean step."""
    a_step = ratio(table["host_ns"], table["steps"])
    return table.assign(host_per_step_ns=_whole(a_step), idle_per_step_ns=_whole(likely_idle(a_step, table)))


def likely_idle(host_ns: pd.Series, table: pd.DataFrame) -> pd.Series:
    """Of these times those in which the GPU idles, as far as that was seen; NA where none of it was."""
    return host_ns * ratio(table["idle_ns"], table["seen_ns"])


def times_of(
    trace: RankTrace, groups: Groups, starts: np.ndarray, ends: np.ndarray, steps: pd.DataFrame
) -> dict[str, Any]:
    """What is stored of each group of stretches on the host, which are of these steps: none for the whole capture.

    Of stretches of one group that overlap, on several threads, the common time counts once.
    """
    starts = ends - new_ns(starts, ends, groups.of_row)
    idle_ns, seen_ns = (groups.sums(times) for times in idle_inside(trace, starts, ends))
    without_gpu = np.full(len(groups), trace.gpu_ops.empty)
    return {
        "host_ns": groups.sums(ends - starts),
        "idle_ns": pd.arrays.IntegerArray(idle_ns, without_gpu),
        "seen_ns": pd.arrays.IntegerArray(seen_ns, without_gpu.copy()),
        "steps": pd.arrays.IntegerArray(np.full(len(groups), len(steps)), np.full(len(groups), not len(steps))),
    }


@once_a_trace
def steps_of_hosts(trace: RankTrace) -> pd.DataFrame:
    """Complete steps of those looked at; without GPU work no step has a GPU window, and all that are not cut count.

    Of chosen steps of which none is complete, all of them.
    """
    steps = trace.steps
    counts = ~array_of(steps, "is_partial")
    if not trace.gpu_ops.empty:
        counts = counts & known_of(steps, "start_ns")
    if trace.window.steps is None:
        return rows_where(steps, counts)
    is_chosen = np.isin(array_of(steps, "step"), trace.window.steps)
    return rows_where(steps, counts & is_chosen if (counts & is_chosen).any() else is_chosen)


def launches_inside(trace: RankTrace, events: pd.DataFrame) -> np.ndarray:
    """API calls with a GPU operation that begin in each event, on its thread."""
    has_op = array_of(trace.api_calls, "has_gpu_op")
    begun, thread_of = (array_of(trace.api_calls, name)[has_op] for name in ("start_ns", "thread"))
    starts, ends, threads = (array_of(events, name) for name in ("start_ns", "end_ns", "thread"))
    count = np.zeros(len(events), dtype=np.int64)
    for thread in np.unique(thread_of).tolist():
        rows = np.flatnonzero(threads == thread)
        times = np.sort(begun[thread_of == thread])
        count[rows] = np.searchsorted(times, ends[rows]) - np.searchsorted(times, starts[rows])
    return count


def looked_at(trace: RankTrace, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times on the host clipped to what they are compared with: the GPU's first to last operation, and complete steps.

    Without either nothing is clipped.
    """
    tables = ((trace.gpu_ops, "start_ns", "end_ns"), (steps_of_hosts(trace), "host_start_ns", "host_end_ns"))
    spans = [(array_of(table, first).min(), array_of(table, last).max()) for table, first, last in tables if len(table)]
    if not spans:
        return starts, ends
    first, last = min(first for first, _ in spans), max(last for _, last in spans)
    return np.clip(starts, first, last), np.clip(ends, first, last)


def idle_inside(trace: RankTrace, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Time of each event in which nothing ran on the GPU, and all of it, between the GPU's first and last operation."""
    ops = trace.gpu_ops
    if ops.empty:
        return np.zeros(len(starts), dtype=np.int64), np.zeros(len(starts), dtype=np.int64)
    first, last = int(array_of(ops, "start_ns").min()), int(array_of(ops, "end_ns").max())
    begin = np.clip(starts, first, last)
    end = np.clip(ends, first, last)
    seen = end - begin
    return seen - busy(trace).covered_ns(begin, end), seen


def _whole(values: pd.Series) -> pd.Series:
    return values.round().astype("Int64")
