"""Each CUDA stream: busy time, kinds, bytes, role; pairs of streams; waits for other streams' events."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer import kinds
from traceanalyzer.analyses.base import RANK, Result, percent
from traceanalyzer.analyses.grouping import memoized_by_trace
from traceanalyzer.analyses.streams.copies import is_copy
from traceanalyzer.analyses.time.breakdown import known_only
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.meaning.vocabulary import SHORT_NS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    is_name,
    table_of,
    under_each_other,
    with_columns,
)

# What a GPU operation does for data movement: compute, communication, upload, download, exchange or on-device.


CLASSES = ("compute", "communication", "upload", "download", "exchange", "device memory", "unknown")
"""Upload is host to device, download device to host, exchange a copy between two GPUs; `device memory` is memset and
copies within the GPU (and within the host); `unknown` a CUDA graph that was recorded as one operation."""

UNKNOWN = CLASSES[-1]

_OF_DIRECTION = {"HtoD": "upload", "DtoH": "download", "PtoP": "exchange"}


_OF_KIND = {"comm": "communication", kinds.UNKNOWN: UNKNOWN}
"""Of kernels and graphs; the others are compute."""


@memoized_by_trace
def op_classes(trace: RankTrace) -> np.ndarray:
    """Position in `CLASSES` of each GPU operation."""
    ops = columns_of(trace.gpu_ops)
    directions, kind = ops["direction"], ops["kind"]
    of_direction = [_OF_DIRECTION.get(name, "device memory") for name in directions.categories.tolist()]
    copies = np.array([CLASSES.index(name) for name in (*of_direction, "device memory")])[directions.codes]
    is_kernel = is_name(ops["activity"], "kernel", "graph")
    of_kind = [_OF_KIND.get(name, "compute") for name in kind.categories.tolist()]
    kernels = np.array([CLASSES.index(name) for name in (*of_kind, "compute")])[kind.codes]
    return np.where(is_kernel, kernels, copies)


def traffic_unions(starts: np.ndarray, ends: np.ndarray, classes: np.ndarray) -> dict[str, Intervals]:
    """Union of the operations of each class."""
    held = np.bincount(classes, minlength=len(CLASSES))
    masks = (classes == number if held[number] else None for number in range(len(CLASSES)))
    return {
        name: EMPTY if mask is None else Intervals.of(starts[mask], ends[mask])
        for name, mask in zip(CLASSES, masks, strict=True)
    }


def pair_times(unions_of: list[Intervals], start_ns: int, end_ns: int) -> np.ndarray:
    """Matrix of the time, ns, in which each two of the unions both run inside [start, end); the diagonal is busy time.

    One sweep over all edges; sums of integers in float64 are exact up to 2⁵³ ns.
    """
    clipped = [own.clip(start_ns, end_ns) for own in unions_of]
    count = len(clipped)
    times = np.concatenate([edge for own in clipped for edge in (own.starts, own.ends)] or [np.empty(0, np.int64)])
    matrix = np.zeros((count, count))
    if not len(times):
        return matrix.astype(np.int64)
    change = np.concatenate([np.repeat([1, -1], len(own)) for own in clipped])
    owner = np.repeat(np.arange(count), [2 * len(own) for own in clipped])
    order = np.argsort(times, kind="stable")
    lengths = np.diff(times[order], append=times[order][-1])
    depth = np.zeros(count, dtype=np.int64)
    for part in np.array_split(np.arange(len(order)), max(1, len(order) // 65_536)):
        steps = np.zeros((len(part), count), dtype=np.int64)
        steps[np.arange(len(part)), owner[order[part]]] = change[order[part]]
        active = depth + np.cumsum(steps, axis=0)
        depth = active[-1]
        runs = (active > 0).astype(np.float64)
        matrix += (runs * lengths[part][:, None]).T @ runs
    return np.rint(matrix).astype(np.int64)


# How long each stream waited for events of other streams: from the recorded waits, else inferred.


RECORDED, INFERRED, PARTLY = "recorded", "inferred", "partly inferred"

_LONG_AGO, _UNKNOWN = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""When an event was reached: before anything that is known; nobody knows."""


class Dependency(Struct, frozen=True):
    """Time in which a stream's next operation was launched and the stream was free, but it waited for another stream.

    Attributes:
        time_ns: of that the part in which other streams run; stretches under 5 µs are left out.
        known_by: `recorded`: until the events that the capture has were reached; `inferred`: until the operation
            began, for the capture has no waits; `partly inferred`: some of its waits name no event.
    """

    time_ns: int
    known_by: str


def of_streams(trace: RankTrace) -> dict[int, Dependency]:
    """The dependency of each stream that ran something."""
    streams = {int(stream): _Stream.of(trace, int(stream)) for stream in trace.gpu_ops["stream"].unique()}
    waits = _waits(trace)
    if (array_of(waits, "record_ns") == _UNKNOWN).all():
        return {number: _dependency(trace, own, None) for number, own in streams.items()}
    held_back = _reached(waits, streams)
    return {number: _dependency(trace, own, held_back.get(number, ([], []))) for number, own in streams.items()}


@dataclass(slots=True)
class _Stream:
    """A stream's operations in the order in which they were launched, and the waits that it was told of so far.

    `last_end_ns[i]` is when the first i operations had ended, `latest_ns[i]` when the known of the first i events were
    reached, and `unknown[i]` how many of them are not known.
    """

    rows: np.ndarray
    launched_ns: list[int]
    last_end_ns: list[int]
    told_ns: list[int] = field(default_factory=list)
    reached_ns: list[int] = field(default_factory=list)
    latest_ns: list[int] = field(default_factory=lambda: [_LONG_AGO])
    unknown: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def of(cls, trace: RankTrace, number: int) -> "_Stream":
        rows = np.flatnonzero(array_of(trace.gpu_ops, "stream") == number)
        launch = array_of(trace.gpu_ops, "launch")[rows]
        calls = np.append(array_of(trace.api_calls, "start_ns"), _LONG_AGO)  # NONE: queued before the capture
        order = np.argsort(calls[launch], kind="stable")
        ends = np.maximum.accumulate(array_of(trace.gpu_ops, "end_ns")[rows[order]])
        return cls(rows[order], calls[launch][order].tolist(), [_LONG_AGO, *ends.tolist()])

    def done_ns(self, time_ns: int) -> int:
        """When all that the stream had been given by a time of the host had ended: operations, and waits since.

        Waits before the last operation are over when that ends, so that only unknown ones since then matter.
        """
        place = bisect_left(self.launched_ns, time_ns)
        since = self.launched_ns[place - 1] if place else _LONG_AGO
        begin, end = bisect_left(self.told_ns, since), bisect_left(self.told_ns, time_ns)
        if self.unknown[end] > self.unknown[begin]:
            return _UNKNOWN
        return max(self.last_end_ns[place], self.latest_ns[end])

    def wait(self, told_ns: int, reached_ns: int) -> None:
        """Note that the stream was told to wait for an event."""
        is_unknown = reached_ns == _UNKNOWN
        self.told_ns.append(told_ns)
        self.reached_ns.append(reached_ns)
        self.latest_ns.append(self.latest_ns[-1] if is_unknown else max(self.latest_ns[-1], reached_ns))
        self.unknown.append(self.unknown[-1] + is_unknown)


def _waits(trace: RankTrace) -> pd.DataFrame:
    """The trace's waits with the host's time of each event's record, unknown where the trace does not say."""
    waits = trace.stream_waits
    record = array_of(waits, "record")
    is_known = ~waits["source_stream"].array.isna() & (record != NONE)
    recorded = np.append(array_of(trace.api_calls, "start_ns"), _UNKNOWN)[np.where(is_known, record, NONE)]
    return with_columns(waits, record_ns=recorded)


def _reached(waits: pd.DataFrame, streams: Mapping[int, _Stream]) -> dict[int, tuple[list[int], list[int]]]:
    """By stream when it was told to wait, and when the event was reached.

    An event is reached when all that its stream had been given before it was recorded has ended; that may be a wait for
    a third stream (NCCL keeps one that runs nothing), so that the waits are followed in the host's order.
    """
    known = dict(streams)
    columns = ("start_ns", "stream", "source_stream", "record_ns")
    for told, stream, source, recorded in zip(*(waits[name].tolist() for name in columns), strict=True):
        waiting = known.setdefault(stream, _Stream(np.empty(0, dtype=np.int64), [], [_LONG_AGO]))
        other = known.get(source) if recorded != _UNKNOWN else None
        reached = _UNKNOWN if recorded == _UNKNOWN else _LONG_AGO if other is None else other.done_ns(recorded)
        waiting.wait(told, reached)
    return {number: (own.told_ns, own.reached_ns) for number, own in known.items()}


def _dependency(trace: RankTrace, own: _Stream, waits: tuple[list[int], list[int]] | None) -> Dependency:
    """The stretches between the stream's operations that were spent waiting; without `waits` all are taken for that."""
    ops, calls = columns_of(trace.gpu_ops), trace.api_calls
    starts, ends, launch = (ops[name][own.rows] for name in ("start_ns", "end_ns", "launch"))
    launched = np.where(launch == NONE, starts, np.append(array_of(calls, "end_ns"), 0)[launch])
    until, known_by = starts, INFERRED
    if waits is not None:
        reached = _of_operations(own, *waits)
        until = np.minimum(starts, reached)
        known_by = PARTLY if (reached == _UNKNOWN).any() else RECORDED
    busy = Intervals.of(starts, ends)
    free = np.append(_LONG_AGO, busy.ends)[np.searchsorted(busy.starts, starts, side="left")]
    # Only what begins a stretch of work can have been waiting; before the first nothing is known.
    place = np.searchsorted(busy.starts, starts)
    is_first = (free != _LONG_AGO) & (ends > starts) & (np.append(busy.starts, _LONG_AGO)[place] == starts)
    begin, end = np.maximum(np.maximum(free, launched), trace.window.start_ns), np.minimum(until, trace.window.end_ns)
    held = is_first & (end - begin >= SHORT_NS) & ~pd.Series(starts).duplicated().to_numpy()
    is_other = ops["stream"] != ops["stream"][own.rows[0]]
    others = Intervals.of(ops["start_ns"][is_other], ops["end_ns"][is_other])
    return Dependency(int(others.inside(trace.window).covered_ns(begin[held], end[held]).sum()), known_by)


def _of_operations(own: _Stream, told_ns: list[int], reached_ns: list[int]) -> np.ndarray:
    """For each operation the last of the events that its stream was told to wait for since the launch before it."""
    reached = np.full(len(own.rows), _LONG_AGO)
    place = np.searchsorted(own.launched_ns, told_ns, side="right")
    is_followed = place < len(own.rows)
    np.maximum.at(reached, place[is_followed], np.array(reached_ns, dtype=np.int64)[is_followed])
    return reached


# What each CUDA stream of a rank carries: busy time, kinds, bytes, and the role that follows from them.


_NS = tuple(f"{name.replace(' ', '_')}_ns" for name in CLASSES)
_UNKNOWN_NS = _NS[-1]


class Streams(Result):
    """One row for each rank and stream that ran something in the window, busiest first within a rank."""

    title = "Streams"
    keys = ("rank", "stream")
    stored = ("window_ns",)
    joined_by = ("role",)
    columns = {
        "rank": RANK,
        "stream": Column.ident("Number in the trace."),
        "role": Column.text(
            "The class that makes up 90 % or more of its operations' time (`mixed` when none does): compute, "
            "communication, upload, download, exchange (copies between GPUs), device memory, unknown (CUDA graphs "
            "that were recorded as one operation each)."
        ),
        "operations": Column.count("GPU operations in the window."),
        "busy_ns": Column.time("Time in which the stream runs something.", leads=True),
        "busy_pct": Column.share("100 · busy / window."),
        "compute_ns": Column.time("Time in which it runs compute kernels.", better=Better.LESS),
        "communication_ns": Column.time("Time in which it runs communication kernels."),
        "upload_ns": Column.time("Time in which it copies from host to device."),
        "download_ns": Column.time("Time in which it copies from device to host."),
        "exchange_ns": Column.time("Time in which it copies between two GPUs."),
        "device_memory_ns": Column.time("Time of memsets and of copies within the GPU."),
        "unknown_ns": Column.time(
            "Time in which it runs CUDA graphs that were recorded as one operation each; with any, the times above are "
            "n/a: the graph may do each of it."
        ),
        "copied_bytes": Column.size("Bytes of its copies and memsets; absent without any, or when one does not say."),
        "dependency_ns": Column.time(
            "Time in which its next operation was launched and the stream was free, but others ran and it "
            "waited for an event of another stream; stretches under 5 µs are left out."
        ),
        "dependency_by": Column.text(
            "`recorded`: the capture has the events that streams waited for; `inferred`: it has none, and "
            "all such time counts; `partly inferred`: some of its waits name no event.",
            is_secondary=True,
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        known = [name for name in _NS if name != _UNKNOWN_NS]
        table = known_only(table, table[_UNKNOWN_NS], known)
        return table.assign(busy_pct=percent(table["busy_ns"], table["window_ns"]))


def streams_per_rank(trace: RankTrace, stream_role_pct: float = 90) -> pd.DataFrame:
    """The rank's operations by stream, clipped to its window."""
    ops = trace.gpu_ops
    if ops.empty:
        return pd.DataFrame()
    starts, ends, stream = (array_of(ops, name) for name in ("start_ns", "end_ns", "stream"))
    is_inside = trace.window.touched(starts, ends) != NONE
    waited = of_streams(trace)
    rows = [_row(trace, number, is_inside & (stream == number), stream_role_pct, waited[number]) for number in waited]
    held = sorted((row for row in rows if row["operations"]), key=lambda row: -row["busy_ns"])
    if not held:
        return pd.DataFrame()
    columns = {name: [row[name] for row in held] for name in held[0]}
    return table_of(columns | {"copied_bytes": pd.array(columns["copied_bytes"], dtype="Int64")})


def _row(trace: RankTrace, stream: int, inside: np.ndarray, role_pct: float, dependency: Dependency) -> dict[str, Any]:
    ops, rows = columns_of(trace.gpu_ops), np.flatnonzero(inside)
    starts, ends = ops["start_ns"][rows], ops["end_ns"][rows]
    unions = traffic_unions(starts, ends, op_classes(trace)[rows])
    times = [own.inside(trace.window).total_ns for own in unions.values()]
    moved = ops["bytes"][inside & is_copy(trace.gpu_ops)]
    return {
        "stream": stream,
        "role": _role(times, role_pct),
        "operations": len(rows),
        "busy_ns": Intervals.of(starts, ends).inside(trace.window).total_ns,
        **dict(zip(_NS, times, strict=True)),
        "copied_bytes": int(moved.sum()) if len(moved) and not moved.isna().any() else None,
        "dependency_ns": dependency.time_ns,
        "dependency_by": dependency.known_by,
        "window_ns": trace.window.length_ns,
    }


def _role(times: list[int], role_pct: float) -> str:
    largest = int(np.argmax(times))
    return CLASSES[largest] if 100 * times[largest] >= role_pct * sum(times) else "mixed"


# Which streams, and which classes of work, really run at the same time.


class StreamPairs(Result):
    """One row for each rank and pair of streams (`of` stream), and pair of classes of work (`of` class)."""

    title = "What runs at the same time"
    keys = ("rank", "of", "first", "second")
    is_of_one_run = True
    columns = {
        "rank": RANK,
        "of": Column.text("`stream` or `class`."),
        "first": Column.text(
            "Stream number, or class: compute, communication, upload, download, exchange, device memory. No classes "
            "of a rank that runs CUDA graphs which were recorded whole: what runs inside them is not known."
        ),
        "second": Column.text("The other one."),
        "both_ns": Column.time("Time in the window in which both run."),
        "first_ns": Column.time("Time in which the first runs."),
        "second_ns": Column.time("Time in which the second runs."),
        "both_pct": Column.share(
            "100 · both / the shorter of the two times: 100 when one always hides under the other.", better=Better.MORE
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        shorter = table["first_ns"].where(table["first_ns"] < table["second_ns"], table["second_ns"])
        return table.assign(both_pct=percent(table["both_ns"], shorter))


def stream_pairs_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Pairs of what runs in the rank's window; no rows for a single stream or class."""
    ops = trace.gpu_ops
    if ops.empty:
        return pd.DataFrame()
    starts, ends, stream = (array_of(ops, name) for name in ("start_ns", "end_ns", "stream"))
    masks = {str(number): stream == number for number in np.unique(stream)}
    streams = {name: Intervals.of(starts[mask], ends[mask]) for name, mask in masks.items()}
    classes = traffic_unions(starts, ends, op_classes(trace))
    tables = []
    if classes.pop(UNKNOWN).inside(trace.window):
        classes = {}
    for of, unions in (("stream", streams), ("class", classes)):
        held = {name: own.inside(trace.window) for name, own in unions.items() if len(own)}
        both = pair_times(list(held.values()), trace.window.start_ns, trace.window.end_ns)
        tables.append(_pairs(of, both, list(held)))
    return under_each_other(tables)


def _pairs(of: str, both: np.ndarray, names: list[str]) -> pd.DataFrame:
    first, second = np.triu_indices(len(names), k=1)
    label = np.array(names, dtype=object)
    return table_of(
        {
            "first": label[first],
            "second": label[second],
            "both_ns": both[first, second],
            "first_ns": both[first, first],
            "second_ns": both[second, second],
            "of": of,
        }
    )
