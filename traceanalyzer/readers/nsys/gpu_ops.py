"""What ran on the GPUs: kernels, copies, memsets and CUDA graphs of all processes and devices of an export."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.kinds import ACTIVITIES, KINDS, KindRules
from traceanalyzer.model import NONE
from traceanalyzer.readers.nsys.ids import process_of
from traceanalyzer.readers.nsys.source import Source, category, int_values, maybe_ints, triple_category

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GPU_TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH)

_PLACE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
_GRID = ("gridX", "gridY", "gridZ")
_BLOCK = ("blockX", "blockY", "blockZ")

_DIRECTIONS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "UnifiedHtoD", 12: "UnifiedDtoH", 13: "UnifiedDtoD",
}  # fmt: skip
"""`ENUM_CUDA_MEMCPY_OPER`, in the words that PyTorch's traces use."""

_MEMORIES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
"""`ENUM_CUDA_MEM_KIND`; static device memory is device memory."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Operations of one activity: where and when, and their names as positions in `names`."""

    activity: str
    rows: pa.Table
    codes: np.ndarray
    names: list[str]
    columns: dict[str, pd.Series]


def read_gpu_ops(source: Source, rules: KindRules) -> pd.DataFrame:
    """GPU operations with the columns of `model.GPU_OPS` that the export has, and `process` and `device`.

    Times are the export's own. A CUDA graph that was captured as a whole is one row, `CUDA graph <id>`: what ran
    inside is not recorded, so its kind is the one that the rules give to that name (`compute` unless the user says
    otherwise).
    """
    parts = [part for part in (_kernels(source), _copies(source), _memsets(source), _graphs(source)) if len(part.rows)]
    if not parts:
        return pd.DataFrame({"process": np.empty(0, np.int64), "device": np.empty(0, np.int64)})
    frames = [_placed(part) | part.columns for part in parts]
    merged = {name: _stacked([frame[name] for frame in frames]) for name in frames[0]}
    return pd.DataFrame(merged | _named(parts, rules), copy=False)


def _kernels(source: Source) -> _Part:
    rows = source.read(
        KERNEL, ints=(*_PLACE, *_KERNEL_NAMES, "graphNodeId"), triples={"grid": _GRID, "block": _BLOCK}
    )
    ids = int_values(rows, _KERNEL_NAMES[0])
    for name in _KERNEL_NAMES[1:]:
        if (ids == NONE).any():
            ids = np.where(ids == NONE, int_values(rows, name), ids)
    codes, distinct = pd.factorize(ids)
    texts = source.strings(distinct)
    names = [texts.get(int(one)) or "(kernel without a name)" for one in distinct]
    columns = _columns(
        len(rows),
        grid=triple_category(int_values(rows, "grid")),
        block=triple_category(int_values(rows, "block")),
        graph_node=maybe_ints(rows, "graphNodeId"),
    )
    return _Part("kernel", rows, codes, names, columns)


def _copies(source: Source) -> _Part:
    kinds = ("copyKind", "srcKind", "dstKind")
    devices = ("srcDeviceId", "dstDeviceId")
    rows = source.read(MEMCPY, ints=(*_PLACE, "bytes", *kinds, *devices, "graphNodeId"))
    copy_kind, from_memory, to_memory = (int_values(rows, name) for name in kinds)
    directions = [_DIRECTIONS.get(kind) for kind in range(16)]
    memories = [_MEMORIES.get(kind) for kind in range(16)]
    codes, distinct = pd.factorize(((copy_kind & 15) << 8) | ((from_memory & 15) << 4) | (to_memory & 15))
    names = [
        f"Memcpy {directions[one >> 8] or 'Unknown'} "
        f"({memories[(one >> 4) & 15] or 'Unknown'} -> {memories[one & 15] or 'Unknown'})"
        for one in distinct.tolist()
    ]
    lowered = [memory.lower() if memory else None for memory in memories]
    columns = _columns(
        len(rows),
        bytes=maybe_ints(rows, "bytes"),
        direction=category(copy_kind & 15, directions),
        source_memory=category(from_memory & 15, lowered),
        target_memory=category(to_memory & 15, lowered),
        peer_device=_peer(rows, copy_kind == 10),
        graph_node=maybe_ints(rows, "graphNodeId"),
    )
    return _Part("memcpy", rows, codes, names, columns)


def _peer(rows: pa.Table, is_peer: np.ndarray) -> pd.array:
    """The other GPU of a peer-to-peer copy: the end that is not the device which the row belongs to."""
    device, first, last = (int_values(rows, name) for name in ("deviceId", "srcDeviceId", "dstDeviceId"))
    other = np.where(first == device, last, first)
    return pd.arrays.IntegerArray(other, ~is_peer | (other < 0))


def _memsets(source: Source) -> _Part:
    rows = source.read(MEMSET, ints=(*_PLACE, "bytes", "memKind", "graphNodeId"))
    codes, distinct = pd.factorize(int_values(rows, "memKind"))
    # Exports of 2022 lack memKind; Kineto writes "Memset (Device)" for nearly all.
    names = [f"Memset ({_MEMORIES.get(one, 'Unknown' if one >= 0 else 'Device')})" for one in distinct.tolist()]
    columns = _columns(len(rows), bytes=maybe_ints(rows, "bytes"), graph_node=maybe_ints(rows, "graphNodeId"))
    return _Part("memset", rows, codes, names, columns)


def _graphs(source: Source) -> _Part:
    rows = source.read(GRAPH, ints=(*_PLACE, "graphId"))
    codes, distinct = pd.factorize(int_values(rows, "graphId"))
    names = ["CUDA graph" if one < 0 else f"CUDA graph {one}" for one in distinct.tolist()]
    return _Part("graph", rows, codes, names, _columns(len(rows)))


_CATEGORIES = ("grid", "block", "direction", "source_memory", "target_memory")
_NUMBERS = ("bytes", "peer_device", "graph_node")


def _columns(length: int, **known: pd.Series) -> dict[str, pd.Series]:
    """The columns that not every activity has; those that are not given are NA."""
    nothing = category(np.zeros(length, np.int64), [None])
    unknown = pd.arrays.IntegerArray(np.zeros(length, np.int64), np.ones(length, bool))
    return {name: known.get(name, nothing) for name in _CATEGORIES} | {
        name: known.get(name, unknown) for name in _NUMBERS
    }


def _placed(part: _Part) -> dict[str, np.ndarray]:
    rows = part.rows
    start = int_values(rows, "start", 0)
    return {
        "process": process_of(int_values(rows, "globalPid", 0)),
        "device": int_values(rows, "deviceId", 0),
        "start_ns": start,
        "end_ns": np.maximum(int_values(rows, "end", 0), start),  # an operation without an end took no time
        "stream": int_values(rows, "streamId", 0),
        "correlation": int_values(rows, "correlationId"),
    }


def _stacked(parts: list) -> np.ndarray | pd.Series:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    if isinstance(parts[0], pd.Categorical):
        return pd.api.types.union_categoricals(parts)
    return pd.concat([pd.Series(part) for part in parts], ignore_index=True).array


def _named(parts: list[_Part], rules: KindRules) -> dict[str, pd.Categorical]:
    """Name, kind and activity of every operation, each worked out once for a distinct name."""
    firsts = np.cumsum([0, *(len(part.names) for part in parts)])
    codes = np.concatenate([part.codes + first for part, first in zip(parts, firsts[:-1], strict=True)])
    names = [name for part in parts for name in part.names]
    activities = [part.activity for part in parts for _ in part.names]
    kinds = [
        KINDS.index(rules.kind(name, activity)) for name, activity in zip(names, activities, strict=True)
    ]
    places = np.array([ACTIVITIES.index(activity) for activity in activities])
    return {
        "name": category(codes, names),
        "kind": pd.Categorical.from_codes(np.array(kinds)[codes], categories=list(KINDS)),
        "activity": pd.Categorical.from_codes(places[codes], categories=list(ACTIVITIES)),
    }
