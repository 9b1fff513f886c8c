"""What each CPU thread is for and was doing at each time: nesting, roles, collectives that the CPU carries out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.grouping import (
    MOST_ROWS,
    Groups,
    memoized_by_tables,
    memoized_by_trace,
    rows_of_each,
    stable_order,
)
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.intervals import Intervals, overlapping
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    nowhere,
    outer_first,
    picked,
    rows_named,
    rows_named_so,
    rows_where,
    table_of,
    under_each_other,
)

# Nested events cut into disjoint stretches, each with the innermost event in it.


Stretches = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Starts, ends and labels."""

_NONE, _EDGE = np.empty(0, dtype=np.int64), -2


def _cut(starts: np.ndarray, ends: np.ndarray, labels: np.ndarray, *edges: int) -> Stretches:
    """Disjoint stretches, edges among their ends, with the label (from 0 on) of the innermost event, -1 inside none."""
    order = outer_first(starts, ends)
    # At one time: ends before starts; outer starts first, inner ends first. A stable sort keeps this order.
    times = np.concatenate([ends[order][::-1], np.array(edges, dtype=np.int64), starts[order]])
    label = np.concatenate([nowhere(len(order)), np.full(len(edges), _EDGE), labels[order]])
    order = np.argsort(times, kind="stable")
    cuts, label = times[order], label[order]
    depth = np.cumsum(np.where(label == _EDGE, 0, np.where(label == NONE, -1, 1)))
    # After each start or end: the event that was started last at the depth that is left.
    by_depth = stable_order(depth)
    started = np.maximum.accumulate(np.where(label[by_depth] >= 0, np.arange(len(by_depth)), 0))
    inner = np.empty(len(order), dtype=np.int64)
    inner[by_depth] = label[by_depth][started]
    held = cuts[1:] > cuts[:-1]
    return cuts[:-1][held], cuts[1:][held], np.where(depth == 0, NONE, inner)[:-1][held]


# Which event lies inside which other on its thread, for millions of events at once.


@dataclass(frozen=True)
class Nesting:
    """The forest that the events of all threads form; arrays have one element an event, in the table's order.

    Attributes:
        parent: row of the innermost other event that holds the event, -1 for none; 32 bits, as all rows here.
        depth: number of events that hold it.
        starts: of the events, ns; `ends` likewise.
        threads: that they are on.
        in_order: by thread its rows, outer ones first.
    """

    parent: np.ndarray
    depth: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    threads: np.ndarray
    in_order: Mapping[int, np.ndarray]

    @classmethod
    def of(cls, events: pd.DataFrame) -> "Nesting":
        """Nest the rows of a table with `start_ns`, `end_ns` and `thread`, in any order.

        An event holds another of its thread when it begins no later and ends no earlier; of two that are equal
        the first row holds the second, and an instant is outside of what ends there. Events that overlap without
        holding each other are siblings.
        """
        starts, ends, threads = arrays_of(events, "start_ns", "end_ns", "thread")
        parent, depth = (np.full(len(starts), value, dtype=np.int32) for value in (NONE, 0))
        order = outer_first(starts, ends).astype(np.int32)
        each = [order[rows] for rows in rows_of_each(pd.factorize(threads[order])[0])]
        for own in each:
            above, depth[own] = _nest(starts[own], ends[own])
            parent[own] = np.append(own, NONE)[above]
        return cls(parent, depth, starts, ends, threads, {int(threads[own[0]]): own for own in each})

    def innermost_at(self, times: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Row of the innermost event that is running on a thread at each moment; -1 where none is."""
        found = nowhere(len(times))
        for thread in np.unique(threads).tolist():
            own, asked = self.in_order.get(thread, _NONE), np.flatnonzero(threads == thread)
            found[asked] = np.append(own, NONE)[np.searchsorted(self.starts[own], times[asked], side="right") - 1]
        return climbed(found, self.parent, lambda asked, row: self.ends[row] > times[asked])

    def summed_up(self, own: np.ndarray) -> np.ndarray:
        """Integers of each event, its own and those of all events inside it."""
        return self.gathered_up(own.astype(np.int64), np.add)

    def gathered_up(self, own: np.ndarray, combine: np.ufunc) -> np.ndarray:
        """Values of each event combined (`np.add`, `np.minimum`) with those of all events inside it."""
        total, ancestor = own.copy(), self.parent
        # Each pass doubles how far values have come, so that thousands of levels cost a dozen passes.
        while len(rows := np.flatnonzero(ancestor != NONE)):
            combine.at(total, ancestor[rows], total[rows])
            ancestor = np.append(ancestor, np.int32(NONE))[ancestor]
        return total

    def handed_down(self, marked: np.ndarray, *, including_self: bool = True) -> np.ndarray:
        """For each event the row of its innermost marked ancestor (or itself); -1 without one."""
        nearest = np.where(marked, np.arange(len(marked), dtype=np.int32), np.int32(NONE))
        ancestor = self.parent.copy()
        while len(rows := np.flatnonzero((nearest == NONE) & (ancestor != NONE))):
            above = ancestor[rows]
            nearest[rows], ancestor[rows] = nearest[above], ancestor[above]
        return nearest if including_self else np.append(nearest, np.int32(NONE))[self.parent]

    def children_ns(self) -> np.ndarray:
        """Time of each event that its direct children take."""
        total = np.zeros(len(self.parent) + 1, dtype=np.int64)
        np.add.at(total, self.parent, self.ends - self.starts)
        return total[:-1]


def climbed(rows: np.ndarray, up: np.ndarray, is_there: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """The rows, each replaced by what `up` has for it until it is there; -1 where none is.

    Args:
        rows: where each of those who ask begins, -1 for nowhere.
        up: of every row the next one, -1 for none.
        is_there: takes positions of those who ask, and the row at which each is.
    """
    found = rows.copy()
    asked = np.flatnonzero(found != NONE)
    while len(asked := asked[~is_there(asked, found[asked])]):
        found[asked] = up[found[asked]]
        asked = asked[found[asked] != NONE]
    return found


def _nest(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parent position and depth of one thread's events, in order, outer ones first."""
    lasts = ends > starts
    ended = np.searchsorted(np.sort(ends[lasts]), starts, side="right").astype(np.int32)
    depth = np.cumsum(lasts, dtype=np.int32) - lasts - ended
    # The parent is the last event before it that lies one level higher.
    order = stable_order(depth)
    place = depth[order].astype(np.int64) * len(depth) + order
    parent = np.empty(len(depth), dtype=np.int32)
    parent[order] = np.append(NONE, order)[np.searchsorted(place, place - len(depth))]
    parent[depth == 0] = NONE
    held = np.flatnonzero(parent != NONE)
    if (ends[parent[held]] >= ends[held]).all():
        return parent, depth
    # With a stack, for the rare thread whose events overlap without nesting.
    stack: list[tuple[int, int]] = []
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while stack and (stack[-1][1] < end or stack[-1][1] <= start):
            stack.pop()
        parent[row], depth[row] = stack[-1][0] if stack else NONE, len(stack)
        stack.append((row, end))
    return parent, depth


def range_around(ranges: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Position in `ranges` of the innermost one of the same thread that holds each time, or -1."""
    is_small = len(ranges) <= MOST_ROWS  # what is large is not held for who may ask again
    return (_nested(ranges) if is_small else Nesting.of(ranges)).innermost_at(times, threads)


_nested = memoized_by_tables(Nesting.of)


def names_around(events: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Name of the innermost event of the same thread that holds each time; `None` where none does."""
    return names_at(events["name"].array, range_around(events, threads, times))


def names_around_launches(events: pd.DataFrame, trace: RankTrace, launch: np.ndarray) -> np.ndarray:
    """The same at the start of API calls, given by their rows; `None` for row -1."""
    threads, times = (np.append(array_of(trace.api_calls, name), NONE)[launch] for name in ("thread", "start_ns"))
    return names_around(events, threads, times)


def names_at(names: Any, rows: np.ndarray) -> np.ndarray:
    """Names of a categorical by row; `None` for row -1."""
    return np.array([*names.categories.tolist(), None], dtype=object)[np.append(names.codes, NONE)[rows]]


@memoized_by_trace
def user_ranges(trace: RankTrace) -> pd.DataFrame:
    """Ranges that say where in the program the host is: neither steps nor communication calls."""
    is_place = rows_named_so(trace.ranges, host_names.is_user_range)
    is_step = rows_named(trace.ranges, "name", *trace.steps["name"].array.categories.tolist())
    return picked(trace.ranges, is_place & ~is_step)


# What a host thread was doing at each time: the innermost recorded call, operator, range or Python frame.


NOTHING = "(nothing recorded)"

UNNAMED = "(unnamed)"

API_CALL, OPERATOR, RANGE, FRAME = "API call", "operator", "range", "Python frame"
"""Sorts of events of the host."""


class Activity(Struct, frozen=True):
    """Disjoint stretches of one thread, in order, with what is innermost in each.

    Attributes:
        starts: of the stretches.
        ends: of the stretches.
        code: position of the innermost event's name in `names`; -1 where nothing is recorded.
        names: names of each sort of events after each other.
    """

    starts: np.ndarray
    ends: np.ndarray
    code: np.ndarray
    names: list[str]


def activity_of(
    trace: RankTrace, thread: int, starts: np.ndarray, ends: np.ndarray, *, has_frames: bool = False
) -> Iterator[tuple[slice, Activity]]:
    """Block after block some of these stretches [start, end) and what the thread did in them, with or without frames.

    The stretches are disjoint, and in order. Events nest: a call inside an operator inside a range. Where ranges cross
    instead (NVTX start/end ranges), the one that began last counts as the innermost.
    """
    tables = (trace.api_calls, trace.host_ops, trace.ranges, *((trace.frames,) if has_frames else ()))
    names, before = list[str](), list[int]()
    for table in tables:
        before.append(len(names))
        names += [*table["name"].array.categories.tolist(), UNNAMED]
    asked, table_starts = Intervals.of(starts, ends), [array_of(table, "start_ns") for table in tables]
    edges = ends.searchsorted(np.concatenate([own[MOST_ROWS::MOST_ROWS] for own in table_starts]))
    lasts = np.unique(np.minimum(np.append(edges, len(ends)), len(ends) - 1)) if len(ends) else _NONE

    still_open: Stretches = (_NONE, _NONE, _NONE)  # events of earlier blocks, which may last until this one
    past = [0] * len(tables)
    for first, last in zip([0, *(lasts[:-1] + 1).tolist()], lasts.tolist(), strict=False):
        since_ns, until_ns = int(ends[first - 1] if first else starts[0]), int(ends[last])
        since, past = past, [int(own.searchsorted(until_ns)) for own in table_starts]
        each = zip(tables, before, since, past, strict=True)
        parts = [_overlapping(table, slice(a, b), thread, asked, number) for table, number, a, b in each]
        begins, done, labels = (np.concatenate(own) for own in zip(still_open, *parts, strict=True))
        cuts, until, label = _cut(begins, done, labels, since_ns, until_ns)
        inside = (cuts >= since_ns) & (until <= until_ns)
        yield slice(first, last + 1), Activity(cuts[inside], until[inside], label[inside], names)
        is_open = done > until_ns
        still_open = begins[is_open], done[is_open], labels[is_open]


def _overlapping(table: pd.DataFrame, rows: slice, thread: int, asked: Intervals, first: int) -> Stretches:
    """Of these rows those of the thread that share time with what is asked: starts, ends, and numbers of names."""
    starts, ends, codes = array_of(table, "start_ns")[rows], array_of(table, "end_ns")[rows], table["name"].array.codes
    following = np.append(asked.starts, np.iinfo(np.int64).max)[asked.ends.searchsorted(starts, side="right")]
    own = np.flatnonzero((array_of(table, "thread")[rows] == thread) & (following < ends) & (ends > starts))
    number = codes[rows][own].astype(np.int64)
    return starts[own], ends[own], first + np.where(number == NONE, len(table["name"].array.categories), number)


def longest(activity: Activity, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each disjoint, sorted query [start, end) of these stretches the name of what was innermost for longest.

    And for how long. Time in which the thread recorded nothing counts as one name.
    """
    query, stretch = overlapping(starts, ends, Intervals(activity.starts, activity.ends))
    shared = np.minimum(activity.ends[stretch], ends[query]) - np.maximum(activity.starts[stretch], starts[query])
    groups = Groups.of({"query": query, "code": activity.code[stretch]}, by_appearance=True)
    code, lengths = groups.keys["code"], groups.sums(shared)
    order = np.lexsort((code == NONE, -lengths, groups.keys["query"]))  # of several that are as long the first
    most = order[np.unique(groups.keys["query"][order], return_index=True)[1]]
    return np.array([*activity.names, NOTHING], dtype=object)[code[most]], lengths[most]


# What each thread of a rank is for, from what it runs.


MAIN, AUTOGRAD, DATA, COLLECTIVES, OTHER = "main", "autograd", "data loader", "collectives", "other"


@memoized_by_trace
def thread_roles(trace: RankTrace) -> Mapping[int, str]:
    """Role of each thread with ranges, operators or Python frames.

    The main thread runs the steps; without steps it is the one with most operators, else with most ranges. Of the
    others, one that runs autograd's nodes is autograd's, one whose ranges are all collectives of the CPU is theirs, one
    whose ranges are all of the data loader's is its.
    """
    ran, thread = (array_of(table, "thread") for table in (trace.host_ops, trace.ranges))
    roles = dict.fromkeys(np.union1d(ran, thread).tolist(), OTHER)
    for role, test in ((COLLECTIVES, host_names.is_cpu_collective), (DATA, host_names.is_data)):
        is_of = rows_named_so(trace.ranges, test)
        if is_of.any():
            roles |= dict.fromkeys(np.setdiff1d(thread[is_of], thread[~is_of]).tolist(), role)
    nodes = rows_named_so(trace.host_ops, host_names.is_autograd_node)
    roles |= dict.fromkeys(np.unique(ran[nodes]).tolist(), AUTOGRAD)
    main = _main(trace)
    return roles | ({main: MAIN} if main is not None else {})


def _main(trace: RankTrace) -> int | None:
    is_step = rows_named_so(trace.ranges, set(trace.steps["name"].cat.categories).__contains__)
    ran, thread = (array_of(table, "thread") for table in (trace.host_ops, trace.ranges))
    for threads in (thread[is_step], ran, thread):
        if len(threads):
            distinct, counts = np.unique(threads, return_counts=True)
            return int(distinct[counts.argmax()])
    return None


@memoized_by_trace
def launching_threads(trace: RankTrace) -> np.ndarray:
    """Host threads that launched at least one of the rank's GPU operations."""
    launch = trace.launch
    return np.unique(array_of(trace.api_calls, "thread")[launch[launch != NONE]])


def thread_of_launch(trace: RankTrace, launch: np.ndarray) -> np.ndarray:
    """Thread of each launching call; -1 where there is none."""
    threads: np.ndarray = np.append(array_of(trace.api_calls, "thread"), NONE)[launch]
    return threads


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
    begins, done = list[np.ndarray](), list[np.ndarray]()
    for frame in (trace.api_calls, trace.host_ops):
        rows = np.isin(array_of(frame, "thread"), threads)
        own_starts, own_ends = arrays_of(frame, "start_ns", "end_ns", rows=rows)
        begins.append(own_starts)
        # What hands a collective over may return after its end.
        done.append(np.where(rows_named_so(frame, _hands_over)[rows], own_starts, own_ends))
    started, ended = (np.concatenate([*own, starts]) for own in (begins, done))
    order = np.argsort(started, kind="stable")
    started, ended = started[order], ended[order]
    first = np.maximum(np.searchsorted(started, starts) - 1, 0)  # what ran when it began
    last = np.searchsorted(started, ends)
    latest = [int(ended[one:other].max(initial=0)) for one, other in zip(first.tolist(), last.tolist(), strict=True)]
    return np.clip(latest, starts, ends)


def _hands_over(name: str) -> bool:
    return name.startswith(_CALLS)
