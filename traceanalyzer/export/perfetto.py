"""All ranks as one file for Perfetto."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from os import PathLike
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pandas as pd
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.clocks import Clock, common_clock
from traceanalyzer.analyses.engine import reduce_rank
from traceanalyzer.analyses.host.activity import thread_roles
from traceanalyzer.analyses.host.launches import launch_queue
from traceanalyzer.analyses.memory.memory import CATEGORIES, Held
from traceanalyzer.files.whole import whole_file
from traceanalyzer.functions import analyse
from traceanalyzer.meaning import vocabulary
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import DATA, HOST, MARK_VIEWER
from traceanalyzer.model import RankTrace, TraceSet
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import pandas_set_up
from traceanalyzer.validation import place_of

# Rows that the analysis adds above a rank's streams: steps, ranges, the critical path and idle time by cause.


SLICE_COLUMNS = ("name", "category", "start_ns", "end_ns", "colour", "args", "flows_out", "flows_in")
"""Of a table of slices; flows are tuples of numbers, of arrows that begin and end at the slice."""

COLOURS: Mapping[str, str] = {
    **{kind: vocabulary.viewer_colour(kind) for kind in vocabulary.LOOKS},
    "mark": MARK_VIEWER,
}
"""Trace-event viewers have fixed colours: those nearest to the kinds'. A viewer that ignores them colours by name."""

_NAMES = {cause.key: cause.part.label for cause in vocabulary.IDLE_CAUSES}
_OF_CAUSE = {cause.key: COLOURS[cause.part.kind] for cause in vocabulary.IDLE_CAUSES}


def sliced(table: pd.DataFrame, **columns: object) -> pd.DataFrame:
    """The table with these columns of `SLICE_COLUMNS`; those that are not given are empty."""
    rest = {name: None for name in SLICE_COLUMNS if name not in columns and name not in table}
    return table.assign(**rest, **columns)[list(SLICE_COLUMNS)]


def steps(table: pd.DataFrame) -> pd.DataFrame:
    """Each step's window on the GPU."""
    windows = table[table["start_ns"].notna()].astype({"step": "int64", "start_ns": "int64", "window_ns": "int64"})
    whole = is_true(windows["is_complete"]).tolist()
    return sliced(
        windows, category="step", colour=COLOURS["mark"], end_ns=windows["start_ns"] + windows["window_ns"],
        name=[f"step {step}" for step in windows["step"]], args=[{"complete": is_complete} for is_complete in whole],
    )  # fmt: skip


def ranges(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The user's ranges where their operations run, by their depth."""
    names = [short_name(name) for name in table["name"]]
    every = sliced(table, category="range", colour=COLOURS["mark"], name=names)
    return {
        "ranges" if depth == 0 else f"ranges, {depth} deep": every[table["depth"] == depth]
        for depth in sorted(table["depth"].unique())
    }


def path(table: pd.DataFrame) -> pd.DataFrame:
    """Stretches of the critical path."""
    category = table["category"].astype("str")
    what = table["operator"].where(category.isin((HOST.key, DATA.key)), table["name"])
    return sliced(
        table,
        category="critical path",
        colour=category.map({**COLOURS, HOST.key: COLOURS[HOST.part.kind]}).fillna(COLOURS["mark"]),
        name=[f"{kind}: {short_name(name)}" if isinstance(name, str) else kind
              for kind, name in zip(category, what, strict=True)],
        args=[{"operator": name} if isinstance(name, str) else None for name in table["operator"]],
    )  # fmt: skip


def gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Stretches in which nothing runs, by their cause."""
    causes = table["cause"].astype("str")
    doing = [None if pd.isna(name) else short_name(name) for name in table["doing"]]
    return sliced(
        table, category="idle", end_ns=table["start_ns"] + table["length_ns"],
        name=causes.map(_NAMES), args=[{"host": name} if name else None for name in doing],
        colour=causes.map(_OF_CAUSE),
    )  # fmt: skip


# Numbers of arrows, different for every launched operation of every rank and every collective.


_OF_INSTANCES = 1 << 62

_RANK_BITS = 36
"""Operations of one rank are fewer than two to the power of this."""


def of_operation(rank: int, operation: int) -> int:
    """From a host's call to the GPU operation that it launched."""
    return ((rank + 1) << _RANK_BITS) + operation


def of_instance(instance: int) -> int:
    """From rank to rank of one collective, in the order in which they begin it."""
    return _OF_INSTANCES + instance


def is_of_instance(number: int) -> bool:
    """Which of the two it is."""
    return number >= _OF_INSTANCES


# Every GPU operation as slices by stream: a communication call is its wait, then its transfer.


_ORDER = ("instance", "comes_after", "comes_before")


def streams(ops: pd.DataFrame, calls: pd.DataFrame, rank: int) -> Iterator[tuple[str, pd.DataFrame]]:
    """Name and slices of each stream, by its number.

    Args:
        ops: the rank's rows of `Timeline`.
        calls: its rows of `perfetto.described_calls`.
        rank: its number.
    """
    if ops.empty:
        return
    slices = _gpu_slices(ops, calls.set_index("call"), rank)
    for number, own in slices.groupby(ops["stream"].to_numpy()[slices.index]):
        yield f"stream {number}", own


def _gpu_slices(ops: pd.DataFrame, calls: pd.DataFrame, rank: int) -> pd.DataFrame:
    own = calls.reindex(ops["call"].fillna(NONE).astype("int64"))
    lengths = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    wait_ns = own["wait_ns"].astype("Int64").fillna(0).to_numpy(dtype="int64").clip(0, lengths)
    kind = ops["kind"].astype("str")
    whole = sliced(
        ops.assign(name=[short_name(name) for name in ops["name"]]),
        category=kind,
        colour=kind.map(COLOURS),
        args=_gpu_details(ops, own),
    )
    first = _arrows(ops, own, rank)
    waits = whole.assign(
        end_ns=ops["start_ns"] + wait_ns,
        name="wait · " + whole["name"],
        category="wait",
        colour=COLOURS["wait"],
        **first,
    )
    moves = whole.assign(start_ns=ops["start_ns"] + wait_ns, **first)
    moves.loc[wait_ns > 0, ["flows_in", "flows_out"]] = None
    return pd.concat([waits[wait_ns > 0], moves[(wait_ns == 0) | (wait_ns < lengths)]])


def _arrows(ops: pd.DataFrame, calls: pd.DataFrame, rank: int) -> pd.DataFrame:
    """From the call that launched it to each operation, and from rank to rank of each collective."""
    arrive: list[tuple[int, ...] | None] = []
    leave: list[tuple[int, ...] | None] = []
    columns = (ops["operation"], ops["launch"].notna(), *(calls[name] for name in _ORDER))
    for operation, has_launch, instance, is_later, is_earlier in zip(*(one.tolist() for one in columns), strict=True):
        launched = (of_operation(rank, operation),) if has_launch else ()
        shared = () if pd.isna(instance) else (of_instance(int(instance)),)
        arrive.append((*launched, *(shared if is_later else ())) or None)
        leave.append((shared if is_earlier else ()) or None)
    return pd.DataFrame({"flows_in": arrive, "flows_out": leave}, index=ops.index, dtype=object)


def _gpu_details(ops: pd.DataFrame, calls: pd.DataFrame) -> list[dict[str, object]]:
    """What a click on each operation shows."""
    shown = ops[["name", "step", "launch", "operator", "shapes", "path"]].reset_index(drop=True)
    of_call = calls.drop(columns=["rank", "size_bytes", *_ORDER[1:]]).reset_index(drop=True)
    sizes = ops["size_bytes"].reset_index(drop=True).fillna(calls["size_bytes"].reset_index(drop=True))
    return _contents(pd.concat([shown, of_call], axis=1).assign(size_bytes=sizes))


def _contents(table: pd.DataFrame) -> list[dict[str, object]]:
    """Each row as a dictionary without what is not known."""
    columns = {name: table[name].to_numpy(dtype=object) for name in table}
    known = {name: ~pd.isna(values) for name, values in columns.items()}
    return [{name: values[row] for name, values in columns.items() if known[name][row]} for row in range(len(table))]


# The host's threads: ranges, operators, Python frames and API calls, inside each other as they were recorded.


_THREAD_DETAILS = {"operator": ("shapes", "dtypes", "sequence"), "runtime": ("correlation",)}


def threads(trace: RankTrace, ops: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Name and slices of each thread, the main one first; of chosen steps only what overlaps them.

    Args:
        trace: the rank's events.
        ops: its rows of `Timeline`: the operations to which arrows lead.
    """
    events = pd.concat([
        _thread_slices(trace, trace.ranges, "range"),
        _thread_slices(trace, trace.host_ops, "operator"),
        _thread_slices(trace, trace.frames, "python"),
        _thread_slices(trace, trace.api_calls.assign(flows_out=_launched(trace, ops)), "runtime"),
    ])  # fmt: skip
    roles = thread_roles(trace)
    found = {int(number): own for number, own in events.groupby("thread")}
    is_main = {number: roles.get(number) == "main" for number in found}
    for number in sorted(found, key=lambda thread: (not is_main[thread], -len(found[thread]))):
        role = roles.get(number)
        yield f"thread {number}" + (f" · {role}" if role else ""), found[number]


def _thread_slices(trace: RankTrace, table: pd.DataFrame, category: str) -> pd.DataFrame:
    events = table[_while_looked_at(trace, table)]
    details = [name for name in _THREAD_DETAILS.get(category, ()) if name in events]
    slices = sliced(
        events.assign(name=events["name"].astype("str")),
        category=category, colour=COLOURS["mark"], args=_contents(events[details]), flows_out=events.get("flows_out"),
    )  # fmt: skip
    return slices.assign(thread=events["thread"])


def _launched(trace: RankTrace, ops: pd.DataFrame) -> pd.Series:
    """For each API call the arrows to the operations that it launched."""
    found: dict[int, list[int]] = {}
    launch = trace.gpu_ops["launch"].to_numpy()
    for number in ops["operation"].tolist() if len(ops) else ():
        if launch[number] != NONE:
            found.setdefault(int(launch[number]), []).append(of_operation(trace.rank, number))
    flows = np.full(len(trace.api_calls), None, dtype=object)
    for row, numbers in found.items():
        flows[row] = tuple(numbers)
    return pd.Series(flows, index=trace.api_calls.index)


def _while_looked_at(trace: RankTrace, table: pd.DataFrame) -> np.ndarray:
    """Mask of the rows that run while a chosen step does, on the host or on the GPU, or that launched its work."""
    if trace.window.steps is None:
        return np.ones(len(table), dtype=bool)
    chosen = trace.steps[trace.steps["step"].isin(trace.window.steps)]
    starts = chosen["host_start_ns"].to_numpy()
    ends = np.maximum(chosen["host_end_ns"].to_numpy(), chosen["end_ns"].fillna(0).to_numpy(dtype="int64"))
    kept = np.zeros(len(table), dtype=bool)
    for start, end in zip(starts, ends, strict=True):
        kept |= ((table["start_ns"] < end) & (table["end_ns"] > start)).to_numpy()
    if "flows_out" in table:
        kept |= table["flows_out"].notna().to_numpy()
    return kept


# What an export draws of a rank: the analysis' rows, every GPU operation by stream, every host thread, counters.
#
# A track is a row of a viewer: slices, or samples of a quantity. Times are the rank's own, as recorded.


@dataclass(frozen=True, slots=True)
class Track:
    """A row of a viewer.

    Attributes:
        group: what it stands under: `analysis`, `GPU`, `host` or `counters`.
        name: its heading.
        rows: of `SLICE_COLUMNS` by start, those inside another one after it; where there is a unit samples with
            `time_ns` and `value`, which holds until the next one.
        unit: of the samples, "" for one that is not known; `None` for slices.
    """

    group: str
    name: str
    rows: pd.DataFrame
    unit: str | None = None


ROWS = ("steps", "gpu_ranges", "path_stretches", "gaps", "calls")
"""Tables of which `of_rank` takes the rank's own rows."""


def tracks_of_rank(trace: RankTrace, tables: Mapping[str, pd.DataFrame]) -> Iterator[Track]:
    """The rank's tracks, from top to bottom.

    Args:
        trace: its events.
        tables: its rows of `ROWS`; those of `calls` as `perfetto.described_calls` makes them.
    """
    ops = reduce_rank(trace, ["timeline"])["timeline"]
    analysis = {
        "steps": steps(tables["steps"]),
        "critical path": path(tables["path_stretches"]),
        **ranges(tables["gpu_ranges"]),
        "idle": gaps(tables["gaps"]),
    }
    for name, slices in analysis.items():
        yield from _laid("analysis", name, slices, is_nested=False)
    for name, slices in streams(ops, tables["calls"], trace.rank):
        yield from _laid("GPU", name, slices, is_nested=False)
    for name, slices in threads(trace, ops):
        yield from _laid("host", name, slices, is_nested=True)
    yield from _counters(trace)


def _laid(group: str, name: str, slices: pd.DataFrame, *, is_nested: bool) -> Iterator[Track]:
    """The slices in as many tracks as they need beside each other: one that ends inside another has a track of its own.

    On a host thread a slice may lie inside another one; on a stream it may not.
    """
    if slices.empty:
        return
    order = np.lexsort((-slices["end_ns"].to_numpy(), slices["start_ns"].to_numpy()))
    ordered = slices[list(SLICE_COLUMNS)].take(order)
    lane = lanes(ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy(), is_nested=is_nested)
    for number in range(int(lane.max()) + 1):
        yield Track(group, name if not number else f"{name} ({number + 1})", ordered[lane == number])


def lanes(starts: np.ndarray, ends: np.ndarray, *, is_nested: bool) -> np.ndarray:
    """For each slice, in order of start and the longer first, the first lane in which it fits."""
    if _fits_one_lane(starts, ends, is_nested=is_nested):
        return np.zeros(len(starts), dtype=np.int64)
    open_ends: list[list[int]] = []
    found = np.zeros(len(starts), dtype=np.int64)
    for place, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        for number, stack in enumerate(open_ends):
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or (is_nested and end <= stack[-1]):
                stack.append(end)
                found[place] = number
                break
        else:
            found[place] = len(open_ends)
            open_ends.append([end])
    return found


def _fits_one_lane(starts: np.ndarray, ends: np.ndarray, *, is_nested: bool) -> bool:
    return not is_nested and bool((starts[1:] >= np.maximum.accumulate(ends)[:-1]).all())


def _counters(trace: RankTrace) -> Iterator[Track]:
    if (trace.gpu_ops["launch"] >= 0).any():
        queue = launch_queue(trace)
        yield _changes("launched operations that wait", queue.times[:-1], queue.depth, "operations")
    for name, own in trace.counters.groupby("name", observed=True, sort=True):
        title = str(name)
        is_bytes = title.endswith("_bytes")
        heading = title.removesuffix("_bytes").replace("_", " ") if is_bytes else title
        yield Track("counters", heading, own[["time_ns", "value"]], "bytes" if is_bytes else "")
    levels = Held.of(trace)
    for place, category in enumerate(CATEGORIES if len(levels.events) else ()):
        level = levels.level_bytes[:, place]
        if level.any():
            yield _changes(f"memory held: {category}", levels.events["time_ns"].to_numpy(), level, "bytes")


def _changes(name: str, time_ns: np.ndarray, level: np.ndarray, unit: str) -> Track:
    """A counter's track with a sample for each change of its level."""
    changes = np.append(True, level[1:] != level[:-1])
    samples = pd.DataFrame({"time_ns": time_ns[changes], "value": level[changes].astype(float)})
    return Track("counters", name, samples, unit)


# Tracks as Perfetto's own protobuf: packets that can be written rank by rank and put behind each other.
#
# Each rank is a process (its id is the rank + 1: viewers keep 0 for the idle one) and a sequence of packets
# with names of
# its own. Times are ns after the export's zero.


_Packet = Any
_JOB = 1
"""Sequence and track of what belongs to no rank."""

_UUIDS = 1 << 20
"""Tracks of one rank are fewer."""

_AT_ONCE = 4096
"""Packets that are put into bytes together."""

_EXPLICIT = proto.TrackDescriptor.ChildTracksOrdering.EXPLICIT
_APART = proto.TrackDescriptor.SiblingMergeBehavior.SIBLING_MERGE_BEHAVIOR_NONE
_BEGIN, _END = proto.TrackEvent.Type.TYPE_SLICE_BEGIN, proto.TrackEvent.Type.TYPE_SLICE_END
_COUNTER, _INSTANT = proto.TrackEvent.Type.TYPE_COUNTER, proto.TrackEvent.Type.TYPE_INSTANT


def _in_bytes(packets: Callable[..., Iterator[_Packet]]) -> Callable[..., Iterator[bytes]]:
    """The same with the packets put into bytes."""

    @wraps(packets)
    def encoded(*of: Any) -> Iterator[bytes]:
        trace = proto.Trace()
        for number, packet in enumerate(packets(*of), 1):
            trace.packet.append(packet)
            if not number % _AT_ONCE:
                yield trace.SerializeToString()
                trace.Clear()
        yield trace.SerializeToString()

    return encoded


@_in_bytes
def pftrace_of_rank(
    rank: int, name: str, facts: Mapping[str, object], tracks: Iterable[Track], zero_ns: int
) -> Iterator[_Packet]:
    """A rank's packets.

    Args:
        rank: its number.
        name: what it is called.
        facts: what a reader must know of it, shown when its first mark is clicked.
        tracks: from top to bottom.
        zero_ns: what is taken from its times.
    """
    names = _Names(rank + 2)
    uuids = iter(range((rank + 2) * _UUIDS, (rank + 3) * _UUIDS))
    root = next(uuids)
    packet = names.packet()
    packet.track_descriptor.uuid = root
    packet.track_descriptor.child_ordering = _EXPLICIT
    packet.track_descriptor.process.pid = rank + 1
    packet.track_descriptor.process.process_name = name
    packet.track_descriptor.process.legacy_sort_index = rank
    yield packet
    yield from _track_packets(names, uuids, root, {}, facts, tracks, zero_ns)


@_in_bytes
def of_job(facts: Mapping[str, object], tracks: Iterable[Track], zero_ns: int) -> Iterator[_Packet]:
    """The packets that stand first: what was done, and what belongs to no rank."""
    names = _Names(_JOB)
    uuids = iter(range(_JOB, _UUIDS))
    root = next(uuids)
    yield _descriptor(names, root, 0, "job", 0)
    yield from _track_packets(names, uuids, root, {"job": root}, facts, tracks, zero_ns)


def _track_packets(
    names: "_Names", uuids: Iterator[int], root: int, groups: dict[str, int],
    facts: Mapping[str, object], tracks: Iterable[Track], zero_ns: int,
) -> Iterator[_Packet]:  # fmt: skip
    """Each track under a heading for its group below the root; what is said stands under the first."""
    for place, track in enumerate(tracks):
        if track.group not in groups:
            groups[track.group] = next(uuids)
            yield _descriptor(names, groups[track.group], root, track.group, len(groups))
        if not place:
            first_ns = int(track.rows["start_ns" if track.unit is None else "time_ns"].min())
            packet = names.event(_INSTANT, groups[track.group], first_ns - zero_ns)
            names.name(packet, "about this export")
            names.tell(packet, facts)
            yield packet
        yield from _events(names, track, next(uuids), groups[track.group], place, zero_ns)


def _descriptor(names: "_Names", uuid: int, parent: int, name: str, place: int) -> _Packet:
    packet = names.packet()
    descriptor = packet.track_descriptor
    descriptor.uuid, descriptor.name, descriptor.sibling_order_rank = uuid, name, place
    descriptor.child_ordering, descriptor.sibling_merge_behavior = _EXPLICIT, _APART
    if parent:
        descriptor.parent_uuid = parent
    return packet


def _events(names: "_Names", track: Track, uuid: int, parent: int, place: int, zero_ns: int) -> Iterator[_Packet]:
    head = _descriptor(names, uuid, parent, track.name, place)
    if track.unit is None:
        yield head
        yield from _packet_slices(names, track.rows, uuid, zero_ns)
        return
    counter = head.track_descriptor.counter
    counter.SetInParent()
    if track.unit == "bytes":
        counter.unit = proto.CounterDescriptor.Unit.UNIT_SIZE_BYTES
    elif track.unit:
        counter.unit_name = track.unit
    yield head
    for time, value in zip(track.rows["time_ns"].tolist(), track.rows["value"].tolist(), strict=True):
        packet = names.event(_COUNTER, uuid, time - zero_ns)
        packet.track_event.double_counter_value = value
        yield packet


def _packet_slices(names: "_Names", slices: pd.DataFrame, uuid: int, zero_ns: int) -> Iterator[_Packet]:
    """Begins and ends in order: of those at one moment the ends of what was open first, then the begins."""
    open_ends: list[int] = []
    columns = ("name", "category", "start_ns", "end_ns", "args", "flows_out", "flows_in")
    for name, category, start, end, args, flows_out, flows_in in zip(
        *(slices[column].tolist() for column in columns), strict=True
    ):
        while open_ends and open_ends[-1] <= start:
            yield names.event(_END, uuid, open_ends.pop() - zero_ns)
        open_ends.append(end)
        packet = names.event(_BEGIN, uuid, start - zero_ns)
        event = packet.track_event
        names.name(packet, name)
        names.category(packet, category)
        if args:
            names.tell(packet, args)
        passes_on = flows_out if isinstance(flows_out, tuple) else ()
        event.flow_ids.extend(passes_on)
        if isinstance(flows_in, tuple):
            event.terminating_flow_ids.extend(number for number in flows_in if number not in passes_on)
        yield packet
    while open_ends:
        yield names.event(_END, uuid, open_ends.pop() - zero_ns)


class _Names:
    """A sequence's texts: each is written once, with the packet that first needs it."""

    def __init__(self, sequence: int) -> None:
        self._sequence = sequence
        self._is_first = True
        self._known: dict[str, dict[str, int]] = {"event_names": {}, "event_categories": {},
            "debug_annotation_names": {}, "debug_annotation_string_values": {}}  # fmt: skip

    def packet(self) -> _Packet:
        packet = proto.TracePacket()
        packet.trusted_packet_sequence_id = self._sequence
        packet.sequence_flags = 1 if self._is_first else 2  # names begin anew, or are those of earlier packets
        self._is_first = False
        return packet

    def event(self, type_: int, uuid: int, time_ns: int) -> _Packet:
        packet = self.packet()
        packet.timestamp = max(0, time_ns)
        packet.track_event.type, packet.track_event.track_uuid = type_, uuid
        return packet

    def name(self, packet: _Packet, text: str) -> None:
        packet.track_event.name_iid = self._number(packet, "event_names", text)

    def category(self, packet: _Packet, text: str) -> None:
        packet.track_event.category_iids.append(self._number(packet, "event_categories", text))

    def tell(self, packet: _Packet, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            note = packet.track_event.debug_annotations.add()
            note.name_iid = self._number(packet, "debug_annotation_names", name)
            if isinstance(value, bool):
                note.bool_value = value
            elif isinstance(value, int):
                note.int_value = value
            elif isinstance(value, float):
                note.double_value = value
            else:
                note.string_value_iid = self._number(packet, "debug_annotation_string_values", str(value))

    def _number(self, packet: _Packet, kind: str, text: str) -> int:
        known = self._known[kind]
        number = known.get(text)
        if number is None:
            number = known[text] = len(known) + 1
            entry = getattr(packet.interned_data, kind).add()
            entry.iid = number
            if kind == "debug_annotation_string_values":
                entry.str = text.encode(errors="replace")
            else:
                entry.name = text.encode(errors="replace").decode()
        return number


# Tracks as Chrome trace events: a process for each rank, a thread for each track. Times are µs, exact to the ns.


_Event = dict[str, Any]


def trace_events_of_rank(
    rank: int, name: str, facts: Mapping[str, object], tracks: Iterable[Track], zero_ns: int
) -> Iterator[bytes]:
    """A rank's events, each with a comma before it.

    Args:
        rank: its number.
        name: what it is called.
        facts: what a reader must know of it.
        tracks: from top to bottom.
        zero_ns: what is taken from its times.
    """
    for event in _rank_events(rank, name, facts, tracks, zero_ns):
        yield b",\n" + json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def head(facts: Mapping[str, object]) -> bytes:
    """What stands before the ranks' events."""
    first = json.dumps({"ph": "M", "name": "trace_label", "pid": 0, "args": {"name": facts["label"]}})
    return f'{{"displayTimeUnit":"ns","otherData":{json.dumps(facts)},"traceEvents":[\n{first}'.encode()


TAIL = b"\n]}\n"
"""What stands behind them."""


def _rank_events(
    rank: int, name: str, facts: Mapping[str, object], tracks: Iterable[Track], zero_ns: int
) -> Iterator[_Event]:
    yield _named("process_name", rank, 0, {"name": name})
    yield _named("process_labels", rank, 0, {"labels": ", ".join(f"{key} {value}" for key, value in facts.items())})
    yield _named("process_sort_index", rank, 0, {"sort_index": rank})
    for thread, track in enumerate(tracks):
        if track.unit is not None:
            for time, value in track.rows[["time_ns", "value"]].itertuples(index=False):
                yield {"ph": "C", "name": track.name, "pid": rank, "ts": (time - zero_ns) / 1000,
                       "args": {track.unit or "value": value}}  # fmt: skip
            continue
        yield _named("thread_name", rank, thread, {"name": track.name})
        yield _named("thread_sort_index", rank, thread, {"sort_index": thread})
        yield from _event_slices(track, rank, thread, zero_ns)


def _named(what: str, rank: int, thread: int, content: _Event) -> _Event:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": content}


def _event_slices(track: Track, rank: int, thread: int, zero_ns: int) -> Iterator[_Event]:
    for row in track.rows.itertuples(index=False):
        place = {"pid": rank, "tid": thread, "ts": (row.start_ns - zero_ns) / 1000}
        event = {"ph": "X", "name": row.name, "cat": row.category, **place, "dur": (row.end_ns - row.start_ns) / 1000}
        if isinstance(row.colour, str):
            event["cname"] = row.colour
        if row.args:
            event["args"] = row.args
        yield event
        leave = row.flows_out if isinstance(row.flows_out, tuple) else ()
        arrive = row.flows_in if isinstance(row.flows_in, tuple) else ()
        for number in dict.fromkeys((*arrive, *leave)):
            what = "collective" if is_of_instance(number) else "launch"
            phase = "s" if number not in arrive else "t" if number in leave else "f"
            yield {"ph": phase, "id": number, "name": what, "cat": what, **place, "bp": "e"}


# All ranks as one file for Perfetto: what was recorded, and beside it what the analysis makes of it.
#
# A job is written rank by rank: each rank's events are read again, drawn beside its rows of the Results, and
# written to a
# piece of their own, so that no more than one rank is in memory at a time in each process. The pieces make the file.


MADE_BY = "analyze-traces export"
"""What each file says near its beginning."""

NEEDED = ("ranks", "steps", "gpu_ranges", "gaps", "calls", "call_waits", "clocks", "path_stretches")
"""Results that an export is made from."""

Visit = Callable[[Callable[[RankTrace], None]], None]
"""Shows every rank to a visitor, in whatever process and order."""

HOUR_NS = 3_600 * 10**9

_DESCRIBED: tuple[str, ...] = (
    "collective",
    "group",
    "dtype",
    "size_bytes",
    "peers",
    "wait_ns",
    "waits_for",
    "instance",
    "why_not_split",
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What every rank's piece is made with."""

    folder: Path
    clock: Clock
    zero_ns: int
    is_json: bool
    devices: Mapping[int, str]
    clocks: Mapping[int, Mapping[str, object]]


def write(results: Results, path: Path, label: str, visit: Visit) -> int:
    """Write a run; returns how many bytes the file has.

    It is Chrome's JSON when the name ends in `.json` or `.json.gz`, else Perfetto's protobuf, compressed when the name
    ends in `.gz`.

    Args:
        results: at least those of NEEDED.
        path: the file; its folder is made, and it appears when it is whole.
        label: name of the run.
        visit: shows the run's ranks.

    Raises:
        UsageError: it cannot be written.
    """
    with whole_file(path) as draft:
        plan, facts = _planned(results, draft.parent, label, is_json=".json" in path.suffixes)
        visit(partial(_write_rank, plan=plan))
        with _opened(draft) as file:
            _put_together(file, plan, facts, results)
        return draft.stat().st_size


def in_memory(traces: Iterable[RankTrace]) -> Visit:
    """Ranks that are in memory, for `write`."""

    def visit(visitor: Callable[[RankTrace], None]) -> None:
        for trace in traces:
            visitor(trace)

    return visit


def _planned(results: Results, folder: Path, label: str, *, is_json: bool) -> tuple[_Plan, dict[str, object]]:
    """What the pieces are made with, each rank's rows in files beside them, and what there is to say of the whole."""
    clock = common_clock(cast("Results", {name: results[name] for name in ("ranks", "steps", "clocks")}))
    # Hosts may work before the first GPU operation; no viewer draws what is before 0.
    zero_ns = clock.zero_ns // HOUR_NS * HOUR_NS - HOUR_NS
    tables: dict[str, pd.DataFrame] = {name: results[name].to_frame() for name in ROWS if name != "calls"}
    tables["path_stretches"] = _own_clock(tables["path_stretches"], results["clocks"].to_frame())
    tables["calls"] = described_calls(results, clock)
    ranks = results["ranks"].to_frame()
    for name, table in tables.items():
        own = dict(list(table.groupby("rank")))
        for rank in ranks["rank"]:
            own.get(rank, table.iloc[:0]).reset_index(drop=True).to_pickle(folder / f"{rank}.{name}")
    devices = ranks.dropna(subset="device_name").set_index("rank")["device_name"].to_dict()
    plan = _Plan(folder, clock, zero_ns, is_json, devices, _of_clocks(results["clocks"].to_frame()))
    facts: dict[str, object] = {
        "label": label,
        "zero_ns": str(zero_ns),
        "clocks": clock.note,
        "made_by": MADE_BY,
    }
    return plan, facts


def described_calls(results: Results, clock: Clock) -> pd.DataFrame:
    """Communication calls of all ranks: what they are, what is known of their waits, and which rank begins before.

    `comes_after` and `comes_before`: another rank of the same instance begins it earlier, or later.
    """
    calls: pd.DataFrame = results["calls"].to_frame()
    waits: pd.DataFrame = results["call_waits"].to_frame()
    keys = ["rank", "call"]
    own = [name for name in _DESCRIBED if name in calls]
    rest = [name for name in _DESCRIBED if name not in own]
    table = calls[[*keys, "start_ns", *own]].merge(waits[keys + rest], on=keys, how="left")
    begins = table["start_ns"] - table["rank"].map(dict(clock.shifts)).fillna(0).astype("int64")
    order = table.assign(begins=begins).sort_values(["begins", "rank"], kind="stable").groupby("instance")
    place, members = order.cumcount().reindex(table.index), order["rank"].transform("size").reindex(table.index)
    table = table.drop(columns="start_ns")
    return table.assign(
        comes_after=(place > 0).fillna(value=False), comes_before=(place + 1 < members).fillna(value=False)
    )


def _own_clock(path: pd.DataFrame, clocks: pd.DataFrame) -> pd.DataFrame:
    """Stretches of the critical path as the ranks' own clocks have them."""
    offsets = path["rank"].map(clocks.set_index("rank")["offset_ns"]).fillna(0).astype("int64")
    return path.assign(start_ns=path["start_ns"] + offsets, end_ns=path["end_ns"] + offsets)


def _of_clocks(clocks: pd.DataFrame) -> dict[int, dict[str, object]]:
    columns = clocks.set_index("rank")[["reference", "offset_ns", "uncertainty_ns", "is_significant"]]
    rows = columns.astype(object).to_dict("index")
    return {
        int(rank): {f"clock_{name}": int(value) for name, value in row.items() if not pd.isna(value)}
        for rank, row in rows.items()
    }


def _write_rank(trace: RankTrace, plan: _Plan) -> None:
    tables = {name: pd.read_pickle(plan.folder / f"{trace.rank}.{name}") for name in ROWS}  # noqa: S301 - our own
    shift_ns = plan.clock.shift_ns(trace.rank)
    device = plan.devices.get(trace.rank)
    name = f"rank {trace.rank}" + (f" · {device}" if device else "")
    facts = {"rank": trace.rank, "clock_shift_applied_ns": -shift_ns, **plan.clocks.get(trace.rank, {}),
            "window": trace.window.label}  # fmt: skip
    pieces = _encoder(plan)(trace.rank, name, facts, tracks_of_rank(trace, tables), shift_ns + plan.zero_ns)
    with (plan.folder / f"{trace.rank}.piece").open("wb") as file:
        file.writelines(pieces)


def _encoder(plan: _Plan) -> Callable[..., Iterator[bytes]]:
    return trace_events_of_rank if plan.is_json else pftrace_of_rank


def _put_together(file: IO[bytes] | gzip.GzipFile, plan: _Plan, facts: Mapping[str, object], results: Results) -> None:
    if plan.is_json:
        file.write(head(facts))
    else:
        file.writelines(of_job(facts, _of_job(results, plan.clock), plan.zero_ns))
    for rank in sorted(results["ranks"].to_frame()["rank"]):
        piece = plan.folder / f"{rank}.piece"
        if piece.exists():
            with piece.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)
            piece.unlink()
    if plan.is_json:
        file.write(TAIL)


def _of_job(results: Results, clock: Clock) -> list[Track]:
    """The critical path through all ranks, on the clock that they are drawn on."""
    stretches = results["path_stretches"].to_frame()
    if stretches.empty:
        return []
    own = _own_clock(stretches, results["clocks"].to_frame())
    shift = own["rank"].map(dict(clock.shifts)).fillna(0).astype("int64")
    drawn = own.assign(start_ns=own["start_ns"] - shift, end_ns=own["end_ns"] - shift)
    details = [{"rank": int(rank), "where": where} for rank, where in zip(drawn["rank"], drawn["where"], strict=True)]
    slices = path(drawn)
    named = [f"rank {rank}: {name}" for rank, name in zip(drawn["rank"], slices["name"], strict=True)]
    ordered = slices.assign(name=named, args=details).sort_values("start_ns", kind="stable")
    ends = ordered["end_ns"].clip(upper=ordered["start_ns"].shift(-1, fill_value=ordered["end_ns"].max()))
    return [Track("job", "critical path of the job", ordered.assign(end_ns=ends.astype("int64")))]


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(path, "wb", compresslevel=6) if path.suffix == ".gz" else path.open("wb")


# Traces in memory as one file for Perfetto.


@pandas_set_up()
def export(traces: TraceSet, path: str | PathLike[str]) -> Path:
    """Write all ranks as one file for ui.perfetto.dev, as `analyze-traces export` does; returns its path.

    It is Chrome's JSON when the name ends in `.json` or `.json.gz`, else Perfetto's protobuf, compressed when the name
    ends in `.gz`.

    Raises:
        UsageError: `traces` are not loaded.
    """
    target = place_of(path, "export takes the path of a file")
    results = analyse(traces, *NEEDED)
    write(results, target, traces.label, in_memory(traces.ranks))
    return target
