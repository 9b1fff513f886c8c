"""Collectives carried out by the CPU (gloo): who waits for whom."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, ratio
from traceanalyzer.analyses.grouping import Groups, memoized_by_trace
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import AUTOGRAD, COLLECTIVES, MAIN, thread_roles
from traceanalyzer.analyses.host.cpu_time import steps_of_hosts
from traceanalyzer.analyses.host.idle import launching_threads
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.kinds import CPU_BACKENDS
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    picked,
    rows_named_so,
    rows_where,
    table_of,
    under_each_other,
)
from traceanalyzer.selection import host_spans, step_at

# Collectives that the CPU carries out (gloo's), and since when the host that called them does nothing but wait.


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
    own = launching_threads(trace).tolist()
    if trace.gpu_ops.empty:
        return np.array([thread for thread, role in roles.items() if role in (MAIN, AUTOGRAD)], dtype=np.int64)
    return np.array([thread for thread in own if roles.get(thread) != COLLECTIVES])


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
    thread, begun, done = (array_of(calls, name)[rows] for name in ("thread", "start_ns", "end_ns"))
    found = ends.copy()
    for row, (own, start, end) in enumerate(zip(threads.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        held = np.flatnonzero((thread == own) & (begun >= start) & (begun < end))
        until = np.append(begun[held], end)
        found[row] = until[np.argmax(until - np.append(start, done[held]))]
    return found


def _callers(trace: RankTrace, threads: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Thread of the last operator that hands over a collective before each start; of none the one that launches most.

    Of those `threads` that are the host's.
    """
    operators = trace.host_ops
    calls = operators[rows_named_so(operators, _hands_over)]
    begun = array_of(calls, "start_ns")
    order = np.argsort(begun, kind="stable")
    launch = trace.gpu_ops["launch"]
    launching = array_of(trace.api_calls, "thread")[launch[launch >= 0]]
    launching = launching[np.isin(launching, threads)]
    program = int(threads[0]) if trace.gpu_ops.empty and len(threads) else NONE
    default = np.bincount(launching).argmax() if len(launching) else program
    called_by = np.append(default, array_of(calls, "thread")[order])
    return called_by[np.searchsorted(begun[order], starts, side="right")]


def _idle_since(trace: RankTrace, threads: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """From when until each end the threads record nothing; an operator around the call of the collective counts not.

    Nor do they hand over another one meanwhile.
    """
    begun, done = (np.concatenate([*own, starts]) for own in zip(*_events(trace, threads), strict=True))
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
        yield starts, np.where(rows_named_so(frame, _hands_over)[held], starts, ends)


def _hands_over(name: str) -> bool:
    return name.startswith(_CALLS)


# Who waits for whom in collectives of the CPU, where no GPU work is recorded beside them.


_LEAST_MET = 0.95
"""Of the instances: so many last beyond the start of each rank's, or they are not the same collective on all ranks."""

_WAITS = tuple(
    f"{backend}{name}"
    for backend in CPU_BACKENDS
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
)
"""Those that end nowhere before all ranks have come: of others some ranks leave at once."""


class HostMeetings(Result):
    """One row for each rank, of captures of CPUs alone; none where it is not known which calls belong together."""

    title = "Waiting in collectives of the CPU"
    keys = ("rank",)
    columns = {
        "rank": RANK,
        "calls": Column.count("Collectives, in the complete steps, for which all ranks have to come.", is_aside=True),
        "last": Column.count("How many of them this rank came to last.", is_aside=True),
        "wait_ns": Column.time(
            "Time in which its host did nothing but wait until the last rank came.", is_news_when_zero=True
        ),
        "later_ns": Column.time("How much later than the first rank it came, of all added."),
        "exchange_ns": Column.time("Time in which its host did nothing but wait once all had come."),
        "window_ns": Column.time("Length of the complete steps on the host."),
        "steps": Column.count("Complete steps that it is of.", adds=Adds.NONE),
        "wait_per_step_ns": Column.time("wait_ns / steps.", adds=Adds.DERIVED),
        "later_per_step_ns": Column.time("later_ns / steps.", adds=Adds.DERIVED),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        wait, later = (ratio(table[name], table["steps"]) for name in ("wait_ns", "later_ns"))
        return table.assign(
            wait_per_step_ns=wait.round().astype("Int64"), later_per_step_ns=later.round().astype("Int64")
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's collectives that all have to come to: in which step, the how manieth there, and when."""
    steps = steps_of_hosts(trace)
    if not trace.gpu_ops.empty or steps.empty:
        return pd.DataFrame()
    table = cpu_collectives(trace)
    table = picked(table, table["name"].isin(_WAITS).to_numpy())
    starts, ends = host_spans(steps)
    at = step_at(starts, ends, array_of(table, "start_ns"))
    table = picked(table, at != NONE).assign(step=array_of(steps, "step")[at[at != NONE]])
    return table_of(
        {
            **{name: table[name].array for name in ("step", "name", "start_ns", "since_ns", "end_ns")},
            "place": table.groupby(["step", "name"]).cumcount().to_numpy(),
            "window_ns": np.full(len(table), int((ends - starts).sum())),
            "steps": np.full(len(table), len(steps)),
        }
    )


def across(parts: Mapping[int, pd.DataFrame], ranks: Ranks) -> HostMeetings:
    """Matched by step, name and place in the step; hosts' clocks are put together by the median ends of collectives."""
    held = {rank: part for rank, part in parts.items() if len(part)}
    if len(held) < 2 or len(held) < len(parts):
        return HostMeetings.without_rows()
    every = under_each_other([part.assign(rank=rank) for rank, part in held.items()])
    groups = Groups.of(every, ["step", "name", "place"])
    is_whole = groups.counts() == len(held)
    every = picked(every, is_whole[groups.of_row]).assign(instance=groups.of_row[is_whole[groups.of_row]])
    every = every.sort_values(["instance", "rank"], kind="stable")
    hosts = ranks.table.set_index("rank")["host"].reindex(sorted(held))
    times = [array_of(every, name).reshape(-1, len(held)) for name in ("start_ns", "since_ns", "end_ns")]
    starts, since, ends = (own - _ahead_ns(times[-1], hosts) for own in times)
    came = starts.max(axis=1)
    if not is_whole.all() or not len(came) or (came < ends.min(axis=1)).mean() < _LEAST_MET:
        return HostMeetings.without_rows()
    waits = np.clip(np.minimum(came[:, None], ends) - since, 0, None)
    is_last = np.arange(len(held)) == starts.argmax(axis=1)[:, None]
    numbers = sorted(held)
    return HostMeetings(
        table_of(
            {
                "rank": np.array(numbers),
                "calls": np.full(len(numbers), len(came)),
                "last": is_last.sum(axis=0),
                "wait_ns": waits.sum(axis=0),
                "later_ns": (starts - starts.min(axis=1)[:, None]).sum(axis=0),
                "exchange_ns": np.clip(ends - np.maximum(since, came[:, None]), 0, None).sum(axis=0),
                **{name: np.array([held[rank][name].iloc[0] for rank in numbers]) for name in ("window_ns", "steps")},
            }
        )
    )


def _ahead_ns(ends: np.ndarray, hosts: pd.Series) -> np.ndarray:
    """By how much each rank's clock is ahead, as its host's: by the ends, a row for each instance, a column for a rank.

    0 of one host, or where hosts are not known: its ranks' collectives need not end at one moment.
    """
    codes, names = pd.factorize(hosts)
    ahead_ns = np.zeros(len(codes), dtype=np.int64)
    if len(names) > 1 and len(ends):
        off = ends - np.median(ends, axis=1, keepdims=True)
        for code in range(len(names)):
            ahead_ns[codes == code] = round(float(np.median(off[:, codes == code])))
    return ahead_ns
