"""Tracks as Perfetto's own protobuf: packets that can be written rank by rank and put behind each other.

Each rank is a process (its id is the rank + 1: viewers keep 0 for the idle one) and a sequence of packets with names of
its own. Times are ns after the export's zero.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from traceanalyzer.export.tracks import Track

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


def of_rank(rank: int, name: str, said: Mapping[str, object], tracks: Iterable[Track], zero_ns: int) -> Iterator[bytes]:
    """A rank's packets.

    Args:
        rank: its number.
        name: what it is called.
        said: what a reader must know of it, shown when its first mark is clicked.
        tracks: from top to bottom.
        zero_ns: what is taken from its times.
    """
    yield from _in_bytes(_rank_packets(rank, name, said, tracks, zero_ns))


def of_job(said: Mapping[str, object], tracks: Iterable[Track], zero_ns: int) -> Iterator[bytes]:
    """The packets that stand first: what was done, and what belongs to no rank."""
    yield from _in_bytes(_job_packets(said, tracks, zero_ns))


def _in_bytes(packets: Iterable[_Packet]) -> Iterator[bytes]:
    held = proto.Trace()
    for number, packet in enumerate(packets, 1):
        held.packet.append(packet)
        if not number % _AT_ONCE:
            yield held.SerializeToString()
            held.Clear()
    yield held.SerializeToString()


def _rank_packets(
    rank: int, name: str, said: Mapping[str, object], tracks: Iterable[Track], zero_ns: int
) -> Iterator[_Packet]:
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
    groups: dict[str, int] = {}
    for place, track in enumerate(tracks):
        if track.group not in groups:
            groups[track.group] = next(uuids)
            yield _descriptor(names, groups[track.group], root, track.group, len(groups))
            if len(groups) == 1:
                yield _said(names, groups[track.group], said, _first_ns(track) - zero_ns)
        yield from _events(names, track, next(uuids), groups[track.group], place, zero_ns)


def _job_packets(said: Mapping[str, object], tracks: Iterable[Track], zero_ns: int) -> Iterator[_Packet]:
    names = _Names(_JOB)
    uuids = iter(range(_JOB, _UUIDS))
    root = next(uuids)
    yield _descriptor(names, root, 0, "job", 0)
    for place, track in enumerate(tracks):
        if not place:
            yield _said(names, root, said, _first_ns(track) - zero_ns)
        yield from _events(names, track, next(uuids), root, place, zero_ns)


def _first_ns(track: Track) -> int:
    column = track.slices["start_ns"] if track.slices is not None else _samples(track)["time_ns"]
    return int(column.min())


def _samples(track: Track) -> pd.DataFrame:
    assert track.samples is not None
    return track.samples


def _descriptor(names: "_Names", uuid: int, parent: int, name: str, place: int) -> _Packet:
    packet = names.packet()
    descriptor = packet.track_descriptor
    descriptor.uuid, descriptor.name, descriptor.sibling_order_rank = uuid, name, place
    descriptor.child_ordering, descriptor.sibling_merge_behavior = _EXPLICIT, _APART
    if parent:
        descriptor.parent_uuid = parent
    return packet


def _said(names: "_Names", uuid: int, said: Mapping[str, object], time_ns: int) -> _Packet:
    packet = names.packet()
    packet.timestamp = max(0, time_ns)
    event = packet.track_event
    event.type, event.track_uuid = _INSTANT, uuid
    names.name(packet, "about this export")
    names.tell(packet, said)
    return packet


def _events(names: "_Names", track: Track, uuid: int, parent: int, place: int, zero_ns: int) -> Iterator[_Packet]:
    head = _descriptor(names, uuid, parent, track.name, place)
    if track.slices is not None:
        yield head
        yield from _slices(names, track.slices, uuid, zero_ns)
        return
    counter = head.track_descriptor.counter
    counter.SetInParent()
    if track.unit == "bytes":
        counter.unit = proto.CounterDescriptor.Unit.UNIT_SIZE_BYTES
    elif track.unit:
        counter.unit_name = track.unit
    yield head
    samples = _samples(track)
    for time, value in zip(samples["time_ns"].tolist(), samples["value"].tolist(), strict=True):
        packet = names.packet()
        packet.timestamp = max(0, time - zero_ns)
        event = packet.track_event
        event.type, event.track_uuid, event.double_counter_value = _COUNTER, uuid, value
        yield packet


def _slices(names: "_Names", slices: pd.DataFrame, uuid: int, zero_ns: int) -> Iterator[_Packet]:
    """Begins and ends in order: of those at one moment the ends of what was open first, then the begins."""
    open_ends: list[int] = []
    columns = ("name", "category", "start_ns", "end_ns", "args", "flows_out", "flows_in")
    for name, category, start, end, told, flows_out, flows_in in zip(
        *(slices[column].tolist() for column in columns), strict=True
    ):
        while open_ends and open_ends[-1] <= start:
            yield _ended(names, uuid, open_ends.pop() - zero_ns)
        open_ends.append(end)
        packet = names.packet()
        packet.timestamp = max(0, start - zero_ns)
        event = packet.track_event
        event.type, event.track_uuid = _BEGIN, uuid
        names.name(packet, name)
        names.category(packet, category)
        if told:
            names.tell(packet, told)
        passes_on = flows_out if isinstance(flows_out, tuple) else ()
        event.flow_ids.extend(passes_on)
        if isinstance(flows_in, tuple):
            event.terminating_flow_ids.extend(number for number in flows_in if number not in passes_on)
        yield packet
    while open_ends:
        yield _ended(names, uuid, open_ends.pop() - zero_ns)


def _ended(names: "_Names", uuid: int, time_ns: int) -> _Packet:
    packet = names.packet()
    packet.timestamp = max(0, time_ns)
    packet.track_event.type, packet.track_event.track_uuid = _END, uuid
    return packet


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
