"""AMD's rocprofv3, JSON output: `<process>_results.json`, plain or gzip."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from traceanalyzer.decoding.stream import PackedFile
from traceanalyzer.errors import NotATraceError
from traceanalyzer.files.archives import is_json
from traceanalyzer.files.bounds import BEGIN_BYTES, BLOCK_BYTES
from traceanalyzer.files.safe_pickle import without_collection
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE, UNNAMED
from traceanalyzer.readers.base import Format, Header, RankHint
from traceanalyzer.readers.rocprof import (
    NO_GPU_OPS,
    RCCL_DOMAIN,
    ROCTX_DOMAIN,
    Gpu,
    ProcessTables,
    extents,
    traces,
)

FORMAT = Format("rocprofv3 --output-format json", "_results.json", vendor="AMD")

_BEGIN = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"')


def recognises(path: Path) -> bool:
    """By name and by the key that the file begins with."""
    if not path.is_file() or not is_json(path.name):
        return False
    try:
        file = PackedFile.open(path)
    except NotATraceError:
        return False
    head = file.read(BEGIN_BYTES)
    file.close()
    return _BEGIN.match(head) is not None


def peek(path: Path) -> Header:  # noqa: ARG001 - every reader is asked for a file
    """Nothing: the file names no rank, and its times are no times of day; see `Reader.peek`."""
    return Header()


# Where our columns stand in a record; of what else the file says (host, command line, configuration) nothing is read.


_TIMED = {
    "start_ns": "start_timestamp", "end_ns": "end_timestamp", "correlation": "correlation_id.internal",
    "domain_id": "kind", "operation_id": "operation", "thread": "thread_id", "stream": "stream_id.handle",
}  # fmt: skip

_SIZES = {f"{what}.{axis}": f"dispatch_info.{what}_size.{axis}" for what in ("grid", "workgroup") for axis in "xyz"}

_DISPATCH = {
    "agent": "dispatch_info.agent_id.handle", "queue": "dispatch_info.queue_id.handle",
    "kernel": "dispatch_info.kernel_id", **_SIZES,
}  # fmt: skip
"""Without a stream (in older versions) the hardware queue stands for it."""

_COPY = {"source": "src_agent_id.handle", "target": "dst_agent_id.handle", "bytes": "bytes"}

_REQUIRED = ("start_ns", "end_ns", "correlation", "agent", "kernel", "source", "target")
"""A record without one of these, where it should have it, is lost."""

_MOST = 2**62
"""What a table can hold, and sums of two."""

_GPU = 2
"""`type` of an agent."""

# What can still be had of a file that was cut off.


# A whole string (so that brackets in names do not count), or a bracket.
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)

_CLOSING = {b"{": b"}", b"[": b"]"}


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


# Records as tables, and the captures of a file's processes.


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """A rank for each GPU of the file's processes; see `Reader.read`."""
    processes, is_cut = _decoded(path)
    found = [*map(_capture, processes)]
    captures, lost = [capture for capture, _ in found], sum(lost for _, lost in found)
    if not any(len(capture.kernels) + len(capture.copies) for capture in captures):
        raise NotATraceError(f"{path}: {NO_GPU_OPS}")
    for trace in traces(captures, path, hint, rules):
        meta = replace(trace.meta, is_truncated=is_cut, events_skipped=trace.meta.events_skipped + lost)
        yield replace(trace, meta=meta)


def _decoded(path: Path) -> tuple[list[Mapping[str, Any]], bool]:
    """The file's processes, and whether it is cut off."""
    file = PackedFile.open(path)
    text = b"".join(iter(lambda: file.read(BLOCK_BYTES), b""))
    file.close()
    with without_collection():
        plain, error = _plain(text)
        is_cut = error is not None
        if is_cut:
            plain, _ = _plain(closed(text))
    processes = [one for one in _listed(plain, "rocprofiler-sdk-tool") if isinstance(one, Mapping)]
    if is_cut and not processes:
        raise NotATraceError(
            f"{path}: rocprofv3's JSON cannot be read ({error}); it is written whole when the program ends"
        )
    return processes, is_cut


def _plain(text: bytes) -> tuple[Any, Exception | None]:
    try:
        return msgspec.json.decode(text), None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return None, error


def _found(content: Any, path: str) -> Any:
    """What stands at a path of keys; `None` where nothing does."""
    for key in path.split("."):
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def _listed(content: Any, path: str) -> list[Any]:
    """The same as a list: one thing that stands there alone is its only element."""
    found = _found(content, path)
    return found if isinstance(found, list) else [found]


def _number(content: Any, path: str) -> int | None:
    found = _found(content, path)
    return found if type(found) is int and abs(found) <= _MOST else None


def _text(content: Any, *paths: str) -> str:
    """The first text that stands at one of the paths."""
    return next((found for path in paths if isinstance(found := _found(content, path), str) and found), "")


def _capture(process: Mapping[str, Any]) -> tuple[ProcessTables, int]:
    """What a process recorded, and how many of its records cannot be understood."""
    records = {
        name: _records(process, name, _TIMED | more)
        for name, more in {
            "kernel_dispatch": _DISPATCH, "memory_copy": _COPY, "hip_api": {}, "marker_api": {}, "rccl_api": {},
        }.items()
    }  # fmt: skip
    tables = {name: table for name, (table, _) in records.items()}
    names = _operations(process)
    calls, rccl = (_named(tables[name], names) for name in ("hip_api", "rccl_api"))
    ranges = [_markers(process, _named(tables["marker_api"], names)), rccl.assign(domain=RCCL_DOMAIN)]
    copies = _named(tables["memory_copy"], names)
    captured = ProcessTables(
        process=_number(process, "metadata.pid"),
        gpus=_gpus(process),
        kernels=_kernels(process, tables["kernel_dispatch"]),
        copies=copies.assign(operation=copies["name"]),
        calls=calls,
        ranges=pd.concat(ranges, ignore_index=True),
        start_ns=_number(process, "metadata.init_time"),
        end_ns=_number(process, "metadata.fini_time"),
    )
    return captured, sum(lost for _, lost in records.values())


def _records(process: Mapping[str, Any], name: str, columns: Mapping[str, str]) -> tuple[pd.DataFrame, int]:
    """Numbers of a domain's records, -1 where one has none, and how many records are lost."""
    records = _found(process, f"buffer_records.{name}")
    records = records if isinstance(records, list) else []
    held = {"": records}
    table = pd.DataFrame({column: _numbers(held, path) for column, path in columns.items()})
    is_whole = (table[[column for column in _REQUIRED if column in table]] != NONE).all(axis=1)
    return table[is_whole].reset_index(drop=True), int((~is_whole).sum())


def _numbers(held: dict[str, list[Any]], path: str) -> np.ndarray:
    found = _dug(held, path)
    numbers = (one if type(one) is int and -_MOST <= one <= _MOST else NONE for one in found)
    return np.fromiter(numbers, dtype=np.int64, count=len(found))


def _dug(held: dict[str, list[Any]], path: str) -> list[Any]:
    """What of each record stands at a path; what is looked up on the way is held, for others begin alike."""
    if path not in held:
        around, _, key = path.rpartition(".")
        held[path] = [one.get(key) if type(one) is dict else None for one in _dug(held, around)]
    return held[path]


def _gpus(process: Mapping[str, Any]) -> dict[int, Gpu]:
    own = [agent for agent in _listed(process, "agents") if _number(agent, "type") == _GPU]
    return {
        handle: Gpu(_number(agent, "logical_node_type_id") or 0, _text(agent, "product_name", "name") or None)
        for agent in own
        if (handle := _number(agent, "id.handle")) is not None
    }


def _operations(process: Mapping[str, Any]) -> dict[tuple[int, int], str]:
    """Names of operations, by their domain and number."""
    domains = [_listed(domain, "operations") for domain in _listed(process, "strings.buffer_records")]
    return dict(
        chain.from_iterable(
            (((kind, number), name) for number, name in enumerate(names) if isinstance(name, str))
            for kind, names in enumerate(domains)
        )
    )


def _named(table: pd.DataFrame, names: Mapping[tuple[int, int], str]) -> pd.DataFrame:
    pairs = zip(table["domain_id"].tolist(), table["operation_id"].tolist(), strict=True)
    return table.assign(name=pd.Series([names.get(pair, UNNAMED) for pair in pairs], dtype="object"))


def _kernels(process: Mapping[str, Any], table: pd.DataFrame) -> pd.DataFrame:
    symbols = _listed(process, "kernel_symbols")
    names = {
        _number(symbol, "kernel_id"): _text(symbol, "formatted_kernel_name", "kernel_name").removesuffix(".kd")
        for symbol in symbols
    }
    sizes = np.maximum(table[[*_SIZES]].to_numpy(), 1)
    return table.assign(
        name=pd.Series([names.get(kernel) or UNNAMED for kernel in table["kernel"].tolist()], dtype="object"),
        stream=table["stream"].where(table["stream"] != NONE, table["queue"]),
        grid=extents(-(-sizes[:, :3] // sizes[:, 3:])),  # the profiler counts work-items
        block=extents(sizes[:, 3:]),
    )


def _markers(process: Mapping[str, Any], table: pd.DataFrame) -> pd.DataFrame:
    """Ranges, by their texts; single marks and calls that are no range have none or no length."""
    messages = {_number(each, "key"): _found(each, "value") for each in _listed(process, "strings.marker_api")}
    texts = [messages.get(correlation) for correlation in table["correlation"].tolist()]
    is_range = (table["name"] != "roctxMarkA") & np.array([isinstance(text, str) for text in texts], dtype=bool)
    return table.assign(name=pd.Series(texts, dtype="object"), domain=ROCTX_DOMAIN)[is_range]
