"""What each CPU thread was doing at each time: the innermost recorded call, operator or range."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.grouping import (
    MOST_ROWS,
    Groups,
    extreme_at,
    memoized_by_tables,
    memoized_by_trace,
    stable_order,
    time_blocks,
)
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, columns_of, outer_first, picked, rows_named, rows_named_so

# Nested intervals cut into disjoint stretches, block by block in order of time.


_NONE = np.empty(0, dtype=np.int64)


class Cutter:
    """Cuts intervals that come in blocks, by their starts, into stretches with the label of the innermost one.

    Stretches inside none have the label -1; before the first and after the last interval there is none.
    """

    def __init__(self) -> None:
        self._open_ends = _NONE
        """Of the intervals that have begun and not ended, in order of start."""
        self._started = _NONE
        """By depth from the outermost on the label of the last interval that began at it."""
        self._last = (_NONE, _NONE)
        """The last cut and the label after it, if there was one."""

    def cut(
        self, starts: np.ndarray, ends: np.ndarray, labels: np.ndarray, until_ns: int | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts, ends and labels of the stretches up to the last start or end before `until_ns`, in `None` of all.

        Args:
            starts: of the intervals that begin before `until_ns` and in no block before.
            ends: theirs; all are later than the start.
            labels: theirs, from 0 on.
            until_ns: where the next block begins.
        """
        order = outer_first(starts, ends)
        starts, labels = starts[order], labels[order]
        reach = np.concatenate([self._open_ends, ends[order]])
        # At one time: ends before starts; outer starts first, inner ends first. A stable sort keeps this order.
        is_ended = np.ones(len(reach), dtype=bool) if until_ns is None else reach < until_ns
        ended = reach[is_ended][::-1]
        times = np.concatenate([ended, starts])
        order = np.argsort(times, kind="stable")
        is_start = order >= len(ended)
        begun = len(self._open_ends)
        depth = np.concatenate([np.arange(1, begun + 1), begun + np.cumsum(np.where(is_start, 1, -1))])
        label = np.concatenate([self._started, np.append(np.full(len(ended), NONE), labels)[order]])
        cuts = np.concatenate([self._last[0], times[order]])
        inner = np.concatenate([self._last[1], _last_started_at_depth(depth, label)[begun:]])
        self._open_ends, self._started = reach[~is_ended], _by_depth(depth, label, int((~is_ended).sum()))
        self._last = cuts[-1:], inner[-1:]
        held = cuts[1:] > cuts[:-1]
        return cuts[:-1][held], cuts[1:][held], inner[:-1][held]


def _last_started_at_depth(depth: np.ndarray, label: np.ndarray) -> np.ndarray:
    """After each event, the label of the last interval that was started at the depth that is left; -1 at depth 0."""
    order = stable_order(depth)
    started = np.where(label[order] != NONE, np.arange(len(order)), 0)
    last = np.maximum.accumulate(started)
    found = np.empty(len(order), dtype=np.int64)
    found[order] = label[order][last]
    return np.where(depth == 0, NONE, found)


def _by_depth(depth: np.ndarray, label: np.ndarray, deepest: int) -> np.ndarray:
    """The label that was started last at each depth from 1 on."""
    rows = np.flatnonzero((label != NONE) & (depth <= deepest))
    found = np.full(deepest, NONE, dtype=np.int64)
    found[depth[rows] - 1] = label[rows]
    return found


# What a host thread was doing at each time: the innermost recorded call, operator or range.


NOTHING = "(nothing recorded)"

UNNAMED = "(unnamed)"

SYNC, API_CALL, OPERATOR, RANGE = "synchronising call", "API call", "operator", "range"

FRAME = "Python frame"

WHATS = (SYNC, API_CALL, OPERATOR, RANGE, FRAME)


class Activity(Struct, frozen=True):
    """Disjoint stretches of one thread, in order, with what is innermost in each.

    Attributes:
        starts: of the stretches.
        ends: of the stretches.
        code: position of the innermost event's name in `names`; -1 without one.
        what: position in `WHATS` of what the event is; -1 where nothing is recorded.
        names: names of each sort of events after each other.
    """

    starts: np.ndarray
    ends: np.ndarray
    code: np.ndarray
    what: np.ndarray
    names: list[str]


def thread_activity(
    trace: RankTrace, thread: int, starts: np.ndarray, ends: np.ndarray
) -> Iterator[tuple[slice, Activity]]:
    """The innermost recorded event of a thread at each time, for the events that overlap these stretches [start, end).

    They are disjoint, and in order. Block after block come some of them, with all that they overlap of what was done.

    Events nest: a call inside an operator inside a range. Where ranges cross instead (NVTX start/end ranges), the
    one that began last counts as the innermost.
    """
    tables = ((trace.api_calls, API_CALL), (trace.host_ops, OPERATOR), (trace.ranges, RANGE))
    return _by_query(_activity(tables, thread, Intervals.of(starts, ends)), starts, ends)


def activity_of(
    trace: RankTrace, thread: int, starts: np.ndarray, ends: np.ndarray
) -> Iterator[tuple[slice, Activity]]:
    """The same with Python frames among the events, where they were recorded."""
    tables = ((trace.api_calls, API_CALL), (trace.host_ops, OPERATOR), (trace.ranges, RANGE), (trace.frames, FRAME))
    return _by_query(_activity(tables, thread, Intervals.of(starts, ends)), starts, ends)


def _activity(tables: Sequence[tuple[pd.DataFrame, str]], thread: int, busy: Intervals) -> Iterator[Activity]:
    """All the thread's stretches between the first and the last of the events that overlap `busy`, block by block."""
    held = [_events(frame, what=what) for frame, what in tables]
    names = [name for own in held for name in own.names]
    before = np.cumsum([0, *(len(own.names) for own in held[:-1])]).tolist()
    cutter = Cutter()
    for rows, until_ns in time_blocks([own.starts for own in held]):
        parts = [own.inside(at, thread, busy, first) for own, at, first in zip(held, rows, before, strict=True)]
        starts, ends, label = (np.concatenate(each) for each in zip(*parts, strict=True))
        starts, ends, label = cutter.cut(starts, ends, label, until_ns)
        code, what = np.divmod(label, len(WHATS))
        is_none = label == NONE
        yield Activity(starts, ends, np.where(is_none, NONE, code - 1), np.where(is_none, NONE, what), names)


class _Events(Struct, frozen=True):
    """A table's columns, what its rows are by code of their names, and these names."""

    starts: np.ndarray
    ends: np.ndarray
    threads: np.ndarray
    codes: np.ndarray
    names: list[str]
    what_of_code: np.ndarray

    @classmethod
    def of(cls, frame: pd.DataFrame, what: str) -> "_Events":
        columns = columns_of(frame)
        starts, ends, threads, called = (columns[name] for name in ("start_ns", "end_ns", "thread", "name"))
        names = called.categories.tolist()
        is_sync = np.array([*(what == API_CALL and host_names.is_sync(name) for name in names), False], dtype=bool)
        return cls(starts, ends, threads, called.codes, names, np.where(is_sync, WHATS.index(SYNC), WHATS.index(what)))

    def inside(
        self, rows: slice, thread: int, busy: Intervals, names_before: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts and ends of those rows that are the thread's and overlap `busy`, and a number for name and sort."""
        own = _within(self.starts, self.ends, rows.start + np.flatnonzero(self.threads[rows] == thread), busy)
        code = self.codes[own].astype(np.int64)
        number = np.where(code == NONE, 0, code + names_before + 1)
        return self.starts[own], self.ends[own], number * len(WHATS) + self.what_of_code[code]


@memoized_by_tables
def _events(frame: pd.DataFrame, *, what: str) -> _Events:
    return _Events.of(frame, what)


def _by_query(blocks: Iterable[Activity], starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[slice, Activity]]:
    """The queries [start, end) that have ended where a block does, and all stretches that they overlap."""
    done, held = 0, None
    for block in blocks:
        held = block if held is None else _with_more(held, block)
        if len(held.ends):
            past = int(ends.searchsorted(held.ends[-1], side="right"))
            if past > done:
                yield slice(done, past), held
                done = past
            held = _since(held, starts[done] if done < len(starts) else held.ends[-1])
    if held is not None and done < len(starts):
        yield slice(done, len(starts)), held


def _with_more(first: Activity, then: Activity) -> Activity:
    starts, ends, code, what = (np.concatenate(each) for each in zip(_columns(first), _columns(then), strict=True))
    return Activity(starts, ends, code, what, first.names)


def _since(activity: Activity, time_ns: int) -> Activity:
    """The stretches that end later."""
    first = int(activity.ends.searchsorted(time_ns, side="right"))
    starts, ends, code, what = (own[first:] for own in _columns(activity))
    return Activity(starts, ends, code, what, activity.names)


def _columns(activity: Activity) -> tuple[np.ndarray, ...]:
    return activity.starts, activity.ends, activity.code, activity.what


def innermost(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut nested intervals into disjoint stretches: their starts, ends, and the innermost interval's position.

    Stretches inside none have position -1; before the first and after the last interval there is none.
    """
    rows = np.flatnonzero(ends > starts)
    rows = rows[np.argsort(starts[rows], kind="stable")]
    cutter = Cutter()
    parts = [
        cutter.cut(starts[rows[block]], ends[rows[block]], rows[block], until_ns)
        for (block,), until_ns in time_blocks([starts[rows]])
    ]
    begins, until, row = (np.concatenate(each) for each in zip(*parts, strict=True))
    return begins, until, row


def longest(activity: Activity, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each disjoint, sorted query [start, end) what was innermost for longest: its name, what it is, for how long.

    Time in which the thread recorded nothing counts as one name.
    """
    query, stretch = _overlapping_pairs(activity, starts, ends)
    shared = np.minimum(activity.ends[stretch], ends[query]) - np.maximum(activity.starts[stretch], starts[query])
    held = activity.what[stretch] != NONE
    query, stretch, shared = query[held], stretch[held], shared[held]
    # One number stands for a name and what it is, as texts are slow to group by.
    label = (activity.code[stretch] + 1) * len(WHATS) + activity.what[stretch]
    groups = Groups.of({"query": query, "label": label}, ["query", "label"], by_appearance=True)
    lengths, of_query = groups.sums(shared), query[groups.first]
    most, of_nothing = extreme_at(np.maximum, of_query, lengths, len(starts)), ends - starts
    np.subtract.at(of_nothing, of_query, lengths)
    # The first of several that are as long.
    is_most = np.flatnonzero((lengths == most[of_query]) & (lengths >= of_nothing[of_query]))
    told, first = np.unique(of_query[is_most], return_index=True)
    stretch = stretch[groups.first[is_most[first]]]
    names, whats = (np.full(len(starts), value, dtype=object) for value in (NOTHING, np.nan))
    names[told] = np.array([*activity.names, UNNAMED], dtype=object)[activity.code[stretch]]
    whats[told] = np.array(WHATS, dtype=object)[activity.what[stretch]]
    return names, whats, np.maximum(most, of_nothing)


def range_around(ranges: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Position in `ranges` of the innermost one of the same thread that holds each time, or -1."""
    answer = np.full(len(times), NONE, dtype=np.int64)
    of_thread = array_of(ranges, "thread")
    for thread in {*np.unique(of_thread).tolist()} & {*np.unique(threads).tolist()}:
        asked = np.flatnonzero(threads == thread)
        is_small = len(ranges) <= MOST_ROWS  # what is large is not held for who may ask again
        around = _around(ranges, thread=thread) if is_small else Around.of(ranges, thread)
        answer[asked] = around.at(times[asked])
    return answer


class Around(Struct, frozen=True):
    """One thread's disjoint stretches [start, end), in order, with the row of the innermost event in each, or -1."""

    starts: np.ndarray
    ends: np.ndarray
    row: np.ndarray

    @classmethod
    def of(cls, events: pd.DataFrame, thread: int) -> "Around":
        """Of the thread's rows of a table."""
        own = np.flatnonzero(array_of(events, "thread") == thread)
        starts, ends, position = innermost(array_of(events, "start_ns")[own], array_of(events, "end_ns")[own])
        return cls(starts, ends, np.append(own, NONE)[position])

    def at(self, times: np.ndarray) -> np.ndarray:
        """The row of the innermost event that holds each time, -1 where none does."""
        if not len(self.starts):
            return np.full(len(times), NONE, dtype=np.int64)
        place = np.searchsorted(self.starts, times, side="right") - 1
        return np.where((place >= 0) & (times < self.ends[place]), self.row[place], NONE)


@memoized_by_tables
def _around(events: pd.DataFrame, *, thread: int) -> Around:
    """What the thread is in, whenever: many analyses ask it of the same ranges."""
    return Around.of(events, thread)


def names_around(events: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Name of the innermost event of the same thread that holds each time; `None` where none does."""
    row = range_around(events, threads, times)
    names = events["name"].array
    return np.array([*names.categories.tolist(), None], dtype=object)[np.append(names.codes, NONE)[row]]


def names_around_launches(events: pd.DataFrame, trace: RankTrace, launch: np.ndarray) -> np.ndarray:
    """The same at the start of API calls, given by their rows; `None` for row -1."""
    answer = np.full(len(launch), None, dtype=object)
    has = launch != NONE
    threads, starts = (array_of(trace.api_calls, name)[launch[has]] for name in ("thread", "start_ns"))
    answer[has] = names_around(events, threads, starts)
    return answer


@memoized_by_trace
def user_ranges(trace: RankTrace) -> pd.DataFrame:
    """Ranges that say where in the program the host is: neither steps nor communication calls."""
    is_place = rows_named_so(trace.ranges, host_names.is_user_range)
    is_step = rows_named(trace.ranges, "name", *trace.steps["name"].array.categories.tolist())
    return picked(trace.ranges, is_place & ~is_step)


def innermost_at(starts: np.ndarray, ends: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Position of the innermost interval that holds each time, -1 where none does."""
    return Around(*innermost(starts, ends)).at(times)


def _within(starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, busy: Intervals) -> np.ndarray:
    """Those of the rows whose events overlap `busy`."""
    starts, ends = starts[rows], ends[rows]
    ending = busy.ends.searchsorted(starts, side="right")
    is_inside = np.append(busy.starts, np.iinfo(np.int64).max)[ending] < ends
    return rows[is_inside & (ends > starts)]


def _overlapping_pairs(activity: Activity, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first = np.searchsorted(activity.ends, starts, side="right")
    past = np.searchsorted(activity.starts, ends, side="left")
    count = np.maximum(past - first, 0)
    query = np.repeat(np.arange(len(starts)), count)
    offset = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count)
    return query, np.repeat(first, count) + offset


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
