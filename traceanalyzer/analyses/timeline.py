"""Operations, host events and counters in the form that a timeline draws."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from traceanalyzer.analyses.base import GPU_END, GPU_START, KIND, NAME, RANK, STEP_OF_LAUNCH, Result, taken
from traceanalyzer.analyses.grouping import sums_at
from traceanalyzer.analyses.host.activity import (
    API_CALL,
    AUTOGRAD,
    DATA,
    FRAME,
    MAIN,
    OPERATOR,
    OTHER,
    RANGE,
    thread_roles,
)
from traceanalyzer.analyses.operators.modules import Scopes
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.time.intervals import bins_of
from traceanalyzer.analyses.time.steps import step_numbers
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    outer_first,
    picked,
    rows_named,
    table_of,
    under_each_other,
)

# The rank's sampled quantities over time, in bins: memory in use, and what the GPU's own counters say.


LEVELS = {"memory_allocated_bytes": "memory allocated", "memory_reserved_bytes": "memory reserved"}
"""Counters that keep their value until the next one, as Kineto's memory events; others are samples."""

METRICS = (
    ("SMs active", re.compile(r"SMs? Active|^sm__cycles_active\.avg\.pct", re.IGNORECASE)),
    ("tensor cores active", re.compile(r"Tensor Active|^sm__(?:inst_executed_)?pipe_tensor\S*\.pct", re.IGNORECASE)),
    ("DRAM read", re.compile(r"DRAM Read|^dram__(?:bytes_read|read_throughput)\.", re.IGNORECASE)),
    ("DRAM write", re.compile(r"DRAM Write|^dram__(?:bytes_write|write_throughput)\.", re.IGNORECASE)),
    (
        "NVLink received",
        re.compile(r"NVLink.* RX .*(?:Throughput|Band|Bytes|User)|NVLink RX|^nvlrx__bytes\.", re.IGNORECASE),
    ),
    (
        "NVLink sent",
        re.compile(r"NVLink.* TX .*(?:Throughput|Band|Bytes|User)|NVLink TX|^nvltx__bytes\.", re.IGNORECASE),
    ),
    ("PCIe received", re.compile(r"PCIe RX", re.IGNORECASE)),
    ("PCIe sent", re.compile(r"PCIe TX", re.IGNORECASE)),
)
"""GPU metrics that are drawn, by Nsight's names or CUPTI's, in this order: of several that fit the first by name."""


class CounterSeries(Result):
    """One row for each rank, counter and bin of its window in which the counter has a value."""

    title = "Counters over time"
    is_detail = True
    keys = ("rank", "counter", "bin")
    columns = {
        "rank": RANK,
        "counter": Column.text("What is counted."),
        "source": Column.text("Name as the profiler has it."),
        "bin": Column.ident("Position of the bin in the window."),
        "start_ns": Column.moment("Its start."),
        "length_ns": Column.time("Its length."),
        "value": Column.number("Mean of the samples in the bin; of memory the highest level in it."),
    }


def counter_series_per_rank(trace: RankTrace, counter_bins: int = 300) -> pd.DataFrame:
    """The window in `counter_bins` equal bins; none without counters."""
    window, counters = trace.window, trace.counters
    if not window.length_ns or counters.empty:
        return pd.DataFrame()
    starts, ends = bins_of(window, counter_bins)
    parts = [
        _binned(counters[(counters["name"] == source).to_numpy()], starts, ends, is_level=source in LEVELS).assign(
            counter=counter, source=source
        )
        for counter, source in _chosen(counters)
    ]
    return under_each_other(parts) if parts else pd.DataFrame()


def _chosen(counters: pd.DataFrame) -> list[tuple[str, str]]:
    names = sorted(counters["name"].dropna().unique().astype(str))
    found = [(label, name) for name, label in LEVELS.items() if name in names]
    for label, pattern in METRICS:
        found += [(label, name) for name in names if pattern.search(name)][:1]
    return found


def _binned(own: pd.DataFrame, starts: np.ndarray, ends: np.ndarray, *, is_level: bool) -> pd.DataFrame:
    """One row for each bin with a value: the mean of its samples, or the highest level that held in it."""
    own = own[own["value"].notna()].sort_values("time_ns", kind="stable")
    place = np.searchsorted(starts, array_of(own, "time_ns"), side="right") - 1
    inside = (place >= 0) & (array_of(own, "time_ns") < ends[np.maximum(place, 0)])
    values = own["value"].to_numpy(dtype=np.float64)
    groups = pd.Series(values[inside]).groupby(place[inside])
    binned = (groups.max() if is_level else groups.mean()).reindex(range(len(starts)))
    if is_level:
        before = np.searchsorted(array_of(own, "time_ns"), starts, side="right") - 1
        held = np.where(before >= 0, np.append(values, np.nan)[before], np.nan)
        binned = pd.Series(np.fmax(binned.to_numpy(), held))
    table = table_of({"bin": np.arange(len(starts)), "start_ns": starts, "length_ns": ends - starts,
                          "value": binned.to_numpy()})  # fmt: skip
    return table[table["value"].notna()]


# What each thread of a rank's host did: what a timeline draws below the GPU's lanes.


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


class HostEvents(Result):
    """One row for each of the longest host events of a rank, thread by thread in order of start."""

    title = "Host threads on the timeline"
    is_detail = True
    is_event_copy = True
    keys = ("rank", "event")
    columns = {
        "rank": RANK,
        "event": Column.ident("Position among the rank's recorded host events, thread by thread."),
        "thread": Column.ident("The thread's number in the trace."),
        "role": Column.text("main, autograd, data loader, collectives or other."),
        "what": Column.text("range, operator, API call or Python frame."),
        "depth": Column.number("Events around it: Python frames count frames, the others each other."),
        "start_ns": Column.moment("Start on the host."),
        "end_ns": Column.moment("End on the host."),
        "name": NAME,
        "recorded": Column.count("Events of the rank that are recorded on these threads."),
    }


def host_events_per_rank(trace: RankTrace, most_host_events: int = MOST_EVENTS) -> pd.DataFrame:
    """The rank's longest events with how deep they lie in others; none without GPU work, which they are drawn under."""
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


# Which ranks a timeline keeps when all of them are too many: those that are unlike the others, not the middle.


def most_unlike_first(lost_ns: Mapping[int, int]) -> list[int]:
    """The ranks by how far they are from the median of what each loses, idle or in exposed communication.

    Who waits loses most; who makes the others wait by computing longer loses least: both stay. Of equally far ones the
    rank that loses more comes first, then the lower number.
    """
    if not lost_ns:
        return []
    middle = float(np.median(list(lost_ns.values())))
    return sorted(lost_ns, key=lambda rank: (-abs(lost_ns[rank] - middle), -lost_ns[rank], rank))


def fitting(order: Sequence[int], operations: Mapping[int, int], most: int) -> list[int]:
    """The ranks, in this order, whose operations together are no more than `most`; at least the first."""
    kept: list[int] = []
    total = 0
    for rank in order:
        if not kept or total + operations[rank] <= most:
            kept.append(rank)
            total += operations[rank]
    return kept


# Every GPU operation of every rank, in order: what a timeline draws.


MOST_OPERATIONS = 600_000
"""Beyond this a page would open slowly: reports leave ranks out, those first that are most like the others."""

_NAMES = ("name", "kind", "activity", "launch", "operator", "shapes", "path")


class Timeline(Result):
    """One row for each GPU operation of the selected steps (all operations without a selection), by start."""

    title = "Timeline"
    is_detail = True
    is_event_copy = True
    keys = ("rank", "operation")
    columns = {
        "rank": RANK,
        "operation": Column.ident("Position among the rank's GPU operations, in order of start."),
        "start_ns": GPU_START,
        "end_ns": GPU_END,
        "name": NAME,
        "kind": KIND,
        "activity": Column.text("kernel, memcpy, memset or graph."),
        "stream": Column.ident("Stream that it ran on."),
        "step": STEP_OF_LAUNCH,
        "call": Column.ident(
            "Its position among the rank's communication operations (as in `calls`); absent for other kinds."
        ),
        "size_bytes": Column.size("Bytes of a copy or memset.", is_aside=True),
        "launch": Column.text("Host call that launched it; absent when the capture does not have it."),
        "launch_start_ns": Column.moment("Start of that call on the host."),
        "launch_thread": Column.ident("Thread that made it."),
        "operator": Column.text("Innermost operator around that call; absent for none."),
        "shapes": Column.text("Shapes of its arguments, as recorded; absent when they were not."),
        "path": Column.text("Modules and ranges around the operator, from the outermost down; absent for none."),
    }


def timeline_per_rank(trace: RankTrace, tree: OperatorTree, scopes: Scopes) -> pd.DataFrame:
    """The rank's counted operations with their step, communication call, launch and operator, names categorical."""
    ops, columns = trace.gpu_ops, columns_of(trace.gpu_ops)
    table = table_of(
        {
            **{name: columns[name] for name in ("start_ns", "end_ns", "name", "kind", "activity", "stream")},
            "operation": np.arange(len(ops)),
            "step": step_numbers(trace, np.arange(len(ops))),
            "call": _calls(ops),
            "size_bytes": columns["bytes"],
            "launch": taken(trace.api_calls["name"].array, array_of(ops, "launch")),
            "launch_start_ns": _at_launch(trace, array_of(trace.api_calls, "start_ns")),
            "launch_thread": _at_launch(trace, array_of(trace.api_calls, "thread")),
            "operator": taken(trace.host_ops["name"].array, tree.owner),
            "shapes": taken(trace.host_ops["shapes"].array, tree.owner),
            "path": taken(scopes.calls["path"].array, scopes.of_op),
        }
    )
    return table if trace.window.steps is None else picked(table, trace.counted)


def timeline_across(parts: Mapping[int, pd.DataFrame]) -> Timeline:
    """The ranks' operations under each other; names stay categorical, so that a million rows stay small."""
    held = {rank: columns_of(part) for rank, part in sorted(parts.items()) if len(part)}
    if not held:
        return Timeline.without_rows()
    names = {name: union_categoricals([own[name] for own in held.values()]) for name in _NAMES}
    others = [name for name in Timeline.columns if name not in (*_NAMES, "rank")]
    table = under_each_other([table_of({name: own[name] for name in others}) for own in held.values()])
    ranks = np.repeat(np.array([*held]), [len(own["start_ns"]) for own in held.values()])
    return Timeline(table_of({"rank": ranks, **columns_of(table), **names}))


def _calls(ops: pd.DataFrame) -> pd.arrays.IntegerArray:
    is_comm = rows_named(ops, "kind", "comm")
    return pd.arrays.IntegerArray((np.cumsum(is_comm) - 1).astype(np.int64), ~is_comm)


def _at_launch(trace: RankTrace, values: np.ndarray) -> pd.arrays.IntegerArray:
    """A column of `api_calls` for the operations' launches; absent where there is none."""
    launch = array_of(trace.gpu_ops, "launch")
    if not len(values):
        return pd.arrays.IntegerArray(np.ones(len(launch), dtype=np.int64), np.ones(len(launch), dtype=bool))
    return pd.arrays.IntegerArray(values[np.maximum(launch, 0)].astype(np.int64), launch == NONE)
