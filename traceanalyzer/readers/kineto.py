"""PyTorch-profiler (Kineto) Chrome traces, `.json`, plain or packed: old and new, whole and damaged."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import pandas as pd

from traceanalyzer.cuda_graphs import with_annotations
from traceanalyzer.decoding.columns import ABSENT, Coded
from traceanalyzer.decoding.stream import (
    DEVICES,
    EVENT_BYTES_MOST,
    FOREIGN,
    OUT_OF_TREE,
    EventDecoder,
    EventText,
    are_of_several,
)
from traceanalyzer.decoding.tables import WORTH_BYTES, TableBuilder, decode_all
from traceanalyzer.errors import NotATraceError
from traceanalyzer.execution import CORES_A_FILE
from traceanalyzer.files.archives import is_json
from traceanalyzer.files.other_tools import written_by
from traceanalyzer.files.safe_pickle import without_collection
from traceanalyzer.kinds import CUT_LIST, KindRules
from traceanalyzer.meaning.rows import LATEST_NS, RANKS
from traceanalyzer.model import ProcessGroup, RankMeta, RankTrace, trace_of
from traceanalyzer.model.make import args_of_kept_ops
from traceanalyzer.model.schema import GPU_OPS, conform, printable
from traceanalyzer.model.tables import (
    array_of,
    names_of,
    pairs_of,
    rows_where,
    table_of,
    texts_as_category,
    whole_of,
    with_columns,
)
from traceanalyzer.readers.base import DEVICE_ORDER, Format, Header, RankHint

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


_Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=RANKS)]


class _Group(msgspec.Struct, gc=False):
    pg_name: str = ""
    pg_desc: str = ""
    ranks: list[_Rank] | str = []  # a text where Kineto itself wrote it: `[0, 1]`, or `[0, 1, ..., 63]`


class Device(msgspec.Struct, gc=False):
    """A GPU that the process saw."""

    id: _Number | None = None
    name: str | None = None
    numSms: Annotated[int, msgspec.Meta(ge=1, le=2**16)] | None = None  # noqa: N815 - the format's name
    totalGlobalMem: Annotated[int, msgspec.Meta(ge=0, le=2**50)] | None = None  # noqa: N815 - the format's name


_OLD_DEVICES = "computeProperties"
"""What PyTorch 1.8 calls `deviceProperties`."""

_JSON = json.JSONDecoder(strict=False)

_JOB = "distributedInfo"
"""Holds what is of the job."""

_OF_JOB = ("rank", "world_size", "pg_config", "nccl_version")


class Properties(msgspec.Struct, frozen=True):
    """A file's properties; `None` and empty where it does not say.

    Attributes:
        base_ns: ns since the epoch that event times are relative to; 0 when they are absolute.
    """

    rank: _Rank | None = None
    world_size: _Rank | None = None
    pg_config: list[_Group] = []
    nccl_version: str | None = None
    devices: list[Device] = msgspec.field(default_factory=list, name="deviceProperties")
    trace_id: str | None = None
    base_ns: Annotated[int, msgspec.Meta(ge=0, le=LATEST_NS)] = msgspec.field(default=0, name="baseTimeNanoseconds")
    cuda_driver_version: _Number | None = None
    cuda_runtime_version: _Number | None = None
    pytorch_version: str | None = None
    hostname: str | None = None
    host_name: str | None = None

    @property
    def host(self) -> str | None:
        """The machine's name."""
        return self.hostname or self.host_name

    @property
    def groups(self) -> tuple[ProcessGroup, ...]:
        """The job's process groups."""
        return tuple(ProcessGroup(each.pg_name, each.pg_desc, _ranks(each.ranks)) for each in self.pg_config)

    @property
    def versions(self) -> dict[str, str]:
        """Of libraries, by their names."""
        versions = {
            "cuda_driver": _cuda_version(self.cuda_driver_version),
            "cuda_runtime": _cuda_version(self.cuda_runtime_version),
            "nccl": self.nccl_version,
            "pytorch": self.pytorch_version,
        }
        return {name: version for name, version in versions.items() if version}

    def device(self, number: int | None) -> Device:
        """The GPU of a number in events; of one that no GPU has (ROCm's agents) the first, if all are alike."""
        kinds = {(device.name, device.numSms, device.totalGlobalMem) for device in self.devices}
        found = [device for device in self.devices if device.id == number] or self.devices[: len(kinds) == 1]
        return Device() if number is None or not found else found[0]


def properties(head: bytes, tail: bytes = b"") -> Properties:
    """Properties from the text before the events' array and after it, each by itself: an odd one costs no other."""
    text = (head + b"\n" + tail).decode(errors="replace")
    fields = {field.encode_name: field for field in msgspec.structs.fields(Properties)}
    names = (*(name for name in fields if name not in _OF_JOB), _JOB, _OLD_DEVICES)
    found = {name: value for name in names if (value := _value(text, name)) is not None}
    found.setdefault("deviceProperties", found.pop(_OLD_DEVICES, []))
    info = found.pop(_JOB, None)
    found |= {name: info[name] for name in _OF_JOB if name in info} if isinstance(info, dict) else {}
    kept = {}
    for name, value in found.items():
        with suppress(msgspec.ValidationError, UnicodeEncodeError):  # halves of characters, too
            kept[fields[name].name] = msgspec.convert(value, fields[name].type, strict=False)
    return Properties(**kept)


def _value(text: str, name: str) -> Any:
    """The value that follows the first key of this name; `None` when it cannot be read."""
    key = re.search(rf'"{name}"\s*:\s*', text)
    try:
        return _JSON.raw_decode(text, key.end())[0] if key else None
    except (ValueError, RecursionError):
        return None


def _ranks(ranks: list[int] | str) -> tuple[int, ...]:
    """A group's ranks; none where the list of them is cut."""
    if not isinstance(ranks, str):
        return tuple(ranks)
    return () if CUT_LIST in ranks else tuple(int(number) for number in re.findall(r"\d{1,9}", ranks))


def _cuda_version(number: int | None) -> str | None:
    """13000 is CUDA 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


# PyTorch-profiler (Kineto) Chrome traces, `.json`, plain or packed: old and new, whole and damaged.


FORMAT = Format(
    "PyTorch Profiler", ".json, plain or packed as .gz, .zst, .xz or .bz2", framework="torch", has_one_process=True,
    is_general=True,
)  # fmt: skip

_EXPORT = re.compile(rb'"otherData":\{"label":[^{}]*"zero_ns":')

_ANOTHER_UNIT = re.compile(rb'"displayTimeUnit"\s*:\s*"us"')
"""Kineto writes `ms`, Triton's Proton this one, beside kernels that look like Kineto's."""


def recognises(path: Path) -> bool:
    """By name: `.json`, or packed `.json.gz`, `.zst`, `.xz`, `.bz2`."""
    return path.is_file() and is_json(path.name)


def peek(path: Path) -> Header:
    """Rank, world size, trace id and start of the capture, from the file's first MiB.

    Raises:
        NotATraceError: the file cannot be read or has no events' array.
    """
    text = EventText.open(path)
    known = properties(text.head)
    first = text.first_time_us()
    if _ANOTHER_UNIT.search(text.head) and (other := written_by(text.begin)):
        raise NotATraceError(f"{path}: {other}")
    if _EXPORT.search(text.head):
        raise NotATraceError(f"{path}: made by `analyze-traces export`; name the traces that it was made from")
    return Header(
        ranks=None if known.rank is None else (known.rank,),
        world_size=known.world_size,
        trace_id=known.trace_id,
        start_ns=None if first is None else known.base_ns + round(first * 1000),
    )


def ended_ns(path: Path) -> int | None:
    """When the capture ended, by the mark that the profiler leaves at the file's end; see `Reader`."""
    text = EventText.open(path)
    last = text.window_end_us()
    return None if last is None else properties(text.head).base_ns + round(last * 1000)


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """The ranks of one file: one, or one for each GPU when the file names no rank.

    Raises:
        NotATraceError: the file cannot be read, or holds no GPU operations.
    """
    yield from _one_per_device(*_parsed(path, hint), rules)  # no name here: what is read would be held while it is used


def _parsed(path: Path, hint: RankHint) -> tuple[RankMeta, Properties, TableBuilder, pd.DataFrame, pd.DataFrame]:
    """What of the file is known, its other tables, and the operators and GPU operations in it."""
    with without_collection():
        text, decoder, builder = _decoded(path)
    known = properties(text.head, text.tail)
    builder.base_ns = known.base_ns
    ops, host_ops = frame_of(builder, "gpu_ops"), frame_of(builder, "host_ops")
    without_category = builder.foreign.pop("", 0)
    is_host_only = ops.empty and not text.is_truncated and not host_ops.empty
    has = {"has_ops": not ops.empty, "has_host": not host_ops.empty}
    if why := why_refused(text, decoder, builder, known, without_category, **has):
        raise NotATraceError(f"{path}: {why}")
    meta = _meta(path, hint, known, text, decoder, frame_of(builder, "spans"))
    host, process = recorded_on(path, known.host, host_ops)
    meta = replace(meta, host=host, process=process)
    if is_host_only:
        left = (f"{unread(without_category)}: a device's, where it had work.",) if without_category else ()
        notes = (*meta.notes, *left)
        meta = replace(meta, is_host_only=True, has_api_calls=builder.holds("api_calls"), notes=notes)
    return meta, known, builder, host_ops, conform(ops, GPU_OPS) if ops.empty else ops


def _decoded(path: Path) -> tuple[EventText, EventDecoder, TableBuilder]:
    text, decoder, builder = EventText.open(path), EventDecoder(), TableBuilder()
    processes = CORES_A_FILE.get() if text.file.expected_bytes > WORTH_BYTES else 1
    decode_all(text.chunks(), decoder, builder, processes)
    return text, decoder, builder


def _meta(
    path: Path, hint: RankHint, known: Properties, text: EventText, decoder: EventDecoder, spans: pd.DataFrame
) -> RankMeta:
    notes = []
    if text.file.is_damaged:
        notes.append("The file's packed data are damaged: what could be unpacked is used.")
    if text.is_truncated:
        notes.append(f"The file ends early: its {decoder.read:,} whole events are read.")
    if text.oversized:
        notes.append(f"Stretches of over {EVENT_BYTES_MOST >> 20} MiB without the end of an event are left out.")
    if text.beyond:
        notes.append(f"{text.beyond} events after the end of the list of events are left out.")
    return RankMeta(
        rank=hint.rank if known.rank is None else known.rank,
        rank_source=hint.source if known.rank is None else "distributedInfo",
        files=(printable(path.name),),
        format="kineto",
        world_size=known.world_size,
        trace_id=known.trace_id,
        groups=known.groups,
        versions=known.versions,
        capture_start_ns=None if spans.empty else int(array_of(spans, "start_ns").min()),
        capture_end_ns=None if spans.empty else int(array_of(spans, "end_ns").max()),
        is_truncated=text.is_truncated,
        events_skipped=decoder.skipped + text.beyond + text.oversized,
        notes=tuple(notes),
    )


def _one_per_device(
    meta: RankMeta,
    known: Properties,
    builder: TableBuilder,
    host_ops: pd.DataFrame,
    ops: pd.DataFrame,
    rules: KindRules,
) -> Iterator[RankTrace]:
    notes, comm_args = frame_of(builder, "graph_notes"), _with_all_ranks(frame_of(builder, "comm_args"), known.groups)
    held = {"gpu_ops": ops, "comm_args": comm_args, "host_ops": host_ops}
    held |= {name: frame_of(builder, name) for name in ("api_calls", "ranges", "frames", "stream_waits", "counters")}
    devices: list[int | None] = [*ops["device"].value_counts().index] if len(ops) else [None]
    # A job of one process drives all the GPUs that it uses: each is a rank then.
    if known.rank is not None and known.world_size != 1 and len(devices) > 1 and not _drives_the_world(known, ops):
        others = int((ops["device"] != devices[0]).sum())
        meta = replace(meta, notes=(*meta.notes, f"{others} operations on other GPUs than this rank's are left out."))
        devices = devices[:1]
    ranks = list(enumerate(sorted(devices, key=lambda device: device or 0)))
    del host_ops, ops, comm_args
    for index, device in ranks:
        gpu = known.device(device)
        of_rank = replace(
            meta,
            rank=meta.rank + index,
            rank_source=DEVICE_ORDER if len(ranks) > 1 else meta.rank_source,
            device=None if device is None else int(device),
            device_name=gpu.name or None,
            device_bytes=gpu.totalGlobalMem or None,
            multiprocessors=gpu.numSms,
            devices_seen=sum(bool(each.name) for each in known.devices) or None,
        )
        own = _of_device(held, device)
        process_ops = held["gpu_ops"]["correlation"]
        if index == len(ranks) - 1:
            held.clear()  # what is analysed then has its own, sorted
        trace = trace_of(of_rank, own, process_ops, rules)
        del process_ops
        yield with_annotations(trace, notes) if len(notes) else trace


def _of_device(held: Mapping[str, pd.DataFrame], device: int | None) -> dict[str, pd.DataFrame]:
    """Tables of one GPU of the process: its operations, and what the host did."""
    own = {name: _where(table, _rows_of(table, device)) for name, table in held.items()}
    return own | {"comm_args": args_of_kept_ops(held["comm_args"], _rows_of(held["gpu_ops"], device))}


def _drives_the_world(known: Properties, ops: pd.DataFrame) -> bool:
    """Whether the job's first process runs kernels on as many GPUs as the job has ranks, on all of them about as many.

    `nn.DataParallel` in a script that torchrun started with a process for each GPU: the others do nothing.
    """
    kernels = ops.loc[(ops["activity"] == "kernel").to_numpy(dtype=bool), "device"].value_counts()
    return known.rank == 0 and len(kernels) == known.world_size and 2 * kernels.min() >= kernels.max()


def _with_all_ranks(comm_args: pd.DataFrame, groups: tuple[ProcessGroup, ...]) -> pd.DataFrame:
    """The arguments with their groups' ranks in full: PyTorch writes 30 of them (`0, 1, ..., 63`), or none."""
    if comm_args.empty:
        return comm_args
    ranks = {group.name: ",".join(map(str, group.ranks)) for group in groups if group.ranks}
    pairs, of_row = pairs_of(comm_args["group_ranks"].array, comm_args["group"].array)
    texts = [ranks.get(group, text) if text is None or CUT_LIST in text else text for text, group in pairs]
    return with_columns(comm_args, group_ranks=texts_as_category(texts).take(of_row))


def _rows_of(frame: pd.DataFrame, device: int | None) -> np.ndarray:
    if device is None or "device" not in frame:
        return np.ones(len(frame), dtype=bool)
    rows: np.ndarray = (whole_of(frame, "device") == device) & frame["device"].notna().to_numpy()
    return rows


def _where(frame: pd.DataFrame, mask: np.ndarray) -> pd.DataFrame:
    return frame if mask.all() else rows_where(frame, mask)


# Decoded columns as tables.


def frame_of(builder: TableBuilder, name: str) -> pd.DataFrame:
    """What has been collected for a table; it is handed over, so that no event is in memory twice: ask for it once."""
    collected = builder.taken(name)
    columns = {column: _array(values) for column, values in collected.taken(builder.base_ns)}
    return table_of(columns, pd.RangeIndex(collected.rows))


def _array(values: np.ndarray | Coded) -> Any:
    if isinstance(values, Coded):
        return pd.Categorical.from_codes(values.codes, dtype=names_of(values.texts))
    absent = values == ABSENT
    if not absent.any():
        return values
    values[absent] = 1
    return pd.arrays.IntegerArray(values, absent)


# The machine that a trace was recorded on: from its metadata, else from the name that the profiler gave the file.


# As tensorboard_trace_handler names files: host and process, then nanoseconds.
_OF_HANDLER = re.compile(r"(?P<host>.+)_(?P<process>\d+)\.\d{10,}\.pt\.trace\.json(?:\.(?:gz|zst|xz|bz2))?")


def recorded_on(path: Path, named: str | None, operators: pd.DataFrame) -> tuple[str | None, int | None]:
    """Host and process.

    A file's name is believed only when one of the threads that recorded `operators` bears its process's number, as
    Linux numbers a process's main thread: other names end in a number too.
    """
    match = _OF_HANDLER.fullmatch(path.name)
    if match is None or operators.empty or not (operators["thread"] == int(match["process"])).any():
        return (printable(named) if named else None), None
    return printable(named or match["host"]), int(match["process"])


# Why a file of events is no trace that can be read, and what to record or give instead.


_OF_NPUS = re.compile(r"^(?:trace_view|msprof\w*)\.json")
"""Names under which Ascend's profilers write."""

_OF_ANY_OTHER = f"a capture of {DEVICES[OUT_OF_TREE]}"

_SPLIT = "a rank's recording is a file of its own: split it where its second list of traceEvents begins"

_ONE_PATH = (
    "several ranks wrote to this path, each over parts of the others' recording; record again with the rank in the "
    "file's name, such as tensorboard_trace_handler(folder, worker_name=f'rank_{rank}')"
)

_APART = "give the files that it was made of, as the profilers wrote them, one for each rank, in a folder of their own"


def why_refused(text: EventText, decoder: EventDecoder, builder: TableBuilder, known: Properties,
                without_category: int, *, has_ops: bool, has_host: bool) -> str | None:  # fmt: skip
    """Why what was decoded gives no trace; `None` where it does: of a GPU's work, or of the host alone."""
    if decoder.followed:
        return f"{decoder.followed + 1} traces, one behind the other; {_SPLIT}"
    if are_of_several(builder.origins):
        return _of_several(known)
    if has_ops:
        return None
    if of_others := _of_others(text, builder, without_category):
        return of_others
    if has_host and not text.is_truncated:
        return None
    return _of_another_tool(text) or _why_empty(text, decoder, without_category, has_host=has_host)


def _of_several(known: Properties) -> str:
    """A file's header names one rank, unless a tool made the file."""
    if known.rank is None:
        return f"the recordings of several processes, merged into one file; {_APART}"
    lost = f"rank {1 - known.rank}" if known.world_size == 2 else "each other rank that wrote to it"
    return f"parts of several ranks' recordings, under the header of rank {known.rank}: {lost} is lost; {_ONE_PATH}"


def _of_others(text: EventText, builder: TableBuilder, without_category: int) -> str | None:
    for category, count in builder.foreign.most_common(1):
        return (
            f"{FOREIGN.get(category, _OF_ANY_OTHER)}: its events ({count:,} of category {category}) are not read, only "
            "kernels and copies that are recorded as kernel, gpu_memcpy and gpu_memset"
        )
    for category, count in builder.called.most_common(1):
        device = category.rpartition("_")[0]
        return (
            f"a capture of {DEVICES.get(device, f'{device.upper()} devices')}: it holds calls of their runtime "
            f"({count:,} of category {category}) and none of their operations as kernel, gpu_memcpy and gpu_memset, "
            "which alone are read"
        )
    if without_category and _OF_NPUS.match(text.path.name):
        return f"a capture of NPU devices, whose events ({without_category:,}) are not read"
    return _of_another_tool(text) if without_category else None


def _of_another_tool(text: EventText) -> str | None:
    again = EventText.open(text.path)
    again.file.close()
    return written_by(again.begin)


def unread(count: int) -> str:
    """How many events are left out."""
    return f"{count:,} event{'s have' if count > 1 else ' has'} no category and {'are' if count > 1 else 'is'} not read"


def _why_empty(text: EventText, decoder: EventDecoder, without_category: int, *, has_host: bool) -> str:
    if text.is_truncated:
        what = "GPU operation" if has_host else "event"
        return f"cut off before its first {what}; copy the whole file, or record it again"
    if decoder.skipped:
        return f"none of its {decoder.skipped} events can be read"
    if without_category:
        return (
            f"a Chrome trace whose {unread(without_category)}, as PyTorch's old torch.autograd.profiler writes them; "
            "record with torch.profiler"
        )
    return (
        "a Chrome trace without PyTorch operators or GPU operations. If torch.profiler wrote it, its schedule had "
        "begun a new cycle before the export: export in on_trace_ready, or use torch.profiler.schedule(…, repeat=1)"
    )
