"""The ranks of one export, one after the other."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from traceanalyzer.errors import NotATraceError
from traceanalyzer.files.other_tools import database_of
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import ProcessGroup, RankMeta, RankTrace, make_trace
from traceanalyzer.model.schema import NONE
from traceanalyzer.readers.base import DEVICE_ORDER, Header, RankHint
from traceanalyzer.readers.nsys.api import read_api_calls
from traceanalyzer.readers.nsys.counters import read_counters
from traceanalyzer.readers.nsys.diagnostics import dropped_events, notes_of_export, notes_of_rank
from traceanalyzer.readers.nsys.gpu_ops import GPU_TABLES, KERNEL, KERNEL_NAMES, GpuOps, read_gpu_ops
from traceanalyzer.readers.nsys.graph_nodes import read_graph_nodes, with_capturing_operators
from traceanalyzer.readers.nsys.identity import RANKS_ARE_NAMED_IN, Identity, Place, identify
from traceanalyzer.readers.nsys.ids import process_number
from traceanalyzer.readers.nsys.nccl import Nccl, read_nccl, with_inferred_sizes, with_only_peers
from traceanalyzer.readers.nsys.nvtx import NCCL_DOMAIN, NVTX, Nvtx, read_nvtx
from traceanalyzer.readers.nsys.places import distinct, settled, stated
from traceanalyzer.readers.nsys.session import Session, read_session
from traceanalyzer.readers.nsys.source import STRINGS, Source
from traceanalyzer.readers.nsys.stream_waits import read_stream_waits

# Those that communicate could not be told from those that compute.
_NO_NAMES = "no kernel has a name; export the whole report again with nsys export"

_XLA = re.compile(r"(?:(?:loop|input|gemm)_(?:\w+_)?fusion(?:_\w+)?|wrapped_[a-z_]+(?:_\d+)?)$")
"""Kernels as XLA names those that it makes."""

_TIMES = ("start_ns", "end_ns", "time_ns")


@dataclass(frozen=True, slots=True)
class _Export:
    """Everything that was read, of all ranks; times are the export's own."""

    session: Session
    gpu_ops: GpuOps
    api_calls: pd.DataFrame
    nvtx: Nvtx
    nccl: Nccl
    stream_waits: pd.DataFrame
    counters: pd.DataFrame
    graph_nodes: pd.DataFrame
    notes: tuple[str, ...]
    dropped: dict[int, int]


def peek(source: Source, path: Path) -> Header:
    """Ranks, world size and start, from the ids of the GPU operations and the NVTX ranges.

    Raises:
        NotATraceError: the export has neither GPU operations nor ranges, or is another tool's database.
    """
    if other := database_of(source.tables):
        raise NotATraceError(f"{path}: {other}")
    session, nvtx = read_session(source), read_nvtx(source, RANKS_ARE_NAMED_IN)
    places = _places_of_tables(source) or _places_of_host(read_nvtx(source))
    if not places:
        raise _no_gpu_ops(source, path)
    members = read_nccl(source, nvtx.ranges).members
    found = identify(source, places, session, members=members, ranges=nvtx.ranges, hint=None)
    return Header(
        # A number that only follows the devices is no claim: reports of several hosts all begin with 0.
        ranks=None if found[0].source == DEVICE_ORDER else tuple(one.rank for one in found),
        world_size=found[0].world_size,
        start_ns=session.offset_ns or None,
    )


def ended_ns(source: Source) -> int | None:
    """When the capture ended; `None` where the export has no clock or no length."""
    return _end_ns(read_session(source))


def _end_ns(session: Session) -> int | None:
    return session.offset_ns + session.length_ns if session.has_clock and session.length_ns else None


def read(source: Source, path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """Each rank of the export, in order; one for each process with ranges when nothing ran on a GPU.

    Raises:
        NotATraceError: the export has neither GPU operations nor ranges.
    """
    if STRINGS not in source.tables and KERNEL in source.tables:
        raise NotATraceError(f"{path}: no table {STRINGS}, so that {_NO_NAMES}")
    gpu_ops = read_gpu_ops(source, rules)
    if gpu_ops.is_nameless:
        has_column = not source.columns(KERNEL).isdisjoint(KERNEL_NAMES)
        lack = f"the table {STRINGS} lacks" if has_column else f"the table {KERNEL} has no column for"
        raise NotATraceError(f"{path}: {lack} the kernels' names, so that {_NO_NAMES}")
    session, nvtx = read_session(source), read_nvtx(source)
    places = sorted(Place(process, device) for process, device in gpu_ops.places) or _places_of_host(nvtx)
    if not places:
        raise _no_gpu_ops(source, path)
    nccl = read_nccl(source, nvtx.ranges)
    found = identify(source, places, session, members=nccl.members, ranges=nvtx.ranges, hint=hint)
    if found[0].world_size in (None, len(found)):
        ranks = {one.place.process: one.rank for one in found}
        nccl = with_inferred_sizes(replace(nccl, calls=with_only_peers(nccl.calls, ranks)))
    notes = notes_of_export(source, session, nvtx, nccl, gpu_ops.placeless)
    export = _Export(
        session, gpu_ops, read_api_calls(source), nvtx, nccl, read_stream_waits(source), read_counters(source),
        read_graph_nodes(source), notes, dropped_events(source),
    )  # fmt: skip
    for identity in found:
        yield _trace(export, path, identity, found)


def _places_of_tables(source: Source) -> list[Place]:
    tables = [stated(source.read(table, ints=("globalPid", "deviceId"))) for table in GPU_TABLES]
    places = settled(set().union(*(distinct(*columns) for columns in tables)))
    return sorted({Place(*place) for place in places.values() if place is not None})


def _places_of_host(nvtx: Nvtx) -> list[Place]:
    """Processes with ranges other than NCCL's, or with operators; no device."""
    own = nvtx.ranges[(nvtx.ranges["domain"] != NCCL_DOMAIN).to_numpy(dtype=bool)]
    processes = {*own["process"].unique().tolist(), *nvtx.operators["process"].unique().tolist()}
    return [Place(process, NONE) for process in sorted(processes)]


def _no_gpu_ops(source: Source, path: Path) -> NotATraceError:
    if not {STRINGS, NVTX, *GPU_TABLES} & source.tables:
        return NotATraceError(f"{path}: not an export of Nsight Systems (no table of one)")
    return NotATraceError(
        f"{path}: no GPU operations; capture with --trace=cuda,nvtx and export again with nsys export"
    )


def _trace(export: _Export, path: Path, identity: Identity, all_ranks: list[Identity]) -> RankTrace:
    place, offset = identity.place, export.session.offset_ns
    process = place.process
    gpu_ops = export.gpu_ops.of(process, place.device, offset)
    gpu = export.session.gpu(process_number(process), place.device)
    counters = export.counters[export.counters["gpu"].isin((gpu, -1))]
    trace = make_trace(
        _meta(export, path, identity, all_ranks, notes_of_rank(gpu_ops) if len(gpu_ops) else (), _compiler(gpu_ops)),
        process_ops=export.gpu_ops.correlations(process),
        gpu_ops=gpu_ops,
        api_calls=_of(export.api_calls, process, offset),
        host_ops=_of(export.nvtx.operators, process, offset),
        ranges=_of(export.nvtx.ranges, process, offset),
        comm_args=_of(export.nccl.calls, process, offset),
        stream_waits=_waits_of(export, place, offset),
        counters=_shifted(counters, offset),
    )
    nodes = export.graph_nodes
    return with_capturing_operators(trace, _moved(nodes[(nodes["process"] == process).to_numpy()], offset))


def _waits_of(export: _Export, place: Place, offset_ns: int) -> pd.DataFrame:
    """Waits on the place's GPU; those of unknown GPUs only when the process drives no other."""
    waits = _of(export.stream_waits, place.process, offset_ns)
    devices = {device for process, device in export.gpu_ops.places if process == place.process}
    return waits[(waits["device"] == place.device).fillna(value=len(devices) == 1)]


def _of(frame: pd.DataFrame, process: int, offset_ns: int) -> pd.DataFrame:
    return _shifted(frame[(frame["process"] == process).to_numpy()], offset_ns)


def _moved(frame: pd.DataFrame, offset_ns: int) -> pd.DataFrame:
    return frame.assign(**{name: frame[name] + offset_ns for name in _TIMES if name in frame})


def _shifted(frame: pd.DataFrame, offset_ns: int) -> pd.DataFrame:
    """Times made absolute, and no name kept that only other ranks use."""
    named = [name for name in ("name", "domain") if name in frame]
    return _moved(frame, offset_ns).assign(**{name: frame[name].cat.remove_unused_categories() for name in named})


def _meta(
    export: _Export,
    path: Path,
    identity: Identity,
    all_ranks: list[Identity],
    own_notes: tuple[str, ...],
    compiler: Mapping[str, str],
) -> RankMeta:
    session, place = export.session, identity.place
    number = process_number(place.process)
    is_host_only = place.device == NONE
    shared = sum(one.place.process == place.process for one in all_ranks)
    if shared > 1 and number:  # else the export does not say whose they are
        own_notes += (f"One process drives {shared} GPUs: its API calls and ranges are those of all of them.",)
    return RankMeta(
        rank=identity.rank,
        rank_source=identity.source,
        files=(str(path),),
        format="nsys",
        world_size=identity.world_size,
        device=None if is_host_only else session.gpu(number, place.device),
        devices_seen=session.gpus_seen(number),
        device_name=session.gpu_names.get(session.gpu(number, place.device)),
        device_bytes=session.gpu_bytes.get(session.gpu(number, place.device)),
        process=number,
        is_host_only=is_host_only,
        has_api_calls=is_host_only and bool((export.api_calls["process"] == place.process).any()),
        groups=_groups(export.nccl.members, all_ranks),
        versions={**session.versions, **compiler},
        capture_start_ns=session.offset_ns if session.has_clock else None,
        capture_end_ns=_end_ns(session),
        events_dropped=export.dropped.get(place.process, 0) + export.dropped.get(NONE, 0),
        notes=() if is_host_only else own_notes + export.notes,
    )


def _compiler(gpu_ops: pd.DataFrame) -> dict[str, str]:
    """XLA where it made kernels of the rank, and PyTorch none."""
    names = gpu_ops["name"].cat.categories.astype(str) if len(gpu_ops) else ()
    is_xla = any(map(_XLA.match, names)) and not any("at::native::" in name for name in names)
    return {"compiler": "XLA"} if is_xla else {}


def _groups(members: pd.DataFrame, all_ranks: list[Identity]) -> tuple[ProcessGroup, ...]:
    """Communicators whose ranks the program names, or that are all in this export."""
    rank_of = {(one.place.process, one.place.device): one.rank for one in all_ranks}
    # A payload without a device, or of a process with one, means the process's only rank.
    rank_of |= {(one.place.process, pd.NA): one.rank for one in all_ranks}
    groups = []
    for communicator, joined in members.sort_values("rank").groupby("communicator", sort=False):
        told = joined[joined["group_ranks"].notna()]
        if len(told):
            named = tuple(map(int, told["group_ranks"].iloc[0].split(",")))
            groups.append(ProcessGroup(str(communicator), told["description"].iloc[0], named))
            continue
        keys = joined[["process", "device"]].itertuples(index=False, name=None)
        ranks = [rank_of.get((process, device), rank_of.get((process, pd.NA))) for process, device in keys]
        held = tuple(rank for rank in ranks if rank is not None)
        if len(set(held)) == int(joined["ranks"].max()):
            groups.append(ProcessGroup(str(communicator), "", held))
    return tuple(groups)
