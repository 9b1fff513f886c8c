"""Collectives that the CPU carries out (gloo's), and since when the host that called them does nothing but wait."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.idle_causes import launching_threads
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, table_of, under_each_other

_CALLS = "c10d::"
"""Operators that hand a collective to the thread that carries it out."""

_MONITORED, _BARRIER = "c10d::monitored_barrier_", "gloo:monitored_barrier"

_EMPTY = table_of(
    {"name": np.empty(0, dtype=object), **dict.fromkeys(("thread", "start_ns", "since_ns", "end_ns"), np.empty(0, int))}
)


@once_a_trace
def cpu_collectives(trace: RankTrace) -> pd.DataFrame:
    """A row for each of those that a thread which launches work called, in order of start.

    Returns:
        `name`; `thread` (that called it); `start_ns` and `end_ns` (of what the collective's own thread records);
        `since_ns`: from when until `end_ns` no launching thread records a call or an operator, so that it waits. That
        is the start of one that is waited for at once, and the end of one that ended beside other work. Collectives
        that other threads call (an asynchronous checkpoint's) hold up nobody, and are left out.
    """
    ranges = trace.ranges
    held = ranges[host_names.matches(ranges["name"], host_names.is_cpu_collective)]
    if held.empty:
        return _EMPTY
    held = _with_monitored(trace, held)
    starts, ends = (held[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    threads = launching_threads(trace)
    caller = _callers(trace, starts)
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


def waiting(trace: RankTrace) -> Intervals:
    """Time in which the host does nothing but wait for one."""
    table = cpu_collectives(trace)
    return Intervals.of(array_of(table, "since_ns"), array_of(table, "end_ns"))


def _with_monitored(trace: RankTrace, held: pd.DataFrame) -> pd.DataFrame:
    """In order of start, monitored barriers as one each: they are messages that the calling thread sends itself."""
    operators = trace.host_ops
    whole = operators[host_names.matches(operators["name"], _MONITORED.__eq__)]
    within = Intervals.of(array_of(whole, "start_ns"), array_of(whole, "end_ns"))
    starts, ends = (held[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    apart = held[within.covered_ns(starts, ends) == 0][["name", "start_ns", "end_ns"]]
    barriers = whole[["start_ns", "end_ns"]].assign(name=_BARRIER)
    every = under_each_other([apart.assign(name=apart["name"].astype(str)), barriers])
    return every.sort_values("start_ns", kind="stable")


def _callers(trace: RankTrace, starts: np.ndarray) -> np.ndarray:
    """Thread of the last operator that hands over a collective before each start; of none the busiest that launches."""
    operators = trace.host_ops
    calls = operators[host_names.matches(operators["name"], _hands_over)]
    begun = array_of(calls, "start_ns")
    order = np.argsort(begun, kind="stable")
    launch = trace.gpu_ops["launch"]
    launching = array_of(trace.api_calls, "thread")[launch[launch >= 0]]
    default = np.bincount(launching).argmax() if len(launching) else -1
    threads = np.append(default, array_of(calls, "thread")[order])
    found: np.ndarray = threads[np.searchsorted(begun[order], starts, side="right")]
    return found


def _idle_since(trace: RankTrace, threads: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """From when until each end the threads record nothing; an operator around the call of the collective counts not."""
    begun, done = (np.concatenate(own) for own in zip(*_events(trace, threads), strict=True))
    order = np.argsort(begun, kind="stable")
    begun, done = begun[order], done[order]
    first = np.maximum(np.searchsorted(begun, starts) - 1, 0)  # what ran when it began
    last = np.searchsorted(begun, ends)
    latest = [int(done[one:other].max(initial=0)) for one, other in zip(first.tolist(), last.tolist(), strict=True)]
    return np.clip(latest, starts, ends)


def _events(trace: RankTrace, threads: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Starts and ends of the threads' calls and operators; what hands a collective over may return after its end."""
    for frame in (trace.api_calls, trace.host_ops):
        held = np.isin(array_of(frame, "thread"), threads)
        starts, ends = array_of(frame, "start_ns")[held], array_of(frame, "end_ns")[held]
        yield starts, np.where(host_names.matches(frame["name"], _hands_over)[held], starts, ends)


def _hands_over(name: str) -> bool:
    return name.startswith(_CALLS)
