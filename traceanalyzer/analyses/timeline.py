"""Operations, host events and counters in the form that a timeline draws."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from traceanalyzer.analyses.base import GPU_END, GPU_START, KIND, NAME, RANK, STEP_OF_LAUNCH, Result, taken
from traceanalyzer.analyses.breakdown import step_numbers
from traceanalyzer.analyses.host.activity import (
    API_CALL,
    AUTOGRAD,
    DATA,
    FRAME,
    MAIN,
    OPERATOR,
    RANGE,
    thread_roles,
)
from traceanalyzer.analyses.intervals import bins_of
from traceanalyzer.analyses.operators.operator_tree import OperatorTree, Scopes
from traceanalyzer.analyses.trace import depths
from traceanalyzer.meaning.columns import Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    nullable,
    picked,
    rows_named,
    table_of,
    under_each_other,
)

# The rank's sampled quantities over time, in bins: memory in use, and what the GPU's own counters say.


LEVELS = {"memory_allocated_bytes": "memory allocated", "memory_reserved_bytes": "memory reserved"}
"""Counters that keep their value until the next one, as Kineto's memory events; others are samples."""

METRICS = {
    "SMs active": r"SMs? Active|^sm__cycles_active\.avg\.pct",
    "tensor cores active": r"Tensor Active|^sm__(?:inst_executed_)?pipe_tensor\S*\.pct",
    "DRAM read": r"DRAM Read|^dram__(?:bytes_read|read_throughput)\.",
    "DRAM write": r"DRAM Write|^dram__(?:bytes_write|write_throughput)\.",
    "NVLink received": r"NVLink.* RX .*(?:Throughput|Band|Bytes|User)|NVLink RX|^nvlrx__bytes\.",
    "NVLink sent": r"NVLink.* TX .*(?:Throughput|Band|Bytes|User)|NVLink TX|^nvltx__bytes\.",
    "PCIe received": r"PCIe RX",
    "PCIe sent": r"PCIe TX",
}
"""GPU metrics that are drawn, by Nsight's names or CUPTI's, in this order: of several that fit the first by name."""


class CounterSeries(Result):
    """One row for each rank, counter and bin of its window in which the counter has a value."""

    title = "Counters over time"
    is_detail = True
    keys = ("rank", "counter", "bin")
    columns = declared(
        rank=RANK,
        counter="What is counted.",
        source="Name as the profiler has it.",
        bin="Position of the bin in the window.",
        start_ns="Its start.",
        length_ns="Its length.",
        value=Column.number("Mean of the samples in the bin; of memory the highest level in it."),
    )


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
    for label, words in METRICS.items():
        found += [(label, name) for name in names if re.search(words, name, re.IGNORECASE)][:1]
    return found


def _binned(own: pd.DataFrame, starts: np.ndarray, ends: np.ndarray, *, is_level: bool) -> pd.DataFrame:
    """One row for each bin with a value: the mean of its samples, or the highest level that held in it."""
    own = own[own["value"].notna()].sort_values("time_ns", kind="stable")
    times = array_of(own, "time_ns")
    place = np.searchsorted(starts, times, side="right") - 1
    inside = (place >= 0) & (times < ends[np.maximum(place, 0)])
    values = own["value"].to_numpy(dtype=np.float64)
    groups = pd.Series(values[inside]).groupby(place[inside])
    binned = (groups.max() if is_level else groups.mean()).reindex(range(len(starts)))
    if is_level:
        held = np.append(values, np.nan)[np.searchsorted(times, starts, side="right") - 1]
        binned = binned.combine(pd.Series(held), np.fmax)
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

_ROLES = (MAIN, AUTOGRAD, DATA)

_WHATS = (RANGE, OPERATOR, API_CALL, FRAME)

_WHAT_NAMES = pd.CategoricalDtype(list(_WHATS))


class HostEvents(Result):
    """One row for each of the longest host events of a rank, thread by thread in order of start."""

    title = "Host threads on the timeline"
    is_detail = True
    is_event_copy = True
    keys = ("rank", "event")
    columns = declared(
        rank=RANK,
        event=Column.ident("Position among the rank's recorded host events, thread by thread."),
        thread="The thread's number in the trace.",
        role="main, autograd, data loader, collectives or other.",
        what="range, operator, API call or Python frame.",
        depth="Events around it: Python frames count frames, the others each other.",
        start_ns="Start on the host.",
        end_ns="End on the host.",
        name=NAME,
        recorded=Column.count("Events of the rank that are recorded on these threads."),
    )


def host_events_per_rank(trace: RankTrace, most_host_events: int = MOST_EVENTS) -> pd.DataFrame:
    """The rank's longest events with how deep they lie in others; none without GPU work, which they are drawn under."""
    tables = (trace.ranges, trace.host_ops, trace.api_calls, trace.frames)  # in order of `_WHATS`
    starts, ends, threads = (
        np.concatenate([array_of(table, name) for table in tables]) for name in ("start_ns", "end_ns", "thread")
    )
    what = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    lengths, is_frame = ends - starts, what == _WHATS.index(FRAME)
    # A Python frame around all of the window (the interpreter, `main`) says nothing.
    is_whole = is_frame & (starts <= trace.window.start_ns) & (ends >= trace.window.end_ns)
    roles = _threads(trace, threads, lengths)
    place = pd.Index([number for number, _ in roles], dtype=np.int64).get_indexer(threads)
    # How deep each lies in others counts frames for frames, for others the others.
    lanes = np.where((place == NONE) | is_whole, NONE, 2 * place + is_frame)
    order = np.lexsort((-ends, starts, lanes))
    order = order[np.count_nonzero(lanes == NONE) :]
    if not len(order):
        return pd.DataFrame()
    depth = depths(lanes[order], starts[order], ends[order])
    # The longest, of those as long the first: what contains one of them is longer, and stays as well.
    event = np.sort(np.argsort(-lengths[order], kind="stable")[:most_host_events])
    held = order[event]
    known = sorted({role for _, role in roles})
    role_of = np.array([known.index(role) for _, role in roles])
    return table_of(
        {
            "start_ns": starts[held],
            "end_ns": ends[held],
            "name": union_categoricals([table["name"].array for table in tables])[held],
            "what": pd.Categorical.from_codes(what[held], dtype=_WHAT_NAMES),
            "depth": depth[event],
            "thread": threads[held],
            "role": pd.Categorical.from_codes(role_of[place[held]], categories=known),
            "event": event,
            "recorded": len(order),
        }
    )


def _threads(trace: RankTrace, threads: np.ndarray, lengths: np.ndarray) -> list[tuple[int, str]]:
    """Threads with recorded events and their roles, in the order in which they are drawn."""
    roles = thread_roles(trace)
    spent = pd.Series(lengths).groupby(threads).sum()
    order = {role: place for place, role in enumerate(_ROLES)}
    by_role = sorted(roles, key=lambda thread: (order.get(roles[thread], len(order)), -spent.get(thread, 0)))
    return [(thread, roles[thread]) for thread in by_role[:MOST_THREADS]]


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
    columns = declared(
        rank=RANK,
        operation=Column.ident("Position among the rank's GPU operations, in order of start."),
        start_ns=GPU_START,
        end_ns=GPU_END,
        name=NAME,
        kind=KIND,
        activity="kernel, memcpy, memset or graph.",
        stream="Stream that it ran on.",
        step=STEP_OF_LAUNCH,
        call="Its position among the rank's communication operations (as in `calls`); absent for other kinds.",
        size_bytes="Bytes of a copy or memset.",
        launch="Host call that launched it; absent when the capture does not have it.",
        launch_start_ns="Start of that call on the host.",
        launch_thread="Thread that made it.",
        operator="Innermost operator around that call; absent for none.",
        shapes="Shapes of its arguments, as recorded; absent when they were not.",
        path="Modules and ranges around the operator, from the outermost down; absent for none.",
    )


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
            "launch_start_ns": _at_launch(trace, "start_ns"),
            "launch_thread": _at_launch(trace, "thread"),
            "operator": taken(trace.host_ops["name"].array, tree.owner),
            "shapes": taken(trace.host_ops["shapes"].array, tree.owner),
            "path": taken(scopes.calls["path"].array, scopes.of_op),
        }
    )
    return table if trace.window.steps is None else picked(table, trace.counted)


def timeline_across(parts: Mapping[int, pd.DataFrame]) -> Timeline:
    """The ranks' operations under each other; names stay categorical, so that a million rows stay small."""
    held = [part.assign(rank=rank) for rank, part in sorted(parts.items()) if len(part)]
    if not held:
        return Timeline.without_rows()
    names = {name: union_categoricals([part[name] for part in held]) for name in _NAMES}
    table = pd.concat([part.drop(columns=[*_NAMES]) for part in held], ignore_index=True)
    return Timeline(table.assign(**names)[[*Timeline.columns]])


def _calls(ops: pd.DataFrame) -> pd.arrays.IntegerArray:
    is_comm = rows_named(ops, "kind", "comm")
    return nullable((np.cumsum(is_comm) - 1).astype(np.int64), ~is_comm)


def _at_launch(trace: RankTrace, name: str) -> pd.arrays.IntegerArray:
    """A column of `api_calls` for the operations' launches; absent where there is none."""
    return nullable(np.append(array_of(trace.api_calls, name), NONE)[trace.launch], trace.launch == NONE)


# What an operation that is a communication call is known to be, and moments of the replay as ranks recorded them.


OF_CALLS = ("collective", "group", "dtype", "size_bytes", "peers")

OF_WAITS = ("wait_ns", "waits_for", "instance", "why_not_split")
"""Columns of `calls` and of `call_waits` that a click on a communication call shows."""


def described_calls(calls: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Communication calls of all ranks: what they are, and what is known of their waits."""
    keys = ["rank", "call"]
    return calls[[*keys, *OF_CALLS]].merge(waits[[*keys, *OF_WAITS]], on=keys, how="left")


def on_own_clocks(path: pd.DataFrame, clocks: pd.DataFrame) -> pd.DataFrame:
    """Stretches of the critical path as the ranks' own clocks have them: the replay is on a common one."""
    offsets = path["rank"].map(clocks.set_index("rank")["offset_ns"]).fillna(0).astype("int64")
    return path.assign(start_ns=path["start_ns"] + offsets, end_ns=path["end_ns"] + offsets)
