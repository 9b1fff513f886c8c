"""All ranks as one file for Perfetto."""

import gzip
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.clocks import Clock, common_clock
from traceanalyzer.analyses.engine import reduce_rank
from traceanalyzer.analyses.host.activity import thread_roles
from traceanalyzer.analyses.host.api_calls import launch_queue
from traceanalyzer.analyses.memory import CATEGORIES, Held
from traceanalyzer.analyses.timeline import described_calls, on_own_clocks
from traceanalyzer.export.kineto_cut import touches
from traceanalyzer.files.whole import whole_file
from traceanalyzer.functions import analyse
from traceanalyzer.meaning import vocabulary
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import DATA, HOST
from traceanalyzer.model import RankTrace, TraceSet
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import pandas_set_up
from traceanalyzer.validation import place_of

# Rows that the analysis adds above a rank's streams: steps, ranges, the critical path and idle time by cause.


SLICE_COLUMNS = ("name", "category", "start_ns", "end_ns", "args", "flows_out", "flows_in")
"""Of a table of slices, which may lack some; flows are tuples of numbers, of arrows that begin and end at the slice."""


def steps(table: pd.DataFrame) -> pd.DataFrame:
    """Each step's window on the GPU."""
    windows = table[table["start_ns"].notna()].astype({"start_ns": "int64", "window_ns": "int64"})
    return windows.assign(
        name=[f"step {step}" for step in windows["step"]],
        category="step",
        end_ns=windows["start_ns"] + windows["window_ns"],
        args=[{"complete": is_complete} for is_complete in is_true(windows["is_complete"]).tolist()],
    )


def ranges(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The user's ranges where their operations run, by their depth."""
    every = table.assign(name=table["name"].map(short_name), category="range")
    return {f"ranges, {depth} deep" if depth else "ranges": own for depth, own in every.groupby("depth")}


def path(table: pd.DataFrame) -> pd.DataFrame:
    """Stretches of the critical path."""
    kind = table["category"].astype("str")
    what = table["operator"].where(kind.isin((HOST.key, DATA.key)), table["name"])
    return table.assign(
        name=[f"{one}: {short_name(name)}" if isinstance(name, str) else one
              for one, name in zip(kind, what, strict=True)],
        category="critical path",
        args=_contents(table[["operator"]]),
    )  # fmt: skip


def gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Stretches in which nothing runs, by their cause."""
    labels = {cause.key: cause.part.label for cause in vocabulary.IDLE_CAUSES}
    host = table["doing"].map(short_name, na_action="ignore")
    return table.assign(
        name=table["cause"].astype("str").map(labels), category="idle", args=_contents(host.to_frame("host"))
    )


# Numbers of arrows: a collective's from rank to rank is its own plus one, those from calls to operations are larger.


_RANK_BITS = 36
"""Operations of one rank, and collectives, are fewer than two to the power of this."""


def _of_operation(rank: int, operation: pd.Series) -> pd.Series:
    return ((rank + 1) << _RANK_BITS) + operation


# Every GPU operation as slices by stream: a communication call is its wait, then its transfer.


def _gpu_slices(ops: pd.DataFrame, calls: pd.DataFrame, rank: int) -> pd.DataFrame:
    """The rank's slices, with their `stream`; of its rows of `Timeline` and of `_in_order`, by `call`."""
    own = calls.reindex(ops["call"].fillna(NONE).astype("int64")).set_index(ops.index)
    wait_ns = own["wait_ns"].astype("Int64").fillna(0).astype("int64").clip(0, ops["end_ns"] - ops["start_ns"])
    split_ns = ops["start_ns"] + wait_ns
    kind = ops["kind"].astype("str")
    details = ops[["name", "step", "launch", "operator", "shapes", "path"]].join(
        own.drop(columns=["rank", "size_bytes", "comes_after", "comes_before"])
    )
    whole = ops.assign(
        name=[short_name(name) for name in ops["name"]],
        category=kind,
        args=_contents(details.assign(size_bytes=ops["size_bytes"].fillna(own["size_bytes"]))),
        **_arrows(ops, own, rank),
    )
    waits = whole.assign(end_ns=split_ns, name="wait · " + whole["name"], category="wait")
    moves = whole.assign(start_ns=split_ns)
    moves.loc[wait_ns > 0, ["flows_in", "flows_out"]] = None
    return pd.concat([waits[wait_ns > 0], moves[(wait_ns == 0) | (split_ns < ops["end_ns"])]])


def _arrows(ops: pd.DataFrame, calls: pd.DataFrame, rank: int) -> dict[str, list[tuple[int, ...]]]:
    """From the call that launched it to each operation, and from rank to rank of each collective; 0 is none."""
    launched = _of_operation(rank, ops["operation"]).where(ops["launch"].notna(), 0).tolist()
    shared = (calls["instance"].astype("Int64").fillna(NONE) + 1).astype("int64")
    arrive, leave = (shared.where(is_true(calls[name]), 0).tolist() for name in ("comes_after", "comes_before"))
    flows_in = [tuple(filter(None, numbers)) for numbers in zip(launched, arrive, strict=True)]
    return {"flows_in": flows_in, "flows_out": [(number,) if number else () for number in leave]}


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
    details = events.reindex(columns=[*_THREAD_DETAILS.get(category, ())])
    slices = events.reindex(columns=["name", "start_ns", "end_ns", "thread", "flows_out"]).astype({"name": "str"})
    return slices.assign(category=category, args=_contents(details))


def _launched(trace: RankTrace, ops: pd.DataFrame) -> pd.Series:
    """For each API call the arrows to the operations that it launched."""
    numbers = _of_operation(trace.rank, ops["operation"])
    flows = numbers.groupby(trace.gpu_ops["launch"].to_numpy()[ops["operation"]]).agg(tuple)
    flows = flows.astype(object).reindex(trace.api_calls.index)
    return flows.where(flows.notna(), None)


def _while_looked_at(trace: RankTrace, table: pd.DataFrame) -> np.ndarray:
    """Mask of the rows that run while a chosen step does, on the host or on the GPU, or that launched its work."""
    if trace.window.steps is None:
        return np.ones(len(table), dtype=bool)
    chosen = trace.steps[trace.steps["step"].isin(trace.window.steps)]
    ends = np.maximum(chosen["host_end_ns"].to_numpy(), chosen["end_ns"].fillna(0).to_numpy(dtype="int64"))
    stretches = np.column_stack([chosen["host_start_ns"].to_numpy(), ends])
    kept = touches(table["start_ns"].to_numpy(), table["end_ns"].to_numpy(), stretches)
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
        tables: its rows of `ROWS`; those of `calls` as `_in_order` makes them.
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
    on_gpu = _gpu_slices(ops, tables["calls"].set_index("call"), trace.rank)
    for number, slices in on_gpu.groupby("stream"):
        yield from _laid("GPU", f"stream {number}", slices, is_nested=False)
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
    ordered = slices.take(order)
    lane = lanes(ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy(), is_nested=is_nested)
    ordered = _as_objects(ordered)
    for number in range(int(lane.max()) + 1):
        yield Track(group, name if not number else f"{name} ({number + 1})", ordered[lane == number])


def _as_objects(slices: pd.DataFrame) -> pd.DataFrame:
    """All of `SLICE_COLUMNS`, `None` where a value is absent: texts of pandas are slow one by one."""
    columns = slices.reindex(columns=[*SLICE_COLUMNS])
    return columns.astype(object).where(columns.notna(), None)


def lanes(starts: np.ndarray, ends: np.ndarray, *, is_nested: bool) -> np.ndarray:
    """For each slice, in order of start and the longer first, the first lane in which it fits."""
    found = np.zeros(len(starts), dtype=np.int64)
    if not is_nested and (starts[1:] >= np.maximum.accumulate(ends)[:-1]).all():
        return found
    open_ends: list[list[int]] = []
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
# with names of its own. Times are ns after the export's zero.


JOB = NONE
"""In place of a rank: what belongs to none."""

_EXPLICIT = proto.TrackDescriptor.ChildTracksOrdering.EXPLICIT
_APART = proto.TrackDescriptor.SiblingMergeBehavior.SIBLING_MERGE_BEHAVIOR_NONE
_BEGIN, _END = proto.TrackEvent.Type.TYPE_SLICE_BEGIN, proto.TrackEvent.Type.TYPE_SLICE_END
_COUNTER, _INSTANT = proto.TrackEvent.Type.TYPE_COUNTER, proto.TrackEvent.Type.TYPE_INSTANT
_BYTES = proto.CounterDescriptor.Unit.UNIT_SIZE_BYTES


def pftrace_of_rank(
    rank: int, name: str, facts: Mapping[str, object], tracks: Iterable[Track], zero_ns: int
) -> Iterator[bytes]:
    """A rank's packets, or those of the job, which stand first.

    Args:
        rank: its number, or JOB.
        name: what it is called.
        facts: what a reader must know of it, shown when its first mark is clicked.
        tracks: from top to bottom.
        zero_ns: what is taken from its times.
    """
    for number, packet in enumerate(_packets(rank, name, facts, tracks, zero_ns)):
        packet.trusted_packet_sequence_id = rank + 2
        packet.sequence_flags = 2 if number else 1  # names begin anew, or are those of earlier packets
        yield proto.Trace(packet=[packet]).SerializeToString()


def _packets(
    rank: int, name: str, facts: Mapping[str, object], tracks: Iterable[Track], zero_ns: int
) -> Iterator[proto.TracePacket]:
    """Each track under a heading for its group below the root; the facts stand under the first."""
    uuids = count((rank + 2) << 20)
    texts: _Texts = {}

    def heading(place: int, **what: object) -> tuple[proto.TracePacket, int]:
        order = {"sibling_order_rank": place, "child_ordering": _EXPLICIT, "sibling_merge_behavior": _APART}
        descriptor = proto.TrackDescriptor(uuid=next(uuids), **order, **what)
        return proto.TracePacket(track_descriptor=descriptor), descriptor.uuid

    process = {"pid": rank + 1, "process_name": name, "legacy_sort_index": rank}
    root, uuid = heading(0, name=name) if rank == JOB else heading(0, process=process)
    yield root
    groups = {"job": uuid}
    for place, track in enumerate(tracks):
        if track.group not in groups:
            above, groups[track.group] = heading(len(groups), parent_uuid=uuid, name=track.group)
            yield above
        parent = groups[track.group]
        times = track.rows["start_ns" if track.unit is None else "time_ns"]
        if not place:
            about = _event(_INSTANT, parent, int(times.min()) - zero_ns)
            _name(about, "about this export", facts, texts)
            yield about
        what: dict[str, object] = {"parent_uuid": parent, "name": _utf8(track.name)}
        if track.unit is not None:
            what["counter"] = {"unit": _BYTES} if track.unit == "bytes" else {"unit_name": track.unit or None}
        above, own = heading(place, **what)
        yield above
        if track.unit is None:
            yield from _slice_packets(track.rows, own, zero_ns, texts)
            continue
        for time, value in zip(times.tolist(), track.rows["value"].tolist(), strict=True):
            sample = _event(_COUNTER, own, time - zero_ns)
            sample.track_event.double_counter_value = value
            yield sample


_Texts = dict[tuple[str, str], int]
"""Kind and text → its number; each text is written once, with the packet that first needs it."""


def _slice_packets(slices: pd.DataFrame, uuid: int, zero_ns: int, texts: _Texts) -> Iterator[proto.TracePacket]:
    """Begins and ends in order: of those at one moment the ends of what was open first, then the begins."""
    open_ends: list[int] = []
    for row in slices.itertuples(index=False):
        while open_ends and open_ends[-1] <= row.start_ns:
            yield _event(_END, uuid, open_ends.pop() - zero_ns)
        open_ends.append(row.end_ns)
        packet = _event(_BEGIN, uuid, row.start_ns - zero_ns)
        _name(packet, row.name, row.args or {}, texts)
        event, leave = packet.track_event, row.flows_out or ()
        event.category_iids.append(_number(packet, "event_categories", row.category, texts))
        event.flow_ids.extend(leave)
        event.terminating_flow_ids.extend(number for number in row.flows_in or () if number not in leave)
        yield packet
    while open_ends:
        yield _event(_END, uuid, open_ends.pop() - zero_ns)


def _event(kind: int, uuid: int, moment_ns: int) -> proto.TracePacket:
    packet = proto.TracePacket(timestamp=max(0, moment_ns))
    packet.track_event.type, packet.track_event.track_uuid = kind, uuid
    return packet


def _name(packet: proto.TracePacket, name: str, notes: Mapping[str, object], texts: _Texts) -> None:
    """Give the event its name and what is known of it."""
    event = packet.track_event
    event.name_iid = _number(packet, "event_names", name, texts)
    for key, value in notes.items():
        note = event.debug_annotations.add(name_iid=_number(packet, "debug_annotation_names", key, texts))
        if isinstance(value, bool):
            note.bool_value = value
        elif isinstance(value, int):
            note.int_value = value
        elif isinstance(value, float):
            note.double_value = value
        else:
            note.string_value_iid = _number(packet, "debug_annotation_string_values", str(value), texts)


def _number(packet: proto.TracePacket, kind: str, text: str, texts: _Texts) -> int:
    number = texts.get((kind, text))
    if number is None:
        number = texts[kind, text] = len(texts) + 1
        entry = getattr(packet.interned_data, kind).add(iid=number)
        if kind == "debug_annotation_string_values":
            entry.str = _utf8(text).encode()
        else:
            entry.name = _utf8(text)
    return number


def _utf8(text: str) -> str:
    """The text with a mark for what UTF-8 cannot hold."""
    return text.encode(errors="replace").decode()


# Tracks as Chrome trace events: a process for each rank, a thread for each track. Times are µs, exact to the ns.


def trace_events_of_rank(
    rank: int, name: str, facts: Mapping[str, object], tracks: Iterable[Track], zero_ns: int
) -> Iterator[bytes]:
    """A rank's events, each with a comma before it; arguments are those of `pftrace_of_rank`."""
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
) -> Iterator[dict[str, Any]]:
    def named(what: str, thread: int = 0, **content: object) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": content}

    yield named("process_name", name=name)
    yield named("process_labels", labels=", ".join(f"{key} {value}" for key, value in facts.items()))
    yield named("process_sort_index", sort_index=rank)
    for thread, track in enumerate(tracks):
        if track.unit is None:
            yield named("thread_name", thread, name=track.name)
            yield named("thread_sort_index", thread, sort_index=thread)
            for row in track.rows.itertuples(index=False):
                yield from _slice_events(row, {"pid": rank, "tid": thread, "ts": (row.start_ns - zero_ns) / 1000})
        else:
            for time, value in track.rows[["time_ns", "value"]].itertuples(index=False):
                yield {"ph": "C", "name": track.name, "pid": rank, "ts": (time - zero_ns) / 1000,
                       "args": {track.unit or "value": value}}  # fmt: skip


def _slice_events(row: Any, place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A slice, and the arrows that begin or end at it."""
    event = {"ph": "X", "name": row.name, "cat": row.category, **place, "dur": (row.end_ns - row.start_ns) / 1000}
    if row.args:
        event["args"] = row.args
    yield event
    arrive, leave = row.flows_in or (), row.flows_out or ()
    for number in dict.fromkeys((*arrive, *leave)):
        what = "launch" if number >> _RANK_BITS else "collective"
        phase = "s" if number not in arrive else "t" if number in leave else "f"
        yield {"ph": phase, "id": number, "name": what, "cat": what, **place, "bp": "e"}


# All ranks as one file for Perfetto: what was recorded, and beside it what the analysis makes of it.
#
# A job is written rank by rank: each rank's events are read again, drawn beside its rows of the Results, and written
# to a piece of their own, so that no more than one rank is in memory at a time in each process. The pieces make the
# file.


MADE_BY = "analyze-traces export"
"""What each file says near its beginning."""

NEEDED = ("ranks", "steps", "gpu_ranges", "gaps", "calls", "call_waits", "clocks", "path_stretches")
"""Results that an export is made from."""

Visit = Callable[[Callable[[RankTrace], None]], object]
"""Shows every rank to a visitor, in whatever process and order."""

HOUR_NS = 3_600 * 10**9


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
        is_json, folder = ".json" in path.suffixes, draft.parent
        tables = {name: results[name].to_frame() for name in NEEDED}
        clock = common_clock(cast("Results", {name: results[name] for name in ("ranks", "steps", "clocks")}))
        tables["path_stretches"] = on_own_clocks(tables["path_stretches"], tables["clocks"])
        tables["calls"] = _in_order(tables["calls"], tables["call_waits"], clock)
        # Hosts may work before the first GPU operation; no viewer draws what is before 0.
        zero_ns = clock.zero_ns // HOUR_NS * HOUR_NS - HOUR_NS
        _store_ranks(tables, clock, zero_ns, folder)
        visit(partial(_write_rank, folder=folder, is_json=is_json))
        facts = {"label": label, "zero_ns": str(zero_ns), "clocks": clock.note, "made_by": MADE_BY}
        job = _of_job(tables["path_stretches"], clock)
        with gzip.open(draft, "wb", compresslevel=6) if path.suffix == ".gz" else draft.open("wb") as file:
            file.writelines([head(facts)] if is_json else pftrace_of_rank(JOB, "job", facts, job, zero_ns))
            for piece in [folder / f"{rank}.piece" for rank in sorted(tables["ranks"]["rank"])]:
                if piece.exists():
                    with piece.open("rb") as source:
                        shutil.copyfileobj(source, file)
                    piece.unlink()
            file.writelines([TAIL] if is_json else [])
        return draft.stat().st_size


def _store_ranks(tables: Mapping[str, pd.DataFrame], clock: Clock, zero_ns: int, folder: Path) -> None:
    """What each rank's piece is made with, in a file for whichever process makes it: facts, zero and rows."""
    columns = tables["clocks"].set_index("rank")[["reference", "offset_ns", "uncertainty_ns", "is_significant"]]
    clocks = columns.add_prefix("clock_").astype(object).to_dict("index")
    rows = {name: dict(list(tables[name].groupby("rank"))) for name in ROWS}
    for rank, device in zip(tables["ranks"]["rank"], tables["ranks"]["device_name"], strict=True):
        shift_ns = clock.shift_ns(rank)
        known = {name: int(value) for name, value in clocks.get(rank, {}).items() if not pd.isna(value)}
        own = {name: found.get(rank, tables[name].iloc[:0]).reset_index(drop=True) for name, found in rows.items()}
        name = f"rank {rank}" + ("" if pd.isna(device) else f" · {device}")
        facts = {"rank": rank, "clock_shift_applied_ns": -shift_ns, **known}
        pd.to_pickle((name, facts, shift_ns + zero_ns, own), folder / f"{rank}.rows")


def _in_order(calls: pd.DataFrame, waits: pd.DataFrame, clock: Clock) -> pd.DataFrame:
    """The described calls of all ranks, and which rank of an instance begins before.

    `comes_after` and `comes_before`: another rank of the same instance begins it earlier, or later.
    """
    table = described_calls(calls, waits)
    begun = pd.Series(clock.shifted(calls, "start_ns"), table.index).groupby(table["instance"])
    place = begun.rank(method="first")
    return table.assign(comes_after=place > 1, comes_before=place < begun.transform("size"))


def _write_rank(trace: RankTrace, folder: Path, *, is_json: bool) -> None:
    name, facts, zero_ns, tables = pd.read_pickle(folder / f"{trace.rank}.rows")  # noqa: S301 - our own
    encoded = trace_events_of_rank if is_json else pftrace_of_rank
    tracks = tracks_of_rank(trace, tables)
    with (folder / f"{trace.rank}.piece").open("wb") as file:
        file.writelines(encoded(trace.rank, name, {**facts, "window": trace.window.label}, tracks, zero_ns))


def _of_job(stretches: pd.DataFrame, clock: Clock) -> list[Track]:
    """The critical path through all ranks, on the clock that they are drawn on."""
    if stretches.empty:
        return []
    moved = {name: clock.shifted(stretches, name) for name in ("start_ns", "end_ns")}
    slices = path(stretches.assign(**moved))
    ranks = stretches["rank"].astype(int)
    slices["name"] = [f"rank {rank}: {name}" for rank, name in zip(ranks, slices["name"], strict=True)]
    slices["args"] = _contents(stretches[["rank", "where"]])
    slices = slices.sort_values("start_ns", kind="stable")
    next_ns = slices["start_ns"].shift(-1, fill_value=slices["end_ns"].max())
    cut = slices.assign(end_ns=slices["end_ns"].clip(upper=next_ns))
    return [Track("job", "critical path of the job", _as_objects(cut))]


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
    write(results, target, traces.label, lambda visitor: [*map(visitor, traces.ranks)])
    return target
