"""rocprofv3's JSON: its fields, records and captures; salvage of damaged files."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args, get_origin

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import astuple

from traceanalyzer.decoding.stream import PackedFile
from traceanalyzer.errors import NotATraceError
from traceanalyzer.files.bounds import BLOCK_BYTES
from traceanalyzer.files.safe_pickle import without_collection
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import RankHint
from traceanalyzer.readers.rocprof.capture import (
    NO_GPU_OPS,
    RCCL_DOMAIN,
    ROCTX_DOMAIN,
    Gpu,
    ProcessTables,
    extents,
    traces,
)

# The fields of rocprofv3's JSON that are used, with their types; the machine's name and command line are not.


Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""What a table can hold, and sums of two."""


class Handle(msgspec.Struct, gc=False):
    """An id that the profiler wraps."""

    handle: Int = 0


class Correlation(msgspec.Struct, gc=False):
    """Which host call an operation comes from."""

    internal: Int = 0


class Extent(msgspec.Struct, gc=False):
    """Work-items in each dimension."""

    x: Int = 1
    y: Int = 1
    z: Int = 1


class Dispatch(msgspec.Struct):
    """Which kernel ran where."""

    agent_id: Handle
    queue_id: Handle
    kernel_id: Int
    workgroup_size: Extent
    grid_size: Extent


class Timed(msgspec.Struct, kw_only=True):
    """What every record has."""

    start_timestamp: Int
    end_timestamp: Int
    kind: Int = 0
    operation: Int = 0
    thread_id: Int = 0
    correlation_id: Correlation


class Kernel(Timed, kw_only=True):
    """A kernel; without `stream_id` (older versions) the hardware queue stands for the stream."""

    dispatch_info: Dispatch
    stream_id: Handle | None = None


class Copy(Timed, kw_only=True):
    """A copy that a copy engine made."""

    src_agent_id: Handle
    dst_agent_id: Handle
    size_bytes: Int | None = msgspec.field(default=None, name="bytes")
    stream_id: Handle | None = None


class Buffers(msgspec.Struct):
    """Records by domain."""

    kernel_dispatch: list[Kernel] = []
    memory_copy: list[Copy] = []
    hip_api: list[Timed] = []
    marker_api: list[Timed] = []
    rccl_api: list[Timed] = []


class Agent(msgspec.Struct):
    """A processor; `type` 2 is a GPU, `logical_node_type_id` its number among them."""

    id: Handle
    type: Int = 0
    product_name: str = ""
    name: str = ""
    logical_node_type_id: Int = 0


class Operations(msgspec.Struct):
    """Names of one domain's operations, by number."""

    kind: str = ""
    operations: list[str] = []


class Message(msgspec.Struct):
    """The text of a marker, by its correlation id."""

    key: Int
    value: str


class Strings(msgspec.Struct):
    """Names."""

    buffer_records: list[Operations] = []
    marker_api: list[Message] = []


class Symbol(msgspec.Struct):
    """A kernel's names."""

    kernel_id: Int
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class Metadata(msgspec.Struct):
    """The process; of what the file says besides (host, command line, configuration) nothing is read."""

    pid: Int | None = None
    init_time: Int | None = None
    fini_time: Int | None = None


class Process(msgspec.Struct):
    """One process."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    agents: list[Agent] = []
    strings: Strings = msgspec.field(default_factory=Strings)
    kernel_symbols: list[Symbol] = []
    buffer_records: Buffers = msgspec.field(default_factory=Buffers)


class Content(msgspec.Struct):
    """The whole file: one process, or several merged."""

    processes: list[Process] | Process = msgspec.field(name="rocprofiler-sdk-tool")


# What can still be had of a damaged rocprofv3 file: of one that was cut off, and of one with odd records.


# A whole string (so that brackets in names do not count), or a bracket.
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)

_CLOSING = {b"{": b"}", b"[": b"]"}


def salvaged(text: bytes) -> tuple[Content, int, bool] | None:
    """The content without what cannot be understood, how many records that costs, and whether the file is cut off.

    `None` where nothing can be had.
    """
    is_cut = False
    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        is_cut = True
        try:
            plain = msgspec.json.decode(closed(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    content = plain.get("rocprofiler-sdk-tool") if isinstance(plain, Mapping) else None
    processes = [one for one in (content if isinstance(content, list) else [content]) if isinstance(one, Mapping)]
    made = [_fitting(one, Process) for one in processes]
    return (Content([process for process, _ in made]), sum(lost for _, lost in made), is_cut) if made else None


def closed(text: bytes) -> bytes:
    """The text up to the last whole object of a list, with the brackets that are then open closed."""
    stack: list[bytes] = []
    end, open_then = 0, b""
    for match in _STRUCTURE.finditer(text):
        token = match[0]
        if token in _CLOSING:
            stack.append(_CLOSING[token])
        elif token in (b"}", b"]"):
            if not stack or stack.pop() != token:
                break
            if stack and stack[-1] == b"]":  # an element of a list; a part of one is not whole
                end, open_then = match.end(), b"".join(reversed(stack))
    return text[:end] + open_then


def _fitting(content: Any, kind: Any) -> tuple[Any, int]:
    """What of plain content is of that kind, record by record and field by field, and how many are not."""
    if get_origin(kind) is list and isinstance(content, list):
        records = [_fitting(record, get_args(kind)[0]) for record in content]
        return [record for record, _ in records if record is not None], sum(lost for _, lost in records)
    if kind in (Process, Buffers) and isinstance(content, Mapping):
        fields = [field for field in msgspec.structs.fields(kind) if field.encode_name in content]
        found = {field.name: _fitting(content[field.encode_name], field.type) for field in fields}
        kept = {name: value for name, (value, _) in found.items() if value is not None}
        return kind(**kept), sum(lost for _, lost in found.values())
    try:
        return msgspec.convert(content, kind), 0
    except msgspec.ValidationError:
        return None, 1


# rocprofv3's JSON: records decoded, and the captures of its processes.


_GPU = 2


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """A rank for each GPU of the file's processes; see `Reader.read`."""
    content, lost, is_cut = _decoded(path)
    processes = content.processes if isinstance(content.processes, list) else [content.processes]
    captures = [_capture(process) for process in processes]
    if not any(len(capture.kernels) + len(capture.copies) for capture in captures):
        raise NotATraceError(f"{path}: {NO_GPU_OPS}")
    for trace in traces(captures, path, hint, rules):
        meta = replace(trace.meta, is_truncated=is_cut, events_skipped=trace.meta.events_skipped + lost)
        yield replace(trace, meta=meta)


def _decoded(path: Path) -> tuple[Content, int, bool]:
    """The content, how many records cannot be understood, and whether the file is cut off."""
    file = PackedFile.open(path)
    text = b"".join(iter(lambda: file.read(BLOCK_BYTES), b""))
    file.close()
    try:
        with without_collection():
            return msgspec.json.decode(text, type=Content), 0, False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if found := salvaged(text):
            return found
        raise NotATraceError(
            f"{path}: rocprofv3's JSON cannot be read ({error}); it is written whole when the program ends"
        ) from error


def _capture(process: Process) -> ProcessTables:
    records = process.buffer_records
    messages = {message.key: message.value for message in process.strings.marker_api}
    calls = _timed(records.hip_api, process.strings)
    rccl = _timed(records.rccl_api, process.strings).assign(domain=RCCL_DOMAIN)
    return ProcessTables(
        process=process.metadata.pid,
        gpus=_gpus(process.agents),
        kernels=_kernels(process),
        copies=_copies(process),
        calls=calls,
        ranges=pd.concat([_markers(records.marker_api, process.strings, messages), rccl], ignore_index=True),
        start_ns=process.metadata.init_time,
        end_ns=process.metadata.fini_time,
    )


def _gpus(agents: list[Agent]) -> dict[int, Gpu]:
    return {
        agent.id.handle: Gpu(agent.logical_node_type_id, agent.product_name or agent.name or None)
        for agent in agents
        if agent.type == _GPU
    }


def _kernels(process: Process) -> pd.DataFrame:
    records = process.buffer_records.kernel_dispatch
    names = {symbol.kernel_id: _kernel_name(symbol) for symbol in process.kernel_symbols}
    info = [record.dispatch_info for record in records]
    group = np.array([astuple(one.workgroup_size) for one in info], dtype=np.int64).reshape(-1, 3)
    items = np.array([astuple(one.grid_size) for one in info], dtype=np.int64).reshape(-1, 3)
    return _times(records).assign(
        name=[names.get(one.kernel_id, "(unnamed)") for one in info],
        agent=_ints(one.agent_id.handle for one in info),
        stream=_ints(_stream(record.stream_id, record.dispatch_info.queue_id) for record in records),
        grid=extents(-(-items // np.maximum(group, 1))),  # the profiler counts work-items
        block=extents(group),
    )


def _kernel_name(symbol: Symbol) -> str:
    return symbol.formatted_kernel_name or symbol.kernel_name.removesuffix(".kd") or "(unnamed)"


def _stream(stream: Handle | None, queue: Handle) -> int:
    return queue.handle if stream is None else stream.handle


def _copies(process: Process) -> pd.DataFrame:
    records = process.buffer_records.memory_copy
    return _times(records).assign(
        operation=_names(records, process.strings),
        source=_ints(record.src_agent_id.handle for record in records),
        target=_ints(record.dst_agent_id.handle for record in records),
        bytes=pd.array([record.size_bytes for record in records], dtype="Int64"),
        stream=_ints(-1 if record.stream_id is None else record.stream_id.handle for record in records),
    )


def _markers(records: Sequence[Timed], strings: Strings, messages: dict[int, str]) -> pd.DataFrame:
    """Ranges, by their texts; single marks and calls that are no range have none or no length."""
    texts = [messages.get(record.correlation_id.internal) for record in records]
    is_mark = [name == "roctxMarkA" for name in _names(records, strings)]
    kept = [text is not None and not mark for text, mark in zip(texts, is_mark, strict=True)]
    return _times(records).assign(name=texts, thread=_threads(records), domain=ROCTX_DOMAIN)[np.array(kept, dtype=bool)]


def _timed(records: Sequence[Timed], strings: Strings) -> pd.DataFrame:
    return _times(records).assign(name=_names(records, strings), thread=_threads(records))


def _times(records: Sequence[Timed]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "start_ns": _ints(record.start_timestamp for record in records),
            "end_ns": _ints(record.end_timestamp for record in records),
            "correlation": _ints(record.correlation_id.internal for record in records),
        }
    )


def _threads(records: Sequence[Timed]) -> np.ndarray:
    return _ints(record.thread_id for record in records)


def _names(records: Sequence[Timed], strings: Strings) -> list[str]:
    """Names of the operations, by domain and number."""
    kinds = strings.buffer_records
    table = {(kind, number): name for kind, domain in enumerate(kinds) for number, name in enumerate(domain.operations)}
    return [table.get((record.kind, record.operation), "(unnamed)") for record in records]


def _ints(values: Iterable[int]) -> np.ndarray:
    return np.fromiter(values, dtype=np.int64)
