"""GPU operations, API calls and counters of an export."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from traceanalyzer.cuda_graphs import Recording, with_operators
from traceanalyzer.kinds import ACTIVITIES
from traceanalyzer.model import RankTrace
from traceanalyzer.model.make import UNKNOWN_NS
from traceanalyzer.model.schema import NONE, UNNAMED
from traceanalyzer.readers.nsys.source import Number, Source, labelled, maybe

# What the packed ids of an export hold: `globalPid` and `globalTid` are machine, VM, process and thread.


_LOW = 0xFFFFFF

Column: TypeAlias = Any
"""`np.ndarray`, a `pd.Series` or one of pandas' arrays."""


def process_of(global_id: Column) -> Column:
    """Machine, VM and process: what joins the tables of one process, unique within an export."""
    return global_id // (1 << 24)  # a Series cannot be shifted


def thread_of(global_tid: Column) -> Column:
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
    names = ("start", "end", "globalTid", "correlationId", "nameId")
    rows = source.frame(RUNTIME, {"start": UNKNOWN_NS, "end": UNKNOWN_NS, "globalTid": 0}, ints=names)
    name_of = source.names(rows["nameId"].to_numpy(), "(call without a name)")
    return pd.DataFrame(
        {
            "process": process_of(rows["globalTid"]),
            "start_ns": rows["start"],
            "end_ns": rows["end"].where(rows["end"] != UNKNOWN_NS, rows["start"]),
            "name": labelled(rows["nameId"], lambda one: _VERSION.sub("", name_of(one))),
            "thread": thread_of(rows["globalTid"]),
            "correlation": rows["correlationId"],
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
    keys = ("typeId", "metricId")
    rows = source.frame(GPU_METRICS, {"timestamp": 0}, ints=("timestamp", *keys), floats=("value",))
    names = {(kind, one): name for kind, one, name in source.rows(_GPU_NAMES, ints=keys, texts=("metricName",))}
    label = labelled(pd.MultiIndex.from_frame(rows[[*keys]]), lambda key: names.get(key) or f"metric {key[1]}")
    in_hertz = label.map(lambda name: "[MHz]" in name, na_action=None).astype(bool) & (rows["value"] > _HERTZ_ABOVE)
    return _samples(
        rows["timestamp"],
        label,
        rows["value"].mask(in_hertz, rows["value"] / 1e6),
        gpu=rows["typeId"] & 0xFFFFFFFF,  # the rest of a type's id is the machine
    )


def _nic_metrics(source: Source) -> pd.DataFrame:
    keys = ("metricsListId", "metricsIdx")
    rows = source.frame(NIC_METRICS, {"start": 0}, ints=("start", "globalId", *keys), floats=("value",))
    nics = {nic: name for nic, name in source.rows(_CARDS, ints=("nicId",), texts=("name",)) if name}
    joined = source.rows(_CARD_IDS, ints=("nicId", "globalId"))
    cards = {card: nics[nic] for nic, card in joined if nic in nics}
    metrics = {
        (group, one): f"{name} [{unit}]" if unit else name
        for group, one, name, unit in source.rows(_NIC_NAMES, ints=keys, texts=("name", "unit"))
    }

    def label(key: tuple[int, int, int]) -> str:
        card, group, one = key
        return f"{cards.get(card, f'NIC {card}')}: {metrics.get((group, one), f'metric {one}')}"

    named = labelled(pd.MultiIndex.from_frame(rows[["globalId", *keys]]), label)
    return _samples(rows["start"], named, rows["value"], gpu=NONE)


def _samples(time_ns: pd.Series, name: pd.Categorical, value: pd.Series, gpu: Column) -> pd.DataFrame:
    finite = value.where(np.isfinite(value))
    return pd.DataFrame({"time_ns": time_ns, "name": name, "value": finite, "gpu": gpu})


# On which GPU of which process an operation ran, where its row leaves one of the two out.


DEVICES = 1 << 16
"""Above all numbers of a machine's GPUs."""


class Place(NamedTuple):
    """A process and the device that it used, one rank; -1 for what is not known."""

    process: int
    device: int


def stated(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Process and device of each row; -1 for what it does not say, and for devices that cannot be."""
    pid, device = rows["globalPid"].to_numpy(), rows["deviceId"].to_numpy()
    process = np.where(pid == NONE, NONE, process_of(pid))
    return process, np.where((device < 0) | (device >= DEVICES), NONE, device)


def distinct(process: Column, device: Column) -> set[Place]:
    """The places that occur."""
    pairs = pd.DataFrame({"process": process, "device": device}).drop_duplicates()
    return {*map(Place, pairs["process"].tolist(), pairs["device"].tolist())}


def settled(places: Collection[Place]) -> dict[Place, Place | None]:
    """Where the operations of each place count: a process's on its only GPU, a GPU's with its only process.

    0 stands for what no row says. `None`: it may be of several, or of a process that no whole row names.
    """
    whole = [place for place in places if NONE not in place]
    return {place: place if NONE not in place else _only(place, whole) for place in places}


def _only(place: Place, whole: Sequence[Place]) -> Place | None:
    process, device = place
    may_be = [one for one in whole if process in (NONE, one.process) and device in (NONE, one.device)]
    if len(may_be) == 1:
        return may_be[0]
    is_of_others = bool(may_be) or (process == NONE and bool(whole))
    return None if is_of_others else Place(max(process, 0), max(device, 0))


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


_UNKNOWN = 15


def read_gpu_ops(source: Source) -> tuple[pd.DataFrame, int]:
    """Every GPU operation of the export, and how many are left out, because which rank's they are is not known.

    Columns are `process`, `device` and those of `model.GPU_OPS` that the export has; times are the export's own.

    A CUDA graph that was captured as a whole is one row, `CUDA graph <id>`: the kernels inside are not recorded,
    so its kind is the one that the rules give to that name: `compute` unless the user says otherwise.
    """
    parts = [part for read in (_kernels, _copies, _memsets, _graphs) if len((part := read(source))["process"])]
    ops = pd.DataFrame({name: _stacked([part[name] for part in parts]) for name in (parts or [{}])[0]}, copy=False)
    if ops.empty or not (ops[["process", "device"]] == NONE).any(axis=None):
        return ops, 0
    places = settled(distinct(ops["process"], ops["device"]))
    known = [places[place] for place in map(Place, ops["process"].tolist(), ops["device"].tolist())]
    placed = ops[[place is not None for place in known]]
    process, device = np.array([place for place in known if place is not None], dtype=np.int64).reshape(-1, 2).T
    return placed.assign(process=process, device=device), len(ops) - len(placed)


def are_nameless(ops: pd.DataFrame) -> bool:
    """Whether kernels ran, and none of them has a name."""
    return not ops.empty and [*ops.loc[(ops["activity"] == "kernel").to_numpy(), "name"].unique()] == [UNNAMED]


def _kernels(source: Source) -> dict[str, Column]:
    rows = _placed(source, KERNEL, KERNEL_NAMES[0], "graphNodeId", *_GRID, *_BLOCK)
    ids = _name_ids(source, rows)
    sizes = {"grid": _extents(rows, *_GRID), "block": _extents(rows, *_BLOCK)}
    return _part(rows, "kernel", ids, source.names(ids, UNNAMED), **sizes)


def _extents(rows: pd.DataFrame, *axes: str) -> pd.Categorical:
    """Three sizes as "24x1x1", absent where one is; CUDA's limits are 2³¹−1, 65,535 and 65,535."""
    x, y, z = (rows[axis].to_numpy() for axis in axes)

    def text(packed: int) -> str | None:
        return None if packed < 0 else f"{packed >> 32}x{(packed >> 16) & 0xFFFF}x{packed & 0xFFFF}"

    return labelled((x << 32) | (y << 16) | z, text)


def _name_ids(source: Source, rows: pd.DataFrame) -> np.ndarray:
    """Ids of the kernels' full names; of their short ones where those are NULL."""
    ids = rows[KERNEL_NAMES[0]].to_numpy()
    for name in KERNEL_NAMES[1:]:
        if (ids == NONE).any():
            ids = np.where(ids == NONE, source.frame(KERNEL, ints=(name,))[name], ids)
    return ids


def _copies(source: Source) -> dict[str, Column]:
    kinds = ("copyKind", "srcKind", "dstKind")
    rows = _placed(source, MEMCPY, "bytes", *kinds, "srcDeviceId", "dstDeviceId", "graphNodeId")
    copy_kind, from_memory, to_memory = (
        rows[name].where(rows[name].between(0, _UNKNOWN), _UNKNOWN).to_numpy() for name in kinds
    )

    def name(packed: int) -> str:
        way, *ends = _DIRECTIONS.get(packed >> 8), _MEMORIES.get((packed >> 4) & 15), _MEMORIES.get(packed & 15)
        return "Memcpy {} ({} -> {})".format(*(word or "Unknown" for word in (way, *ends)))

    other = np.where(rows["srcDeviceId"] == rows["deviceId"], rows["dstDeviceId"], rows["srcDeviceId"])
    return _part(
        rows,
        "memcpy",
        (copy_kind << 8) | (from_memory << 4) | to_memory,
        name,
        # The end of a peer-to-peer copy that is not the device which the row belongs to.
        peer_device=maybe(np.where((copy_kind == 10) & (other >= 0), other, NONE)),
    )


def _memsets(source: Source) -> dict[str, Column]:
    rows = _placed(source, MEMSET, "bytes", "memKind", "graphNodeId")
    # Exports of 2022 lack memKind; Kineto writes "Memset (Device)" for nearly all.
    return _part(
        rows,
        "memset",
        rows["memKind"],
        lambda one: f"Memset ({_MEMORIES.get(one, 'Unknown' if one >= 0 else 'Device')})",
    )


def _graphs(source: Source) -> dict[str, Column]:
    rows = _placed(source, GRAPH, "graphId")
    return _part(rows, "graph", rows["graphId"], lambda one: "CUDA graph" if one < 0 else f"CUDA graph {one}")


def _placed(source: Source, table: str, *ints: str) -> pd.DataFrame:
    """Times, places and these columns of a table's rows."""
    missing = {"start": UNKNOWN_NS, "end": UNKNOWN_NS, "streamId": 0}
    return source.frame(table, missing, ints=(*_PLACE, *ints))


def _part(
    rows: pd.DataFrame, activity: str, values: Any, name_of: Callable[[Any], str], **known: Column
) -> dict[str, Column]:
    """All columns of one activity, whose operations are named by `values`; those that it does not have are NA."""
    start, end = rows["start"].to_numpy(), rows["end"].to_numpy()
    activities = np.full(len(rows), ACTIVITIES.index(activity), dtype=np.int8)
    nothing = labelled(np.zeros(len(rows), np.int64), lambda _: None)
    numbers = {"bytes": "bytes", "graph_node": "graphNodeId"}
    process, device = stated(rows)
    return {
        "process": process,
        "device": device,
        "start_ns": start,
        "end_ns": np.where(end == UNKNOWN_NS, start, end),  # an operation without an end took no time
        "stream": rows["streamId"].to_numpy(),
        "correlation": rows["correlationId"].to_numpy(),
        **dict.fromkeys(("grid", "block"), nothing),
        "peer_device": maybe(np.full(len(rows), NONE)),
        **{ours: maybe(rows.get(theirs, np.full(len(rows), NONE))) for ours, theirs in numbers.items()},
        **known,
        "name": labelled(values, name_of),
        "activity": pd.Categorical.from_codes(activities, categories=list(ACTIVITIES)),
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
    names = {"start": "start_ns", "graphNodeId": "node", "originalGraphNodeId": "original"}
    rows = source.frame(NODES, {"start": UNKNOWN_NS, "globalTid": 0}, ints=("globalTid", *names))
    thread = rows.pop("globalTid")
    return rows.rename(columns=names).assign(process=process_of(thread), thread=thread_of(thread))


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

_EVENT = ["globalPid", "eventId", "eventSyncId"]


def read_stream_waits(source: Source) -> pd.DataFrame:
    """Waits with columns of `model.STREAM_WAITS`, `process` and `device` (NA where unknown); the export's own times.

    An event may be recorded again and again: `eventSyncId` tells which time a wait is for.
    """
    names = ("start", "end", "contextId", "streamId", "globalPid", "syncType", "eventId", "eventSyncId")
    waits = source.frame(SYNCHRONIZATION, ints=names)
    waits = waits[waits["syncType"] == Number.STREAM_WAIT]
    events = source.frame(CUDA_EVENT, ints=("streamId", "correlationId", *_EVENT))
    events = events.drop_duplicates(_EVENT).rename(columns={"streamId": "source"})
    table = waits.merge(events, on=_EVENT, how="left")
    # A wait's own `deviceId` is always 0: its context says the GPU.
    contexts = source.rows(CONTEXT, ints=("processId", "contextId", "deviceId"))
    device_of = {(process, context): device for process, context, device in contexts}
    process = process_of(table["globalPid"])
    places = zip(map(process_number, process.tolist()), table["contextId"].tolist(), strict=True)
    return pd.DataFrame(
        {
            "process": process,
            "device": pd.Series([device_of.get(place) for place in places], index=table.index, dtype="Int64"),
            "start_ns": table["start"],
            "end_ns": table["end"],
            "stream": table["streamId"],
            "source_stream": table["source"].astype("Int64"),
            "record_correlation": table["correlationId"].fillna(-1).astype("int64"),
        }
    )
