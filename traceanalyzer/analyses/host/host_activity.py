"""What a host thread was doing at each time: the innermost recorded call, operator or range."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import joined, taken
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.analyses.time.intervals import Intervals, stable_order
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import table_of

NOTHING = "(nothing recorded)"

UNNAMED = "(unnamed)"

SYNC, API_CALL, OPERATOR, RANGE = "synchronising call", "API call", "operator", "range"

FRAME = "Python frame"

_WHAT = pd.CategoricalDtype([SYNC, API_CALL, OPERATOR, RANGE, FRAME])

_CODE = {what: code for code, what in enumerate(_WHAT.categories)}


@dataclass(frozen=True, slots=True)
class Activity:
    """Disjoint stretches of one thread, in order; `row` of `events` is the innermost event in each, or -1."""

    starts: np.ndarray
    ends: np.ndarray
    row: np.ndarray
    events: pd.DataFrame


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
    rows = [_within(frame, thread, busy) for frame, _ in tables]
    held = [(frame, own) for (frame, _), own in zip(tables, rows, strict=True)]
    names = joined([frame["name"].array[own] for frame, own in held])
    what = np.repeat([_CODE[what] for _, what in tables], [len(own) for own in rows])
    is_sync = (what == _CODE[API_CALL]) & host_names.mask_of(names, host_names.is_sync)
    what = np.where(is_sync, _CODE[SYNC], what)
    begins, until = (
        np.concatenate([frame[name].to_numpy()[own] for frame, own in held]) for name in ("start_ns", "end_ns")
    )
    columns = {"start_ns": begins, "end_ns": until, "name": names, "what": pd.Categorical.from_codes(what, dtype=_WHAT)}
    return Activity(*innermost(begins, until), table_of(columns))


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


def longest(activity: Activity, starts: np.ndarray, ends: np.ndarray) -> pd.DataFrame:
    """For each disjoint, sorted query [start, end) the name that was innermost for longest: `name`, `what`, `ns`.

    Time in which the thread recorded nothing counts as one name.
    """
    query, stretch = _overlapping_pairs(activity, starts, ends)
    shared = np.minimum(activity.ends[stretch], ends[query]) - np.maximum(activity.starts[stretch], starts[query])
    row = activity.row[stretch]
    held = row != NONE
    query, row, shared = query[held], row[held], shared[held]
    names_of, what = activity.events["name"].array, activity.events["what"].array
    kinds = len(what.categories)
    # One number stands for a name and what it is, as texts are slow to group by: 0… without a name, -1 for nothing.
    label = (names_of.codes.astype(np.int64)[row] + 1) * kinds + what.codes[row]
    groups = Groups.of({"query": query, "label": label}, ["query", "label"], by_appearance=True)
    recorded = np.zeros(len(starts), dtype=np.int64)
    np.add.at(recorded, query, shared)
    queries = np.append(groups.keys["query"], np.arange(len(starts)))
    labels = np.append(groups.keys["label"], np.full(len(starts), NONE))
    lengths = np.append(groups.sums(shared), ends - starts - recorded)
    order = np.lexsort((-lengths, queries))
    best = order[np.unique(queries[order], return_index=True)[1]]
    name, what_code = np.divmod(labels[best], kinds)
    names = np.array([UNNAMED, *names_of.categories.tolist(), NOTHING], dtype=object)
    whats = np.array([*what.categories, None], dtype=object)
    return table_of({"name": names[name], "what": whats[np.where(name < 0, -1, what_code)], "ns": lengths[best]})


def range_around(ranges: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Position in `ranges` of the innermost one of the same thread that holds each time, or -1."""
    answer = np.full(len(times), NONE, dtype=np.int64)
    of_thread = ranges["thread"].to_numpy()
    for thread in np.intersect1d(of_thread, threads):
        own, asked = np.flatnonzero(of_thread == thread), np.flatnonzero(threads == thread)
        starts, ends = ranges["start_ns"].to_numpy()[own], ranges["end_ns"].to_numpy()[own]
        position = innermost_at(starts, ends, times[asked])
        answer[asked] = np.where(position == NONE, NONE, own[position])
    return answer


def names_around(events: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Name of the innermost event of the same thread that holds each time; `None` where none does."""
    row = range_around(events, threads, times)
    around: np.ndarray = taken(events["name"].array, row).astype("object")
    around[pd.isna(around)] = None
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
    is_step = trace.ranges["name"].isin(trace.steps["name"].cat.categories).to_numpy()
    return trace.ranges[is_place & ~is_step].reset_index(drop=True)


def innermost_at(starts: np.ndarray, ends: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Position of the innermost interval that holds each time, -1 where none does."""
    stretch_starts, stretch_ends, row = innermost(starts, ends)
    if not len(stretch_starts):
        return np.full(len(times), NONE, dtype=np.int64)
    at = np.searchsorted(stretch_starts, times, side="right") - 1
    return np.where((at >= 0) & (times < stretch_ends[at]), row[at], NONE)


def _within(frame: pd.DataFrame, thread: int, busy: Intervals) -> np.ndarray:
    """Rows of the thread's events that overlap `busy`."""
    rows = np.flatnonzero(frame["thread"].to_numpy() == thread)
    starts, ends = frame["start_ns"].to_numpy()[rows], frame["end_ns"].to_numpy()[rows]
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
