"""What ran on the GPUs of an export: kernels, copies, memsets and CUDA graphs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.kinds import ACTIVITIES, KINDS, KindRules
from traceanalyzer.model.event_times import UNKNOWN_NS
from traceanalyzer.model.schema import NONE, UNNAMED
from traceanalyzer.readers.nsys.places import DEVICES, Pair, distinct, settled, stated
from traceanalyzer.readers.nsys.source import Source, category, int_values, is_known, maybe_ints, triple_category

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GPU_TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH)

_PLACE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
_GRID = ("gridX", "gridY", "gridZ")
_BLOCK = ("blockX", "blockY", "blockZ")

_DIRECTIONS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "UnifiedHtoD", 12: "UnifiedDtoH", 13: "UnifiedDtoD",
}  # fmt: skip
"""`ENUM_CUDA_MEMCPY_OPER`, in the words that PyTorch's traces use."""

_MEMORIES = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
"""`ENUM_CUDA_MEM_KIND`; static device memory is device memory."""


Column: TypeAlias = Any
"""`np.ndarray`, or one of pandas' arrays."""

_UNKNOWN = 15


@dataclass(frozen=True, slots=True)
class _Part:
    """Operations of one activity: where they ran, and their columns of `model.GPU_OPS`."""

    process: np.ndarray
    device: np.ndarray
    columns: dict[str, Column]

    def rows_of(self, process: int, device: int) -> np.ndarray:
        return np.flatnonzero((self.process == process) & (self.device == device))


@dataclass(frozen=True, slots=True)
class GpuOps:
    """GPU operations of all processes and devices of an export.

    Attributes:
        parts: one for each activity.
        placeless: how many operations are left out, because which rank's they are is not known.
    """

    parts: tuple[_Part, ...]
    placeless: int = 0

    @property
    def places(self) -> set[tuple[int, int]]:
        """Every (process, device) that ran something."""
        found: set[tuple[int, int]] = set()
        for part in self.parts:
            _, keys = pd.factorize(part.process * DEVICES + part.device)
            found |= {divmod(key, DEVICES) for key in keys.tolist()}
        return found

    @property
    def is_nameless(self) -> bool:
        """Whether kernels ran, and none of them has a name."""
        return any(list(part.columns["name"].categories) == [UNNAMED] for part in self.parts)

    def correlations(self, process: int) -> pd.Series:
        """Correlation ids of one process's operations, on all of its devices; of those without a time nobody reads."""
        own = [
            part.columns["correlation"][(part.process == process) & (part.columns["start_ns"] != UNKNOWN_NS)]
            for part in self.parts
        ]
        return pd.Series(_stacked(own)) if own else pd.Series(dtype="int64")

    def of(self, process: int, device: int, offset_ns: int) -> pd.DataFrame:
        """Operations of one process on one device, with the columns of `model.GPU_OPS` that the export has.

        `offset_ns` is added to the export's times.
        """
        chosen = [(part, rows) for part in self.parts if len(rows := part.rows_of(process, device))]
        names = chosen[0][0].columns if chosen else {}
        columns = {name: _stacked([part.columns[name].take(rows) for part, rows in chosen]) for name in names}
        for name in ("start_ns", "end_ns"):
            if name in columns:
                columns[name] += offset_ns
        return pd.DataFrame(columns, copy=False)


def read_gpu_ops(source: Source, rules: KindRules) -> GpuOps:
    """Every GPU operation of the export.

    A CUDA graph that was captured as a whole is one row, `CUDA graph <id>`: what ran inside is not recorded,
    so its kind is the one that the rules give to that name: `compute` unless the user says otherwise.
    """
    parts = [read(source, rules) for read in (_kernels, _copies, _memsets, _graphs)]
    placed = _settled([part for part in parts if len(part.process)])
    placeless = sum(len(part.process) for part in parts) - sum(len(part.process) for part in placed)
    return GpuOps(tuple(part for part in placed if len(part.process)), placeless)


def _settled(parts: list[_Part]) -> list[_Part]:
    """The parts with every operation on a GPU of a process, without those of which that is not known."""
    if not any((part.process == NONE).any() or (part.device == NONE).any() for part in parts):
        return parts
    places = settled(set().union(*(distinct(part.process, part.device) for part in parts)))
    return [_moved(part, places) for part in parts]


def _moved(part: _Part, places: Mapping[Pair, Pair | None]) -> _Part:
    pairs = [places[pair] for pair in zip(part.process.tolist(), part.device.tolist(), strict=True)]
    is_known = np.array([pair is not None for pair in pairs])
    process, device = np.array([pair for pair in pairs if pair is not None], dtype=np.int64).reshape(-1, 2).T
    return _Part(process, device, {name: column[is_known] for name, column in part.columns.items()})


def _kernels(source: Source, rules: KindRules) -> _Part:
    rows = source.read(KERNEL, ints=(*_PLACE, KERNEL_NAMES[0], "graphNodeId"), triples={"grid": _GRID, "block": _BLOCK})
    codes, distinct = pd.factorize(_name_ids(source, rows))
    texts = source.strings(distinct)
    names = [texts.get(int(one)) or UNNAMED for one in distinct]
    return _part(
        rows,
        _named("kernel", codes, names, rules),
        grid=triple_category(int_values(rows, "grid")),
        block=triple_category(int_values(rows, "block")),
        graph_node=maybe_ints(rows, "graphNodeId"),
    )


def _name_ids(source: Source, rows: pa.Table) -> np.ndarray:
    """Ids of the kernels' full names; of their short ones where those are NULL."""
    ids = int_values(rows, KERNEL_NAMES[0])
    for name in KERNEL_NAMES[1:]:
        if (ids == NONE).any():
            ids = np.where(ids == NONE, int_values(source.read(KERNEL, ints=(name,)), name), ids)
    return ids


def _copies(source: Source, rules: KindRules) -> _Part:
    kinds = ("copyKind", "srcKind", "dstKind")
    devices = ("srcDeviceId", "dstDeviceId")
    rows = source.read(MEMCPY, ints=(*_PLACE, "bytes", *kinds, *devices, "graphNodeId"))
    copy_kind, from_memory, to_memory = (_enumerated(rows, name) for name in kinds)
    directions = [_DIRECTIONS.get(kind) for kind in range(_UNKNOWN + 1)]
    memories = [_MEMORIES.get(kind) for kind in range(_UNKNOWN + 1)]
    codes, distinct = pd.factorize((copy_kind << 8) | (from_memory << 4) | to_memory)
    names = [
        f"Memcpy {directions[one >> 8] or 'Unknown'} "
        f"({memories[(one >> 4) & 15] or 'Unknown'} -> {memories[one & 15] or 'Unknown'})"
        for one in distinct.tolist()
    ]
    lowered = [memory.lower() if memory else None for memory in memories]
    return _part(
        rows,
        _named("memcpy", codes, names, rules),
        bytes=maybe_ints(rows, "bytes"),
        direction=category(copy_kind, directions),
        source_memory=category(from_memory, lowered),
        target_memory=category(to_memory, lowered),
        peer_device=_peer(rows, copy_kind == 10),
        graph_node=maybe_ints(rows, "graphNodeId"),
    )


def _enumerated(rows: pa.Table, name: str) -> np.ndarray:
    """A column of small numbers; NULL and numbers that no version knows are `_UNKNOWN`."""
    values = int_values(rows, name)
    return np.where((values >= 0) & (values < _UNKNOWN), values, _UNKNOWN)


def _peer(rows: pa.Table, is_peer: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """The other GPU of a peer-to-peer copy: the end that is not the device which the row belongs to."""
    device, first, last = (int_values(rows, name) for name in ("deviceId", "srcDeviceId", "dstDeviceId"))
    other = np.where(first == device, last, first)
    return pd.arrays.IntegerArray(other, ~is_peer | (other < 0))


def _memsets(source: Source, rules: KindRules) -> _Part:
    rows = source.read(MEMSET, ints=(*_PLACE, "bytes", "memKind", "graphNodeId"))
    codes, distinct = pd.factorize(int_values(rows, "memKind"))
    # Exports of 2022 lack memKind; Kineto writes "Memset (Device)" for nearly all.
    names = [f"Memset ({_MEMORIES.get(one, 'Unknown' if one >= 0 else 'Device')})" for one in distinct.tolist()]
    return _part(
        rows,
        _named("memset", codes, names, rules),
        bytes=maybe_ints(rows, "bytes"),
        graph_node=maybe_ints(rows, "graphNodeId"),
    )


def _graphs(source: Source, rules: KindRules) -> _Part:
    rows = source.read(GRAPH, ints=(*_PLACE, "graphId"))
    codes, distinct = pd.factorize(int_values(rows, "graphId"))
    names = ["CUDA graph" if one < 0 else f"CUDA graph {one}" for one in distinct.tolist()]
    return _part(rows, _named("graph", codes, names, rules))


_CATEGORIES = ("grid", "block", "direction", "source_memory", "target_memory")
_NUMBERS = ("bytes", "peer_device", "graph_node")


def _part(rows: pa.Table, named: dict[str, pd.Categorical], **known: Column) -> _Part:
    """All columns of one activity; those that it does not have are NA."""
    length = len(rows)
    nothing = category(np.zeros(length, np.int64), [None])
    unknown = pd.arrays.IntegerArray(np.zeros(length, np.int64), np.ones(length, bool))
    start = int_values(rows, "start", UNKNOWN_NS)
    has_end = is_known(rows, "end")
    columns: dict[str, Column] = {
        "start_ns": start,
        "end_ns": np.where(has_end, int_values(rows, "end", 0), start),  # an operation without an end took no time
        "stream": int_values(rows, "streamId", 0),
        "correlation": int_values(rows, "correlationId"),
    }
    columns |= dict.fromkeys(_CATEGORIES, nothing) | dict.fromkeys(_NUMBERS, unknown) | known | named
    return _Part(*stated(rows), columns)


def _named(activity: str, codes: np.ndarray, names: list[str], rules: KindRules) -> dict[str, pd.Categorical]:
    """Name, kind and activity of every operation, each worked out once for a distinct name."""
    kinds = np.array([KINDS.index(rules.kind(name, activity)) for name in names], dtype=np.int8)
    place = np.full(len(codes), ACTIVITIES.index(activity), dtype=np.int8)
    return {
        "name": category(codes, names),
        "kind": pd.Categorical.from_codes(kinds[codes], categories=list(KINDS)),
        "activity": pd.Categorical.from_codes(place, categories=list(ACTIVITIES)),
    }


def _stacked(parts: list[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if isinstance(first, pd.Categorical) and not all(part.categories.equals(first.categories) for part in parts):
        return pd.api.types.union_categoricals(parts)
    return first._concat_same_type(parts)  # noqa: SLF001  pd.concat would copy each part into a Series first
