"""Collectives that the CPU carries out (gloo's), and since when the host that called them does nothing but wait."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import memoized_by_trace
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import AUTOGRAD, COLLECTIVES, MAIN, thread_roles
from traceanalyzer.analyses.host.idle import launching_threads, thread_of_launch
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    rows_named_so,
    rows_where,
    table_of,
    under_each_other,
)

_CALLS = "c10d::"
"""Operators that hand a collective to the thread that carries it out."""

_MONITORED, _BARRIER = "c10d::monitored_barrier_", "gloo:monitored_barrier"

_EMPTY = table_of(
    {"name": np.empty(0, dtype=object), **dict.fromkeys(("thread", "start_ns", "since_ns", "end_ns"), np.empty(0, int))}
)


@memoized_by_trace
def cpu_collectives(trace: RankTrace) -> pd.DataFrame:
    """A row for each of those that a thread which launches work called, in order of start.

    Returns:
        `name`; `thread` (that called it); `start_ns` and `end_ns` (of what the collective's own thread records; of one
        that copies from and to a GPU the end of the exchange between, its thread's longest silence);
        `since_ns`: from when until `end_ns` no thread of the host that launches work (without GPU work: that runs the
        steps, or autograd) records a call or an operator, so that it waits. That is the start of one that is waited for
        at once, and the end of one that ended beside other work. Collectives that other threads call (an asynchronous
        checkpoint's) hold up nobody, and are left out.
    """
    ranges = trace.ranges
    held = rows_where(ranges, rows_named_so(ranges, host_names.is_cpu_collective))
    if held.empty:
        return _EMPTY
    held = _with_monitored(trace, held)
    starts, ends = (held[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    roles = thread_roles(trace)
    is_their_own = np.array([roles.get(thread) == COLLECTIVES for thread in held["thread"].tolist()], dtype=bool)
    ends = np.where(is_their_own, _exchanged(trace, array_of(held, "thread"), starts, ends), ends)
    threads = _program(trace, roles)
    caller = _callers(trace, threads, starts)
    table = table_of(
        {
            "name": held["name"].to_numpy(dtype=object),
            "thread": caller,
            "start_ns": starts,
            "since_ns": _idle_since(trace, threads, starts, ends),
            "end_ns": ends,
        }
    )
    return table[np.isin(caller, threads)].reset_index(drop=True)


def _program(trace: RankTrace, roles: Mapping[int, str]) -> np.ndarray:
    """Threads that launch; without GPU work those that run the steps, and autograd's."""
    own = {thread: roles.get(thread) for thread in launching_threads(trace).tolist()}
    if trace.gpu_ops.empty:
        own = {thread: role for thread, role in roles.items() if role in (MAIN, AUTOGRAD)}
    return np.array([thread for thread, role in own.items() if role != COLLECTIVES], dtype=np.int64)


def waiting(trace: RankTrace) -> Intervals:
    """Time in which the host does nothing but wait for one."""
    table = cpu_collectives(trace)
    return Intervals.of(array_of(table, "since_ns"), array_of(table, "end_ns"))


def _with_monitored(trace: RankTrace, held: pd.DataFrame) -> pd.DataFrame:
    """In order of start, monitored barriers as one each: they are messages that the calling thread sends itself."""
    operators = trace.host_ops
    whole = operators[rows_named_so(operators, _MONITORED.__eq__)]
    within = Intervals.of(array_of(whole, "start_ns"), array_of(whole, "end_ns"))
    starts, ends = (held[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    apart = held[within.covered_ns(starts, ends) == 0][["name", "thread", "start_ns", "end_ns"]]
    barriers = whole[["thread", "start_ns", "end_ns"]].assign(name=_BARRIER)
    every = under_each_other([apart.assign(name=apart["name"].astype(str)), barriers])
    return every.sort_values("start_ns", kind="stable")


def _exchanged(trace: RankTrace, threads: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """When each one's longest silence ends: before it the thread copies from the GPU, after it to the GPU."""
    calls = trace.api_calls
    rows = np.flatnonzero(np.isin(array_of(calls, "thread"), threads))  # few, of all that the rank called
    thread, begins, done = arrays_of(calls, "thread", "start_ns", "end_ns", rows=rows)
    found = ends.copy()
    for row, (own, start, end) in enumerate(zip(threads.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        held = np.flatnonzero((thread == own) & (begins >= start) & (begins < end))
        until = np.append(begins[held], end)
        found[row] = until[np.argmax(until - np.append(start, done[held]))]
    return found


def _callers(trace: RankTrace, threads: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Thread of the last operator that hands over a collective before each start; of none the one that launches most.

    Of those `threads` that are the host's.
    """
    calls = trace.host_ops[rows_named_so(trace.host_ops, _hands_over)]
    begins = array_of(calls, "start_ns")
    order = np.argsort(begins, kind="stable")
    launching = thread_of_launch(trace, trace.launch)
    launching = launching[np.isin(launching, threads)]
    program = threads[0] if trace.gpu_ops.empty and len(threads) else NONE
    default = np.bincount(launching).argmax() if len(launching) else program
    called_by = np.append(default, array_of(calls, "thread")[order])
    return called_by[np.searchsorted(begins[order], starts, side="right")]


def _idle_since(trace: RankTrace, threads: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """From when until each end the threads record nothing; an operator around the call of the collective counts not.

    Nor do they hand over another one meanwhile.
    """
    begins, done = (np.concatenate([*own, starts]) for own in zip(*_events(trace, threads), strict=True))
    order = np.argsort(begins, kind="stable")
    begins, done = begins[order], done[order]
    first = np.maximum(np.searchsorted(begins, starts) - 1, 0)  # what ran when it began
    last = np.searchsorted(begins, ends)
    latest = [int(done[one:other].max(initial=0)) for one, other in zip(first.tolist(), last.tolist(), strict=True)]
    return np.clip(latest, starts, ends)


def _events(trace: RankTrace, threads: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Starts and ends of the threads' calls and operators; what hands a collective over may return after its end."""
    for frame in (trace.api_calls, trace.host_ops):
        held = np.isin(array_of(frame, "thread"), threads)
        starts, ends = array_of(frame, "start_ns")[held], array_of(frame, "end_ns")[held]
        yield starts, np.where(rows_named_so(frame, _hands_over)[held], starts, ends)


def _hands_over(name: str) -> bool:
    return name.startswith(_CALLS)
