"""What a host thread was doing at each time: the innermost recorded call, operator or range."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups, extreme_at
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.analyses.time.intervals import Intervals, stable_order
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of, picked

NOTHING = "(nothing recorded)"

UNNAMED = "(unnamed)"

SYNC, API_CALL, OPERATOR, RANGE = "synchronising call", "API call", "operator", "range"

FRAME = "Python frame"

WHATS = (SYNC, API_CALL, OPERATOR, RANGE, FRAME)


@dataclass(frozen=True, slots=True)
class Activity:
    """Disjoint stretches of one thread, in order, with the innermost event in each.

    Attributes:
        starts: of the stretches.
        ends: of the stretches.
        row: position of the innermost event, or -1.
        code: of each event the position of its name in `names`; -1 without one.
        what: of each event the position of what it is in `WHATS`.
        names: names of each sort of events after each other.
    """

    starts: np.ndarray
    ends: np.ndarray
    row: np.ndarray
    code: np.ndarray
    what: np.ndarray
    names: list[str]


def thread_activity(trace: RankTrace, thread: int, busy: Intervals) -> Activity:
    """The innermost recorded event of a thread at each time, for the events that overlap `busy`.

    Events nest: a call inside an operator inside a range. Where ranges cross instead (NVTX start/end ranges), the
    one that began last counts as the innermost.
    """
    return _activity(((trace.api_calls, API_CALL), (trace.host_ops, OPERATOR), (trace.ranges, RANGE)), thread, busy)


def activity_of(trace: RankTrace, thread: int, busy: Intervals) -> Activity:
    """The same with Python frames among the events, where they were recorded."""
    tables = ((trace.api_calls, API_CALL), (trace.host_ops, OPERATOR), (trace.ranges, RANGE), (trace.frames, FRAME))
    return _activity(tables, thread, busy)


def _activity(tables: Sequence[tuple[pd.DataFrame, str]], thread: int, busy: Intervals) -> Activity:
    parts: list[tuple[np.ndarray, ...]] = []
    names: list[str] = []
    for frame, what in tables:
        columns = columns_of(frame)
        starts, ends, called = (columns[name] for name in ("start_ns", "end_ns", "name"))
        rows = _within(starts, ends, np.flatnonzero(columns["thread"] == thread), busy)
        code = called.codes[rows].astype(np.int64)
        own = called.categories.tolist()
        are = np.full(len(rows), WHATS.index(what))
        if what == API_CALL:
            are[np.array([*map(host_names.is_sync, own), False], dtype=bool)[code]] = WHATS.index(SYNC)
        parts.append((starts[rows], ends[rows], np.where(code == NONE, NONE, code + len(names)), are))
        names += own
    begins, until, code, are = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Activity(*innermost(begins, until), code, are, names)


def innermost(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut nested intervals into disjoint stretches: their starts, ends, and the innermost interval's position.

    Stretches inside none have position -1; before the first and after the last interval there is none.
    """
    rows = np.flatnonzero(ends > starts)
    rows = rows[np.lexsort((-ends[rows], starts[rows]))]
    found = [_innermost(starts, ends, rows[block]) for block in _apart(starts[rows], ends[rows])]
    # Between two blocks nothing is open.
    gaps = [(before[1][-1:], after[0][:1], np.array([NONE])) for before, after in pairwise(found)]
    parts = [part for pair in zip_longest(found, gaps, fillvalue=_NO_STRETCH) for part in pair]
    begins, until, row = (np.concatenate(each) for each in zip(*parts or [_NO_STRETCH], strict=True))
    held = until > begins
    return (begins, until, row) if held.all() else (begins[held], until[held], row[held])


_NO_STRETCH = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

_AT_ONCE = 1 << 17
"""Intervals that are cut at a time, more where all are inside one: on the way they need ten times their memory."""


def _apart(starts: np.ndarray, ends: np.ndarray) -> Iterator[slice]:
    """Blocks of intervals, sorted by start, of which none reaches into the next."""
    cuts = np.flatnonzero(starts[1:] >= np.maximum.accumulate(ends)[:-1]) + 1
    begin = 0
    while begin < len(starts):
        place = int(np.searchsorted(cuts, begin + _AT_ONCE))
        until = int(cuts[place]) if place < len(cuts) else len(starts)
        yield slice(begin, until)
        begin = until


def _innermost(starts: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of some intervals, by their positions in order of start."""
    count = len(rows)
    # At one time: ends before starts; outer starts first, inner ends first. A stable sort keeps this order.
    times = np.concatenate([ends[rows[::-1]], starts[rows]])
    order = np.argsort(times, kind="stable")
    is_start = order >= count
    depth = np.cumsum(np.where(is_start, 1, -1))
    event_row = np.where(is_start, rows[order - count], NONE)
    row = _last_started_at_depth(depth, event_row)
    cut = times[order]
    held = cut[1:] > cut[:-1]
    return cut[:-1][held], cut[1:][held], row[:-1][held]


def longest(activity: Activity, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each disjoint, sorted query [start, end) what was innermost for longest: its name, what it is, for how long.

    Time in which the thread recorded nothing counts as one name.
    """
    query, stretch = _overlapping_pairs(activity, starts, ends)
    shared = np.minimum(activity.ends[stretch], ends[query]) - np.maximum(activity.starts[stretch], starts[query])
    row = activity.row[stretch]
    held = row != NONE
    query, row, shared = query[held], row[held], shared[held]
    # One number stands for a name and what it is, as texts are slow to group by.
    label = (activity.code[row] + 1) * len(WHATS) + activity.what[row]
    groups = Groups.of({"query": query, "label": label}, ["query", "label"], by_appearance=True)
    lengths, of_query = groups.sums(shared), query[groups.first]
    most, of_nothing = extreme_at(np.maximum, of_query, lengths, len(starts)), ends - starts
    np.subtract.at(of_nothing, of_query, lengths)
    # The first of several that are as long.
    is_most = np.flatnonzero((lengths == most[of_query]) & (lengths >= of_nothing[of_query]))
    told, first = np.unique(of_query[is_most], return_index=True)
    row = row[groups.first[is_most[first]]]
    names, whats = (np.full(len(starts), value, dtype=object) for value in (NOTHING, np.nan))
    names[told] = np.array([*activity.names, UNNAMED], dtype=object)[activity.code[row]]
    whats[told] = np.array(WHATS, dtype=object)[activity.what[row]]
    return names, whats, np.maximum(most, of_nothing)


def range_around(ranges: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Position in `ranges` of the innermost one of the same thread that holds each time, or -1."""
    answer = np.full(len(times), NONE, dtype=np.int64)
    starts, ends, of_thread = (ranges[name].to_numpy() for name in ("start_ns", "end_ns", "thread"))
    for thread in {*pd.unique(of_thread).tolist()} & {*pd.unique(threads).tolist()}:
        own, asked = np.flatnonzero(of_thread == thread), np.flatnonzero(threads == thread)
        position = innermost_at(starts[own], ends[own], times[asked])
        answer[asked] = np.where(position == NONE, NONE, own[position])
    return answer


def names_around(events: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Name of the innermost event of the same thread that holds each time; `None` where none does."""
    row = range_around(events, threads, times)
    names: Any = events["name"].array
    around: np.ndarray = np.array([*names.categories.tolist(), None], dtype=object)[np.append(names.codes, NONE)[row]]
    return around


def names_around_launches(events: pd.DataFrame, trace: RankTrace, launch: np.ndarray) -> np.ndarray:
    """The same at the start of API calls, given by their rows; `None` for row -1."""
    answer = np.full(len(launch), None, dtype=object)
    has = launch != NONE
    threads, starts = (trace.api_calls[name].to_numpy()[launch[has]] for name in ("thread", "start_ns"))
    answer[has] = names_around(events, threads, starts)
    return answer


@once_a_trace
def user_ranges(trace: RankTrace) -> pd.DataFrame:
    """Ranges that say where in the program the host is: neither steps nor communication calls."""
    is_place = host_names.matches(trace.ranges["name"], host_names.is_user_range)
    of_steps = set(trace.steps["name"].cat.categories)
    return picked(trace.ranges, is_place & ~host_names.matches(trace.ranges["name"], of_steps.__contains__))


def innermost_at(starts: np.ndarray, ends: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Position of the innermost interval that holds each time, -1 where none does."""
    stretch_starts, stretch_ends, row = innermost(starts, ends)
    if not len(stretch_starts):
        return np.full(len(times), NONE, dtype=np.int64)
    at = np.searchsorted(stretch_starts, times, side="right") - 1
    return np.where((at >= 0) & (times < stretch_ends[at]), row[at], NONE)


def _within(starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, busy: Intervals) -> np.ndarray:
    """Those of the rows whose events overlap `busy`."""
    starts, ends = starts[rows], ends[rows]
    ending = busy.ends.searchsorted(starts, side="right")
    is_inside = np.append(busy.starts, np.iinfo(np.int64).max)[ending] < ends
    overlapping: np.ndarray = rows[is_inside & (ends > starts)]
    return overlapping


def _last_started_at_depth(depth: np.ndarray, event_row: np.ndarray) -> np.ndarray:
    """After each event, the last interval that was started at the depth that is left; -1 at depth 0."""
    order = stable_order(depth)
    started = np.where(event_row[order] != NONE, np.arange(len(order)), 0)
    last = np.maximum.accumulate(started)
    row = np.empty(len(order), dtype=np.int64)
    row[order] = event_row[order][last]
    return np.where(depth == 0, NONE, row)


def _overlapping_pairs(activity: Activity, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first = np.searchsorted(activity.ends, starts, side="right")
    past = np.searchsorted(activity.starts, ends, side="left")
    count = np.maximum(past - first, 0)
    query = np.repeat(np.arange(len(starts)), count)
    offset = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count)
    return query, np.repeat(first, count) + offset
