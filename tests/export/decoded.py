"""Perfetto's protobuf read back with Perfetto's own messages into a database: as its trace processor would, packet by
packet, knowing nothing of who wrote it.
"""

import gzip
import sqlite3
from collections import defaultdict
from pathlib import Path

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

TABLES = """
CREATE TABLE track (id INTEGER PRIMARY KEY, parent INTEGER, name TEXT, pid INTEGER, is_counter INTEGER, place INTEGER);
CREATE TABLE slice (id INTEGER PRIMARY KEY, track INTEGER, name TEXT, category TEXT, ts INTEGER, dur INTEGER,
                    depth INTEGER);
CREATE TABLE arg (slice INTEGER, key TEXT, value);
CREATE TABLE flow (id INTEGER, slice INTEGER, ts INTEGER, is_last INTEGER);
CREATE TABLE counter (track INTEGER, ts INTEGER, value REAL);
"""


class Decoded(sqlite3.Connection):
    """Closed when nobody holds it, by whichever thread finds that: Python 3.13 warns of one that is left open."""

    def __del__(self):
        self.close()


def decoded(path: Path) -> sqlite3.Connection:
    """Tables of `TABLES`; an event that names what was never described, or ends what never began, is an error."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = proto.Trace.FromString(content)
    database = sqlite3.connect(":memory:", factory=Decoded, check_same_thread=False)
    database.executescript(TABLES)
    names = defaultdict(lambda: defaultdict(dict))
    parents, processes, stacks, last = {}, {}, defaultdict(list), defaultdict(int)
    event_type = proto.TrackEvent.Type
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        own = names[sequence]
        if packet.sequence_flags & 1:
            own.clear()
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            own[kind].update({entry.iid: entry.name for entry in getattr(packet.interned_data, kind)})
        texts = own["texts"]
        texts.update({e.iid: e.str.decode() for e in packet.interned_data.debug_annotation_string_values})
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in parents
            assert not track.parent_uuid or track.parent_uuid in parents
            parents[track.uuid] = track.parent_uuid
            processes[track.uuid] = track.process.pid if track.HasField("process") else processes.get(track.parent_uuid)
            name = track.process.process_name if track.HasField("process") else track.name
            row = (track.uuid, track.parent_uuid, name, processes[track.uuid], track.HasField("counter"))
            database.execute("INSERT INTO track VALUES (?, ?, ?, ?, ?, ?)", (*row, track.sibling_order_rank))
        if not packet.HasField("track_event"):
            continue
        event, time = packet.track_event, packet.timestamp
        uuid = event.track_uuid
        assert uuid in parents
        assert time >= last[uuid], "packets of a track in order of time"
        last[uuid] = time
        if event.type == event_type.TYPE_COUNTER:
            database.execute("INSERT INTO counter VALUES (?, ?, ?)", (uuid, time, event.double_counter_value))
        elif event.type == event_type.TYPE_SLICE_END:
            number, start = stacks[uuid].pop()
            database.execute("UPDATE slice SET dur = ? WHERE id = ?", (time - start, number))
        else:
            category = own["event_categories"][event.category_iids[0]] if event.category_iids else None
            is_instant = event.type == event_type.TYPE_INSTANT
            number = database.execute(
                "INSERT INTO slice (track, name, category, ts, dur, depth) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    uuid,
                    own["event_names"][event.name_iid],
                    category,
                    time,
                    0 if is_instant else None,
                    len(stacks[uuid]),
                ),
            ).lastrowid
            if not is_instant:
                stacks[uuid].append((number, time))
            for note in event.debug_annotations:
                kind = note.WhichOneof("value")
                value = texts[note.string_value_iid] if kind == "string_value_iid" else getattr(note, kind)
                key = own["debug_annotation_names"][note.name_iid]
                database.execute("INSERT INTO arg VALUES (?, ?, ?)", (number, key, value))
            flows = [(flow, False) for flow in event.flow_ids] + [(flow, True) for flow in event.terminating_flow_ids]
            database.executemany(
                "INSERT INTO flow VALUES (?, ?, ?, ?)", [(flow - 2**63, number, time, last) for flow, last in flows]
            )
    assert not any(stacks.values()), "every slice has its end"
    return database
