"""What each thread of a rank's host did: what a timeline draws below the GPU's lanes."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import sums_at
from traceanalyzer.analyses.host.host_activity import API_CALL, FRAME, OPERATOR, RANGE
from traceanalyzer.analyses.host.thread_roles import AUTOGRAD, DATA, MAIN, OTHER, thread_roles
from traceanalyzer.analyses.names import HostEventsColumn
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import outer_first
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, columns_of, table_of

MOST_RANKS = 8
"""Ranks whose threads a page draws."""

MOST_EVENTS = 16_000
"""Events of a rank that are kept, the longest: a page draws fewer."""

MOST_THREADS = 6
"""Threads of a rank that are kept: main, autograd and loader first, then those with most recorded time."""

WHOLE_PCT = 95.0
"""A Python frame that covers this share of the capture (the interpreter, `main`) says nothing, and is left out."""

_ROLES = (MAIN, AUTOGRAD, DATA)

_WHATS = (RANGE, OPERATOR, API_CALL, FRAME)

_WHAT_NAMES = pd.CategoricalDtype(list(_WHATS))


class HostEvents(Result[HostEventsColumn]):
    """One row for each of the longest host events of a rank, thread by thread in order of start."""

    title: ClassVar[str] = "Host threads on the timeline"
    is_detail: ClassVar[bool] = True
    is_event_copy: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "event")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "event": Column.ident("Position among the rank's recorded host events, thread by thread."),
        "thread": Column.ident("The thread's number in the trace."),
        "role": Column.text("main, autograd, data loader, collectives or other."),
        "what": Column.text("range, operator, API call or Python frame."),
        "depth": Column.number("Events around it: Python frames count frames, the others each other."),
        "start_ns": Column.moment("Start on the host."),
        "end_ns": Column.moment("End on the host."),
        "name": Column.text("Name as the trace has it.", written=Written.KERNEL),
        "recorded": Column.count("Events of the rank that are recorded on these threads."),
    }


def per_rank(trace: RankTrace, most_host_events: int = MOST_EVENTS) -> pd.DataFrame:
    """The rank's longest events with how deep they lie in others; none without GPU work, which they are drawn under."""
    if trace.gpu_ops.empty:
        return pd.DataFrame()
    threads = _threads(trace)
    tables, texts = _recorded(trace)
    least_ns = trace.window.length_ns * WHOLE_PCT / 100
    parts = [_of_thread(tables, thread, least_ns, most_host_events) for thread, _ in threads]
    sizes = [count for count, _ in parts]
    if not sum(sizes):
        return pd.DataFrame()
    columns = {name: np.concatenate([own[name] for _, own in parts]) for name in parts[0][1]}
    place = np.repeat(np.arange(len(threads)), [len(own["event"]) for _, own in parts])
    columns["event"] += np.array([0, *np.cumsum(sizes)])[place]
    longest = _longest(columns["end_ns"] - columns["start_ns"], most_host_events)
    columns, place = {name: values[longest] for name, values in columns.items()}, place[longest]
    roles = sorted({role for _, role in threads})
    role_of = np.array([roles.index(role) for _, role in threads])
    return table_of(
        {
            **{name: columns[name] for name in ("start_ns", "end_ns")},
            "name": pd.Categorical.from_codes(columns["name"], categories=pd.Index(texts, dtype="str")),
            "what": pd.Categorical.from_codes(columns["what"], dtype=_WHAT_NAMES),
            "depth": columns["depth"],
            "thread": np.array([thread for thread, _ in threads], dtype=np.int64)[place],
            "role": pd.Categorical.from_codes(role_of[place], categories=roles),
            "event": columns["event"],
            "recorded": sum(sizes),
        }
    )


def across(parts: Mapping[int, pd.DataFrame]) -> HostEvents:
    """The ranks' events under each other."""
    return HostEvents(stack(parts, tuple(HostEvents.columns)))


def _threads(trace: RankTrace) -> list[tuple[int, str]]:
    """Threads with recorded events and their roles, in the order in which they are drawn."""
    roles = thread_roles(trace)
    tables = (trace.host_ops, trace.api_calls, trace.ranges, trace.frames)
    spent = dict.fromkeys(roles, 0)
    for table in tables:
        place, threads = pd.factorize(array_of(table, "thread"))
        sums = sums_at(place, array_of(table, "end_ns") - array_of(table, "start_ns"), len(threads))
        for thread, time_ns in zip(threads.tolist(), sums.tolist(), strict=True):
            if thread in spent:
                spent[thread] += time_ns
    order = sorted(
        roles, key=lambda thread: (_ROLES.index(roles[thread]) if roles[thread] in _ROLES else 9, -spent[thread])
    )
    return [(thread, roles.get(thread, OTHER)) for thread in order[:MOST_THREADS]]


def _recorded(trace: RankTrace) -> tuple[list[dict[str, Any]], list[str]]:
    """Columns of each sort of events, in order of `_WHATS`; and all names, in which `place` says where each code is."""
    place: dict[str, int] = {}
    tables = []
    for table in (trace.ranges, trace.host_ops, trace.api_calls, trace.frames):
        columns = columns_of(table)
        names = columns["name"]
        codes = [place.setdefault(name, len(place)) for name in names.categories.tolist()]
        times = {name: columns[name] for name in ("start_ns", "end_ns", "thread")}
        tables.append({**times, "code": names.codes, "place": np.array([*codes, NONE], dtype=np.int64)})
    return tables, list(place)


def _of_thread(
    tables: Sequence[Mapping[str, Any]], thread: int, least_ns: float, most: int
) -> tuple[int, dict[str, np.ndarray]]:
    """How many events the thread has, Python frames last, and the longest with their places among them.

    How deep each lies in others counts frames for frames, for others the others. Without frames of `least_ns` and more.
    """
    rows = [np.flatnonzero(table["thread"] == thread) for table in tables]
    frames = tables[-1]
    rows[-1] = rows[-1][(frames["end_ns"] - frames["start_ns"])[rows[-1]] < least_ns]
    calls, count = _nested(tables, [*rows[:-1], rows[-1][:0]], most), sum(map(len, rows[:-1]))
    inside = _nested(tables, [*(own[:0] for own in rows[:-1]), rows[-1]], most)
    inside["event"] += count
    return count + len(rows[-1]), {name: np.concatenate([own, inside[name]]) for name, own in calls.items()}


def _nested(tables: Sequence[Mapping[str, Any]], rows: Sequence[np.ndarray], most: int) -> dict[str, np.ndarray]:
    """The longest of these rows, each with its place in order of start, outer ones first.

    Its depth is the number of those that are still open then.
    """
    starts, ends = (np.concatenate([table[name][own] for table, own in zip(tables, rows, strict=True)])
                    for name in ("start_ns", "end_ns"))  # fmt: skip
    order = outer_first(starts, ends)
    event = _longest((ends - starts)[order], most)
    held = order[event]
    before = np.cumsum([0, *map(len, rows)])
    what = np.searchsorted(before, held, side="right") - 1
    name = np.empty(len(held), dtype=np.int64)
    for number, (table, own) in enumerate(zip(tables, rows, strict=True)):
        mine = np.flatnonzero(what == number)
        name[mine] = table["place"][table["code"][own[held[mine] - before[number]]]]
    starts, until = starts[held], ends[held]
    ends.sort()
    depth = event - np.searchsorted(ends, starts, side="right")
    return {"start_ns": starts, "end_ns": until, "name": name, "what": what, "depth": depth, "event": event}


def _longest(lengths: np.ndarray, most: int) -> np.ndarray:
    """Places of the longest, in order; of those as long the first.

    What contains a long event is longer, so that no event loses what it lies in.
    """
    if len(lengths) <= most:
        return np.arange(len(lengths))
    if not most:
        return np.empty(0, dtype=np.int64)
    least = np.partition(lengths, len(lengths) - most)[len(lengths) - most]
    longer, equal = np.flatnonzero(lengths > least), np.flatnonzero(lengths == least)
    return np.sort(np.concatenate([longer, equal[: most - len(longer)]]))
