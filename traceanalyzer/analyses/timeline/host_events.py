"""What each thread of a rank's host did: what a timeline draws below the GPU's lanes."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import sums_at
from traceanalyzer.analyses.host.host_activity import API_CALL, FRAME, OPERATOR, RANGE
from traceanalyzer.analyses.host.thread_roles import AUTOGRAD, DATA, MAIN, OTHER, thread_roles
from traceanalyzer.analyses.names import HostEventsColumn
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of, table_of

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
    events, texts = _recorded(trace)
    least_ns = trace.window.length_ns * WHOLE_PCT / 100
    parts = [_of_thread(events, thread, least_ns) for thread, _ in threads]
    sizes = [len(own["start_ns"]) for own in parts]
    if not sum(sizes):
        return pd.DataFrame()
    columns = {name: np.concatenate([own[name] for own in parts]) for name in parts[0]}
    place = np.repeat(np.arange(len(threads)), sizes)
    event = np.arange(len(place))
    if len(place) > most_host_events:
        # By length: what contains a long event is longer, so that no event loses what it lies in.
        longest = np.argsort(-(columns["end_ns"] - columns["start_ns"]), kind="stable")[:most_host_events]
        event = np.sort(longest)
    roles = sorted({role for _, role in threads})
    role_of = np.array([roles.index(role) for _, role in threads])
    return table_of(
        {
            **{name: columns[name][event] for name in ("start_ns", "end_ns")},
            "name": pd.Categorical.from_codes(columns["name"][event], categories=pd.Index(texts, dtype="str")),
            "what": pd.Categorical.from_codes(columns["what"][event], dtype=_WHAT_NAMES),
            "depth": columns["depth"][event],
            "thread": np.array([thread for thread, _ in threads], dtype=np.int64)[place[event]],
            "role": pd.Categorical.from_codes(role_of[place[event]], categories=roles),
            "event": event,
            "recorded": len(place),
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
        place, threads = pd.factorize(table["thread"].to_numpy())
        sums = sums_at(place, table["end_ns"].to_numpy() - table["start_ns"].to_numpy(), len(threads))
        for thread, time_ns in zip(threads.tolist(), sums.tolist(), strict=True):
            if thread in spent:
                spent[thread] += time_ns
    order = sorted(
        roles, key=lambda thread: (_ROLES.index(roles[thread]) if roles[thread] in _ROLES else 9, -spent[thread])
    )
    return [(thread, roles.get(thread, OTHER)) for thread in order[:MOST_THREADS]]


def _recorded(trace: RankTrace) -> tuple[dict[str, dict[str, np.ndarray]], list[str]]:
    """Columns of each sort of events, with the position of its name among all names, which come second."""
    tables = {RANGE: trace.ranges, OPERATOR: trace.host_ops, API_CALL: trace.api_calls, FRAME: trace.frames}
    place: dict[str, int] = {}
    events = {}
    for what, table in tables.items():
        columns = columns_of(table)
        names = columns["name"]
        codes = [place.setdefault(name, len(place)) for name in names.categories.tolist()]
        events[what] = {
            **{name: columns[name] for name in ("start_ns", "end_ns", "thread")},
            "name": np.array([*codes, NONE], dtype=np.int64)[names.codes],
            "what": np.full(len(table), _WHATS.index(what)),
        }
    return events, list(place)


def _of_thread(events: Mapping[str, Mapping[str, np.ndarray]], thread: int, least_ns: float) -> dict[str, np.ndarray]:
    """The thread's events, Python frames last, with how deep each lies in others of the same sort.

    Without frames of `least_ns` and more.
    """
    calls = _nested(_own([events[what] for what in (RANGE, OPERATOR, API_CALL)], thread))
    frames = _own([events[FRAME]], thread)
    is_part = frames["end_ns"] - frames["start_ns"] < least_ns
    nested = _nested({name: values[is_part] for name, values in frames.items()})
    return {name: np.concatenate([own, nested[name]]) for name, own in calls.items()}


def _own(tables: Sequence[Mapping[str, np.ndarray]], thread: int) -> dict[str, np.ndarray]:
    """The thread's events, table after table."""
    rows = [np.flatnonzero(table["thread"] == thread) for table in tables]
    return {
        name: np.concatenate([table[name][own] for table, own in zip(tables, rows, strict=True)])
        for name in ("start_ns", "end_ns", "name", "what")
    }


def _nested(events: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The events in order of start, outer ones first, with the number of those that are still open as `depth`."""
    order = np.lexsort((-events["end_ns"], events["start_ns"]))
    ordered = {name: values[order] for name, values in events.items()}
    done = np.sort(events["end_ns"])
    return {**ordered, "depth": np.arange(len(order)) - np.searchsorted(done, ordered["start_ns"], side="right")}
