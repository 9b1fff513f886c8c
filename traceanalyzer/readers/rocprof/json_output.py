"""rocprofv3's JSON: records decoded, and the captures of its processes."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from traceanalyzer.decoding.packed import PackedFile
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import RankHint
from traceanalyzer.readers.rocprof.capture import NO_GPU_OPS, RCCL_DOMAIN, ROCTX_DOMAIN, Gpu, ProcessTables, traces
from traceanalyzer.readers.rocprof.records import Agent, Content, Extent, Handle, Process, Strings, Symbol, Timed
from traceanalyzer.readers.rocprof.salvage import salvaged

_BLOCK_BYTES = 64 << 20

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
    text = b"".join(iter(lambda: file.read(_BLOCK_BYTES), b""))
    file.close()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return msgspec.json.decode(text, type=Content), 0, False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if found := salvaged(text):
            return found
        raise NotATraceError(
            f"{path}: rocprofv3's JSON cannot be read ({error}); it is written whole when the program ends"
        ) from error
    finally:
        if was_enabled:
            gc.enable()


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
    blocks = [(one.workgroup_size, one.grid_size) for one in info]
    return _times(records).assign(
        name=[names.get(one.kernel_id, "(unnamed)") for one in info],
        agent=_ints(one.agent_id.handle for one in info),
        stream=_ints(_stream(record.stream_id, record.dispatch_info.queue_id) for record in records),
        grid=pd.Categorical([_blocks(grid, group) for group, grid in blocks]),
        block=pd.Categorical([f"{group.x}x{group.y}x{group.z}" for group, _ in blocks]),
    )


def _kernel_name(symbol: Symbol) -> str:
    return symbol.formatted_kernel_name or symbol.kernel_name.removesuffix(".kd") or "(unnamed)"


def _stream(stream: Handle | None, queue: Handle) -> int:
    return queue.handle if stream is None else stream.handle


def _blocks(grid: Extent, group: Extent) -> str:
    """Work-groups: the profiler counts work-items."""
    sizes = ((grid.x, group.x), (grid.y, group.y), (grid.z, group.z))
    return "x".join(str(-(-items // max(size, 1))) for items, size in sizes)


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
