"""GPU operations, API calls and counters of an export."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from traceanalyzer.cuda_graphs import Recording, with_operators
from traceanalyzer.kinds import ACTIVITIES, KINDS, KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.model.make import UNKNOWN_NS
from traceanalyzer.model.schema import NONE, UNNAMED
from traceanalyzer.readers.nsys.source import (
    Source,
    category,
    int_values,
    is_known,
    maybe_ints,
    text_values,
    triple_category,
)

# What the packed ids of an export hold: `globalPid` and `globalTid` are machine, VM, process and thread.


_LOW = 0xFFFFFF


def process_of(global_id: np.ndarray) -> np.ndarray:
    """Machine, VM and process: what joins the tables of one process, unique within an export."""
    return global_id >> 24


def thread_of(global_tid: np.ndarray) -> np.ndarray:
    """The thread's id in its operating system."""
    return global_tid & _LOW


def process_number(process: int) -> int:
    """The process id in its operating system, from `process_of`."""
    return process & _LOW


# The CUDA runtime and driver calls of all processes of an export.


RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"

# "cudaMemcpyAsync_v3020": the CUDA version in which this form came. The driver's own "_v2" is part of a name.
_VERSION = re.compile(r"_v\d{4,}$")


def read_api_calls(source: Source) -> pd.DataFrame:
    """Calls with the columns of `model.API_CALLS`, and `process`; times are the export's own."""
    rows = source.read(RUNTIME, ints=("start", "end", "globalTid", "correlationId", "nameId"))
    codes, distinct = pd.factorize(int_values(rows, "nameId"))
    texts = source.strings(distinct)
    names = [_VERSION.sub("", texts.get(int(one)) or "(call without a name)") for one in distinct]
    thread = int_values(rows, "globalTid", 0)
    start = int_values(rows, "start", UNKNOWN_NS)
    return pd.DataFrame(
        {
            "process": process_of(thread),
            "start_ns": start,
            "end_ns": np.where(is_known(rows, "end"), int_values(rows, "end", 0), start),
            "name": category(codes, names),
            "thread": thread_of(thread),
            "correlation": int_values(rows, "correlationId"),
        },
        copy=False,
    )


# What was sampled beside the events: metrics of each GPU, and of the network cards.


GPU_METRICS = "GPU_METRICS"
NIC_METRICS = "NET_NIC_METRIC"
_GPU_NAMES = "TARGET_INFO_GPU_METRICS"
_NIC_NAMES = "TARGET_INFO_NETWORK_METRICS"
_CARDS = "TARGET_INFO_NIC_INFO"
_CARD_IDS = "NIC_ID_MAP"
COUNTER_TABLES = (GPU_METRICS, NIC_METRICS, _GPU_NAMES, _NIC_NAMES, _CARDS, _CARD_IDS)

# Labelled [MHz], recorded in Hz.
_HERTZ_ABOVE = 1e5


def read_counters(source: Source) -> pd.DataFrame:
    """Samples with the columns of `model.COUNTERS`, and `gpu` (-1: of the machine, not of one GPU).

    Names are those of Nsight Systems, with the unit in brackets; times are the export's own.
    """
    return pd.concat([_gpu_metrics(source), _nic_metrics(source)], ignore_index=True).astype({"name": "category"})


def _gpu_metrics(source: Source) -> pd.DataFrame:
    rows = source.read(GPU_METRICS, ints=("timestamp", "typeId", "metricId"), floats=("value",))
    named = source.read(_GPU_NAMES, ints=("typeId", "metricId"), texts=("metricName",))
    names = dict(
        zip(
            zip(int_values(named, "typeId").tolist(), int_values(named, "metricId").tolist(), strict=True),
            text_values(named, "metricName"),
            strict=True,
        )
    )
    kind, metric = int_values(rows, "typeId"), int_values(rows, "metricId")
    codes, keys = pd.factorize(pd.MultiIndex.from_arrays([kind, metric]))
    labels = [names.get((int(one), int(number))) or f"metric {number}" for one, number in keys]
    value = _floats(rows, "value")
    in_hertz = np.array(["[MHz]" in label for label in labels], dtype=bool)[codes] & (value > _HERTZ_ABOVE)
    return pd.DataFrame(
        {
            "time_ns": int_values(rows, "timestamp", 0),
            "name": category(codes, labels),
            "value": np.where(in_hertz, value / 1e6, value),
            "gpu": kind & 0xFFFFFFFF,  # the rest of a type's id is the machine
        }
    )


def _nic_metrics(source: Source) -> pd.DataFrame:
    keys = ("metricsListId", "metricsIdx")
    rows = source.read(NIC_METRICS, ints=("start", "globalId", *keys), floats=("value",))
    cards, metrics = _card_names(source), _nic_metric_names(source)
    codes, distinct = pd.factorize(pd.MultiIndex.from_arrays([int_values(rows, name) for name in ("globalId", *keys)]))
    labels = [
        f"{cards.get(int(card), f'NIC {card}')}: {metrics.get((int(group), int(one)), f'metric {one}')}"
        for card, group, one in distinct
    ]
    return pd.DataFrame(
        {
            "time_ns": int_values(rows, "start", 0),
            "name": category(codes, labels),
            "value": _floats(rows, "value"),
            "gpu": np.full(len(rows), -1),
        }
    )


def _card_names(source: Source) -> dict[int, str]:
    info = source.read(_CARDS, ints=("nicId",), texts=("name",))
    names = dict(zip(int_values(info, "nicId").tolist(), text_values(info, "name"), strict=True))
    joined = source.read(_CARD_IDS, ints=("nicId", "globalId"))
    pairs = zip(int_values(joined, "nicId").tolist(), int_values(joined, "globalId").tolist(), strict=True)
    return {card: names[nic] for nic, card in pairs if names.get(nic)}


def _nic_metric_names(source: Source) -> dict[tuple[int, int], str]:
    rows = source.read(_NIC_NAMES, ints=("metricsListId", "metricsIdx"), texts=("name", "unit"))
    fields = (
        int_values(rows, "metricsListId").tolist(), int_values(rows, "metricsIdx").tolist(),
        text_values(rows, "name"), text_values(rows, "unit"),
    )  # fmt: skip
    return {(group, one): f"{name} [{unit}]" if unit else name for group, one, name, unit in zip(*fields, strict=True)}


def _floats(rows: pa.Table, name: str) -> np.ndarray:
    values = pc.fill_null(rows[name], float("nan")).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)


# On which GPU of which process an operation ran, where its row leaves one of the two out.


DEVICES = 1 << 16
"""Above all numbers of a machine's GPUs."""

Pair = tuple[int, int]
"""Process and device; -1 for what is not known."""


def stated(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Process and device of each row; -1 for what it does not say, and for devices that cannot be."""
    pid, device = int_values(rows, "globalPid"), int_values(rows, "deviceId")
    process = np.where(pid == NONE, NONE, process_of(pid))
    return process, np.where((device < 0) | (device >= DEVICES), NONE, device)


def distinct(process: np.ndarray, device: np.ndarray) -> set[Pair]:
    """The pairs that occur."""
    pairs = pd.DataFrame({"process": process, "device": device}).drop_duplicates()
    return {(int(one), int(number)) for one, number in pairs.itertuples(index=False, name=None)}


def settled(pairs: Collection[Pair]) -> dict[Pair, Pair | None]:
    """Where the operations of each pair count: a process's on its only GPU, a GPU's with its only process.

    0 stands for what no row says. `None`: it may be of several, or of a process that no whole row names.
    """
    whole = [pair for pair in pairs if NONE not in pair]
    return {pair: pair if NONE not in pair else _only(pair, whole) for pair in pairs}


def _only(pair: Pair, whole: Sequence[Pair]) -> Pair | None:
    process, device = pair
    may_be = [one for one in whole if process in (NONE, one[0]) and device in (NONE, one[1])]
    if len(may_be) == 1:
        return may_be[0]
    is_of_others = bool(may_be) or (process == NONE and bool(whole))
    return None if is_of_others else (max(process, 0), max(device, 0))


# What ran on the GPUs of an export: kernels, copies, memsets and CUDA graphs.


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


# When nodes of CUDA graphs were made: what a replay runs has the operators and ranges around its capture.


NODES = "CUDA_GRAPH_NODE_EVENTS"

_NODES_A_GRAPH = 1 << 32
"""A node's id is this times its graph's, plus the order in which it was made."""

_CLONES = 8
"""Copies of copies that are followed: a graph is captured, put into another one, instantiated."""


def read_graph_nodes(source: Source) -> pd.DataFrame:
    """`process`, `thread`, `start_ns` (the export's own time), `node`, `original` (-1 of one that is no copy)."""
    rows = source.read(NODES, ints=("start", "globalTid", "graphNodeId", "originalGraphNodeId"))
    thread = int_values(rows, "globalTid", 0)
    return pd.DataFrame(
        {
            "process": process_of(thread),
            "thread": thread_of(thread),
            "start_ns": int_values(rows, "start", UNKNOWN_NS),
            "node": int_values(rows, "graphNodeId"),
            "original": int_values(rows, "originalGraphNodeId"),
        }
    )


def with_capturing_operators(trace: RankTrace, nodes: pd.DataFrame) -> RankTrace:
    """The trace, where what graphs replay has the operators and ranges that were open when its nodes were captured.

    Ranges around a whole capture are left out: they may be steps.
    """
    ops = trace.gpu_ops
    held = ops[ops["graph_node"].notna() & (ops["launch"] != NONE)]
    if nodes.empty or held.empty:
        return trace
    nodes = nodes.drop_duplicates("node").set_index("node")
    origin = held["graph_node"].astype("int64")
    for _ in range(_CLONES):
        origin = origin.map(nodes["original"]).fillna(NONE).astype("int64").where(lambda found: found != NONE, origin)
    matched = pd.DataFrame({"op": held.index, "launch": held["launch"], "source": origin})
    matched = matched[matched["source"].isin(nodes.index)].assign(block=lambda rows: rows["source"] // _NODES_A_GRAPH)
    launches = nodes.loc[nodes.index.isin(matched["source"]), ["start_ns", "thread"]]
    launches = launches.assign(block=launches.index // _NODES_A_GRAPH)
    tables = {"host_ops": trace.host_ops, "ranges": trace.ranges}
    return with_operators(trace, matched, Recording(launches, tables, inside=frozenset({"ranges"})))


# Which streams were made to wait for which events, from the tables of synchronisations and of recorded events.


SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
CONTEXT = "TARGET_INFO_CUDA_CONTEXT_INFO"
WAIT_TABLES = (SYNCHRONIZATION, CUDA_EVENT, CONTEXT)

_STREAM_WAIT = 2
"""`ENUM_CUPTI_SYNC_TYPE`: a stream waits for an event."""

_EVENT = ["process", "eventId", "eventSyncId"]


def read_stream_waits(source: Source) -> pd.DataFrame:
    """Waits with columns of `model.STREAM_WAITS`, `process` and `device` (NA where unknown); the export's own times.

    An event may be recorded again and again: `eventSyncId` tells which time a wait is for.
    """
    names = ("start", "end", "contextId", "streamId", "globalPid", "syncType", "eventId", "eventSyncId")
    waits = _frame(source, SYNCHRONIZATION, names)
    waits = waits[waits["syncType"] == _STREAM_WAIT]
    events = _frame(source, CUDA_EVENT, ("streamId", "correlationId", "globalPid", "eventId", "eventSyncId"))
    events = events.drop_duplicates(_EVENT).rename(columns={"streamId": "source"})
    table = waits.merge(events[[*_EVENT, "source", "correlationId"]], on=_EVENT, how="left")
    return pd.DataFrame(
        {
            "process": table["process"],
            "device": _devices(source, table),
            "start_ns": table["start"],
            "end_ns": table["end"],
            "stream": table["streamId"],
            "source_stream": table["source"].astype("Int64"),
            "record_correlation": table["correlationId"].fillna(-1).astype("int64"),
        }
    )


def _frame(source: Source, table: str, names: tuple[str, ...]) -> pd.DataFrame:
    rows = source.read(table, ints=names)
    frame = pd.DataFrame({name: int_values(rows, name) for name in names})
    return frame.assign(process=process_of(frame["globalPid"].to_numpy()))


def _devices(source: Source, waits: pd.DataFrame) -> pd.Series:
    """The GPU of each wait's context: a wait's own `deviceId` is always 0."""
    rows = source.read(CONTEXT, ints=("processId", "contextId", "deviceId"))
    keys = zip(int_values(rows, "processId").tolist(), int_values(rows, "contextId").tolist(), strict=True)
    known = dict(zip(keys, int_values(rows, "deviceId").tolist(), strict=True))
    places = zip(map(process_number, waits["process"].tolist()), waits["contextId"].tolist(), strict=True)
    return pd.Series([known.get(place) for place in places], index=waits.index, dtype="Int64")
