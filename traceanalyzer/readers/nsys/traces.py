"""The ranks of one export."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from traceanalyzer.errors import NotATraceError
from traceanalyzer.files.other_tools import database_of
from traceanalyzer.kinds import KindRules
from traceanalyzer.meaning.rows import LATEST_NS, RANKS
from traceanalyzer.model import ProcessGroup, RankMeta, RankTrace, make_trace
from traceanalyzer.model.make import UNKNOWN_NS
from traceanalyzer.model.schema import NONE
from traceanalyzer.readers.base import DEVICE_ORDER, Header, RankHint
from traceanalyzer.readers.nsys.nvtx import (
    NCCL_DOMAIN,
    NVTX,
    PAYLOAD_TABLES,
    Nccl,
    Nvtx,
    rank_ranges,
    read_nccl,
    read_nvtx,
    with_inferred_sizes,
    with_only_peers,
)
from traceanalyzer.readers.nsys.source import STRINGS, Number, Source
from traceanalyzer.readers.nsys.tables import (
    COUNTER_TABLES,
    GPU_TABLES,
    KERNEL,
    KERNEL_NAMES,
    NODES,
    RUNTIME,
    WAIT_TABLES,
    Place,
    are_nameless,
    distinct,
    process_number,
    process_of,
    read_api_calls,
    read_counters,
    read_gpu_ops,
    read_graph_nodes,
    read_stream_waits,
    settled,
    stated,
    with_capturing_operators,
)

# What an export says of the capture itself: its clock, its versions and the names of its GPUs.


EXPORT = "META_DATA_EXPORT"
_START = "TARGET_INFO_SESSION_START_TIME"
_GPU = "TARGET_INFO_GPU"
_CUDA_DEVICE = "TARGET_INFO_CUDA_DEVICE"
_DETAILS = "ANALYSIS_DETAILS"
SESSION_TABLES = (_START, _GPU, _CUDA_DEVICE, _DETAILS)

_VERSIONS = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "nsys schema"}
_NORMALIZED = "EXPORT_PARAM_TIME_NORMALIZE"
SETTINGS = (*_VERSIONS, _NORMALIZED)
"""Of the export's own settings, those that are read."""


@dataclass(frozen=True, slots=True)
class Session:
    """The capture.

    Attributes:
        offset_ns: added to a time of the export, ns since the epoch; 0 where `has_clock` is false.
        has_clock: whether times are known to be UTC, so that several reports share a clock.
        length_ns: of the captured stretch, which begins at 0.
        versions: of Nsight Systems and of the export's schema.
        gpu_of: (operating system's process, CUDA device) → GPU of the machine.
        gpu_names: GPU of the machine → its name.
        gpu_bytes: GPU of the machine → its memory, where the report says it.
    """

    offset_ns: int
    has_clock: bool
    length_ns: int | None
    versions: Mapping[str, str]
    gpu_of: Mapping[tuple[int, int], int]
    gpu_names: Mapping[int, str]
    gpu_bytes: Mapping[int, int]

    def gpu(self, process_number: int, device: int) -> int:
        """GPU of the machine that a process calls `device`."""
        return self.gpu_of.get((process_number, device), device)

    def gpus_seen(self, process_number: int) -> int | None:
        """How many of the machine's GPUs a process sees; `None` where the report does not say which are its own."""
        own = {gpu for (process, _), gpu in self.gpu_of.items() if process == process_number}
        return len(own) or None


def read_session(source: Source) -> Session:
    """The capture's head."""
    settings = _settings(source)
    # A normalised export has its times shifted to UTC already.
    is_utc = settings.get(_NORMALIZED, "").lower() in ("true", "1")
    starts = source.frame(_START, {"utcEpochNs": 0}, ints=("utcEpochNs",))["utcEpochNs"].tolist()
    epoch = starts[0] if starts and 0 < starts[0] <= LATEST_NS else 0
    lengths = source.frame(_DETAILS, ints=("duration",))["duration"].tolist()
    devices = source.rows(_CUDA_DEVICE, ints=("pid", "cudaId", "gpuId"))
    gpus = list(source.rows(_GPU, ints=("id", "totalMemory"), texts=("name",)))
    return Session(
        offset_ns=0 if is_utc else epoch,
        has_clock=is_utc or epoch > 0,
        length_ns=max([0, *lengths]) or None,
        versions={ours: settings[name] for name, ours in _VERSIONS.items() if name in settings},
        gpu_of={(process, device): gpu for process, device, gpu in devices if gpu >= 0 and device >= 0},
        gpu_names={gpu: name for gpu, _, name in gpus if name},
        gpu_bytes={gpu: size for gpu, size, _ in gpus if size > 0},
    )


def is_plain_setting(value: str | None) -> bool:
    """Whether a setting's value is a version or a yes or no, as those that are read are."""
    return re.fullmatch(r"[\d.]+|true|false", value or "", re.IGNORECASE) is not None


def _settings(source: Source) -> dict[str, str]:
    pairs = source.rows(EXPORT, texts=("name", "value"))
    return {name: value for name, value in pairs if name in SETTINGS and is_plain_setting(value)}


# Which rank each (process, device) of an export is, and where that is known from.


MPI_RANKS = "MPI_RANKS"

RANKS_ARE_NAMED_IN = ("CommInit", "rank")
"""Words in the names of the ranges that tell ranks: no others are needed to number them."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A place's rank, the source of that number, and the ranks of the job where something says so."""

    place: Place
    rank: int
    source: str
    world_size: int | None


def identify(
    source: Source,
    places: Sequence[Place],
    session: Session,
    *,
    members: pd.DataFrame,
    ranges: pd.DataFrame,
    hint: RankHint | None,
) -> list[Identity]:
    """Ranks of all places, in order of rank; the first source that numbers each place once decides.

    Sources: NCCL's commInit payloads (rank in the largest communicator), MPI, a range such as `RANK 3`, the
    name of a report with one place (or the hint for it), the order of the devices.
    """
    stated = rank_ranges(ranges)
    world = _world_size(members, stated)
    for name, found in (
        ("NCCL payload", _from_nccl(places, members, world)),
        ("MPI", _from_mpi(source, places)),
        ("NVTX range", {one: int(stated.loc[one.process, "rank"]) for one in places if one.process in stated.index}),
    ):
        if len(found) == len(places) == len(set(found.values())):
            numbered = [Identity(place, found[place], name, world) for place in places]
            return sorted(numbered, key=lambda one: one.rank)
    if len(places) == 1 and hint is not None:
        return [Identity(places[0], hint.rank, hint.source, world)]
    ordered = sorted(places, key=lambda place: (session.gpu(process_number(place.process), place.device), place))
    return [Identity(place, rank, DEVICE_ORDER, world) for rank, place in enumerate(ordered)]


def _world_size(members: pd.DataFrame, stated: pd.DataFrame) -> int | None:
    known = pd.concat([members["ranks"], stated["ranks"]]).dropna()
    known = known[known < RANKS]
    return int(known.max()) if len(known) else None


def _from_nccl(places: Sequence[Place], members: pd.DataFrame, world: int | None) -> dict[Place, int]:
    """Rank in the largest communicator, of which the job has one that holds every rank."""
    largest = members[members["ranks"] == world] if world else members.iloc[:0]
    found = {}
    for place in places:
        own = largest[largest["process"] == place.process]
        # Several devices of one process: the payload names the device.
        own = own[own["device"] == place.device] if len(own["device"].unique()) > 1 else own
        if len(own["rank"].unique()) == 1:
            found[place] = int(own["rank"].iloc[0])
    return found


def _from_mpi(source: Source, places: Sequence[Place]) -> dict[Place, int]:
    rows = source.frame(MPI_RANKS, {"globalTid": 0}, ints=("globalTid", "rank"))
    ranks = dict(zip(process_of(rows["globalTid"]).tolist(), rows["rank"].tolist(), strict=True))
    return {place: ranks[place.process] for place in places if place.process in ranks}


# What the capture lacks, in sentences of our own: its diagnostics name files and processes.


DIAGNOSTICS = "DIAGNOSTIC_EVENT"

_DROPPED = re.compile(
    r"(?<!\d)(\d{1,15})[^.\d]*\b(?:dropped|lost)\b|\b(?:dropped|lost)\b[^.\d]*(\d{1,15})(?!\d)", re.IGNORECASE
)


def notes_of_export(source: Source, session: Session, nvtx: Nvtx, nccl: Nccl, placeless: int) -> tuple[str, ...]:
    """Sentences that hold for every rank of the export, of whose operations `placeless` are left out."""
    lost = (_NO_PLACE.format(count=placeless),) if placeless else ()
    return lost + tuple(_absences(source, session, nvtx)) + tuple(_nccl_notes(nccl)) + tuple(_recorded_errors(source))


def plain_diagnostic(text: str | None) -> str:
    """A diagnostic with nothing in it but what is read of it."""
    match = _DROPPED.search(text or "")
    return f"{match[1] or match[2]} dropped" if match else ""


def dropped_events(source: Source) -> dict[int, int]:
    """Events that were dropped, by process; those of no process count for all, under -1."""
    dropped: dict[int, int] = {}
    for pid, text in source.rows(DIAGNOSTICS, ints=("globalPid",), texts=("text",)):
        if match := _DROPPED.search(text):
            process = NONE if pid < 0 else process_of(pid)
            dropped[process] = dropped.get(process, 0) + int(match[1] or match[2])
    return dropped


def notes_of_rank(gpu_ops: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on one rank's operations."""
    graphs = gpu_ops[(gpu_ops["activity"] == "graph").to_numpy()]
    if graphs.empty:
        return ()
    busy_ns = int((graphs["end_ns"] - graphs["start_ns"]).sum())
    return (_WHOLE_GRAPHS.format(count=len(graphs), busy_ms=busy_ns / 1e6),)


_WHOLE_GRAPHS = (
    "{count} CUDA graph launches ({busy_ms:.3f} ms) were recorded whole: the GPU was busy, with what is "
    "unknown: compute, communication and copies of windows that they run in are n/a. Capture with "
    "--cuda-graph-trace=node to record the kernels inside."
)
_DAMAGED = "The export's table {table} is damaged: what it holds is missing from the figures; export the report again."
_NO_CLOCK = "The export has no UTC start, so its times cannot be compared with those of other reports."
_NO_API = (
    "The export has no CUDA API calls: launches, steps and causes of idle time are not available; "
    "capture with --trace=cuda,nvtx."
)
_NO_PROCESS = (
    "The export does not say which process its GPU operations belong to (no globalPid): which call launched which is "
    "not known, so that there are no steps, sizes or causes of idle time; export the report again with a newer nsys."
)
_NO_PLACE = (
    "{count} GPU operations of the export do not say which GPU or process they are of, and are left out: ranks are "
    "busier than is shown; export the report again."
)
_NO_NVTX = (
    "The export has no NVTX ranges: steps, phases and NCCL's calls are not available; capture with --trace=cuda,nvtx."
)
_OPEN = (
    "{count} NVTX {have} no end, being open when the capture ended or never closed: each ends where the next of its "
    "name, numbers apart, begins on its thread, else with the capture's last range."
)
_NO_OPERATORS = (
    "The export has no PyTorch operators: run the steps of a PyTorch program inside "
    "torch.autograd.profiler.emit_nvtx() to have them."
)
_NO_PAYLOADS = (
    "NCCL's ranges carry no payload, so sizes and bandwidths are not available; "
    "nsys export --include-blobs=true brings it."
)
_SOME_PAYLOADS = (
    "The size of {missing} of {calls} NCCL calls is not known: the payload is absent, or states one rank's share "
    "and ncclCommInit, which states the number of ranks, lies outside the capture."
)
_INFERRED_SIZES = (
    "The sizes of {inferred} of {calls} NCCL calls are inferred: ncclCommInit, which states how many ranks a "
    "communicator has, lies outside the capture; each is taken to have the ranks of this report that call it."
)


def _absences(source: Source, session: Session, nvtx: Nvtx) -> list[str]:
    tables = source.tables
    absent = {
        _NO_CLOCK: not session.has_clock,
        _NO_API: RUNTIME not in tables,
        _NO_PROCESS: KERNEL in tables and not any("globalPid" in source.columns(table) for table in GPU_TABLES),
        _NO_NVTX: NVTX not in tables,
        _NO_OPERATORS: NVTX in tables and nvtx.operators.empty,
    }
    notes = [_DAMAGED.format(table=table) for table in sorted(source.damaged)]
    notes += [sentence for sentence, is_true in absent.items() if is_true]
    if nvtx.open_ranges:
        notes.append(_OPEN.format(count=nvtx.open_ranges, have="range has" if nvtx.open_ranges == 1 else "ranges have"))
    return notes


def _nccl_notes(nccl: Nccl) -> list[str]:
    if nccl.calls.empty:
        return []
    if not nccl.has_payloads:
        return [_NO_PAYLOADS]
    missing = int(nccl.calls["size_bytes"].isna().sum())
    calls = len(nccl.calls)
    notes = [_SOME_PAYLOADS.format(missing=missing, calls=calls)] if missing else []
    return [*notes, *([_INFERRED_SIZES.format(inferred=nccl.inferred, calls=calls)] if nccl.inferred else [])]


def _recorded_errors(source: Source) -> list[str]:
    """Errors only: that "not all events might have been collected" stands in every report that an API call ended."""
    errors = int((source.frame(DIAGNOSTICS, ints=("severity",))["severity"] == Number.ERROR).sum())
    if not errors:
        return []
    what = "1 error" if errors == 1 else f"{errors} errors"
    return [f"Nsight Systems reported {what} while it recorded; open the report there for the text."]


# The ranks of one export, one after the other.


# Communication could not be distinguished from compute.
_NO_NAMES = "no kernel has a name; export the whole report again with nsys export"

_XLA = re.compile(r"(?:(?:loop|input|gemm)_(?:\w+_)?fusion(?:_\w+)?|wrapped_[a-z_]+(?:_\d+)?)$")
"""Kernels as XLA names those that it makes."""

_TIMES = ("start_ns", "end_ns", "time_ns")


@dataclass(frozen=True, slots=True)
class _Export:
    """Everything that was read, of all ranks.

    Attributes:
        tables: by their names in `model.TABLES`, with `process`, and `device` where known; times are the export's.
    """

    session: Session
    tables: Mapping[str, pd.DataFrame]
    members: pd.DataFrame
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
        end_ns=_end_ns(session),
    )


def _end_ns(session: Session) -> int | None:
    return session.offset_ns + session.length_ns if session.has_clock and session.length_ns else None


def read(source: Source, path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """Each rank of the export, in order; one for each process with ranges when nothing ran on a GPU.

    Raises:
        NotATraceError: the export has neither GPU operations nor ranges.
    """
    if STRINGS not in source.tables and KERNEL in source.tables:
        raise NotATraceError(f"{path}: no table {STRINGS}, so that {_NO_NAMES}")
    gpu_ops, placeless = read_gpu_ops(source)
    if are_nameless(gpu_ops):
        has_column = not source.columns(KERNEL).isdisjoint(KERNEL_NAMES)
        lack = f"the table {STRINGS} lacks" if has_column else f"the table {KERNEL} has no column for"
        raise NotATraceError(f"{path}: {lack} the kernels' names, so that {_NO_NAMES}")
    session, nvtx = read_session(source), read_nvtx(source)
    devices = distinct(gpu_ops["process"], gpu_ops["device"]) if len(gpu_ops) else ()
    places = sorted(devices) or _places_of_host(nvtx)
    if not places:
        raise _no_gpu_ops(source, path)
    nccl = read_nccl(source, nvtx.ranges)
    found = identify(source, places, session, members=nccl.members, ranges=nvtx.ranges, hint=hint)
    if found[0].world_size in (None, len(found)):
        ranks = {one.place.process: one.rank for one in found}
        nccl = with_inferred_sizes(replace(nccl, calls=with_only_peers(nccl.calls, ranks)))
    tables = {
        "gpu_ops": gpu_ops, "api_calls": read_api_calls(source), "host_ops": nvtx.operators, "ranges": nvtx.ranges,
        "comm_args": nccl.calls, "stream_waits": read_stream_waits(source), "counters": read_counters(source),
        "graph_nodes": read_graph_nodes(source),
    }  # fmt: skip
    notes = notes_of_export(source, session, nvtx, nccl, placeless)
    export = _Export(session, tables, nccl.members, notes, dropped_events(source))
    for identity in found:
        yield _trace(export, path, identity, found, rules)


def _places_of_tables(source: Source) -> list[Place]:
    tables = [stated(source.frame(table, ints=("globalPid", "deviceId"))) for table in GPU_TABLES]
    places = settled(set().union(*(distinct(*columns) for columns in tables)))
    return sorted({place for place in places.values() if place is not None})


def _places_of_host(nvtx: Nvtx) -> list[Place]:
    """Processes with ranges other than NCCL's, or with operators; no device."""
    own = nvtx.ranges[(nvtx.ranges["domain"] != NCCL_DOMAIN).to_numpy(dtype=bool)]
    processes = {*own["process"].unique().tolist(), *nvtx.operators["process"].unique().tolist()}
    return [Place(process, NONE) for process in sorted(processes)]


def _no_gpu_ops(source: Source, path: Path) -> NotATraceError:
    if not {STRINGS, NVTX, *GPU_TABLES} & source.tables:
        return NotATraceError(f"{path}: not an export of Nsight Systems (no table of one)")
    return NotATraceError(
        f"{path}: no GPU operations were recorded; capture with --trace=cuda,nvtx while the GPU works, then export "
        "with nsys export"
    )


def _trace(export: _Export, path: Path, identity: Identity, all_ranks: list[Identity], rules: KindRules) -> RankTrace:
    place, all_ops = identity.place, export.tables["gpu_ops"]
    gpu = export.session.gpu(process_number(place.process), place.device)
    is_only = sum(one.place.process == place.process for one in all_ranks) == 1
    offset_ns = export.session.offset_ns
    own = {name: _of(table, place, gpu, offset_ns, is_only=is_only) for name, table in export.tables.items()}
    nodes, gpu_ops = own.pop("graph_nodes"), own["gpu_ops"]
    answering = None
    if len(all_ops):  # of those without a time nobody reads
        is_own = (all_ops["process"] == place.process) & (all_ops["start_ns"] != UNKNOWN_NS)
        answering = all_ops.loc[is_own, "correlation"]
    trace = make_trace(
        _meta(export, path, identity, all_ranks, notes_of_rank(gpu_ops) if len(gpu_ops) else (), _compiler(gpu_ops)),
        process_ops=answering,
        rules=rules,
        **own,
    )
    return with_capturing_operators(trace, nodes)


def _of(table: pd.DataFrame, place: Place, gpu: int, offset_ns: int, *, is_only: bool) -> pd.DataFrame:
    """A table's rows of one rank, with absolute times, and no name kept that only other ranks use.

    What is of an unknown device counts where it is the process's only rank, and what was sampled by its GPU.
    """
    if table.empty:
        return table
    rows = table["gpu"].isin((gpu, NONE)) if "gpu" in table else table["process"] == place.process
    if "device" in table:
        rows &= (table["device"] == place.device).fillna(value=is_only)
    own = table[rows.to_numpy(dtype=bool)]
    moved = {name: own[name] + offset_ns for name in _TIMES if name in own}
    named = {name: own[name].cat.remove_unused_categories() for name in ("name", "domain") if name in own}
    return own.assign(**moved, **named)


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
        has_api_calls=is_host_only and bool((export.tables["api_calls"]["process"] == place.process).any()),
        groups=_groups(export.members, all_ranks),
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
    rank_of: dict[Any, int] = {one.place: one.rank for one in all_ranks}
    # A payload without a device, or of a process with one, means the process's only rank.
    rank_of |= {(one.place.process, pd.NA): one.rank for one in all_ranks}
    groups = []
    for communicator, joined in members.sort_values("rank").groupby("communicator", sort=False):
        stated_members = joined[joined["group_ranks"].notna()]
        if len(stated_members):
            named = tuple(map(int, stated_members["group_ranks"].iloc[0].split(",")))
            groups.append(ProcessGroup(str(communicator), stated_members["description"].iloc[0], named))
            continue
        keys = joined[["process", "device"]].itertuples(index=False, name=None)
        ranks = [rank_of.get((process, device), rank_of.get((process, pd.NA))) for process, device in keys]
        held = tuple(rank for rank in ranks if rank is not None)
        if len(set(held)) == int(joined["ranks"].max()):
            groups.append(ProcessGroup(str(communicator), "", held))
    return tuple(groups)


# What of an export may be kept in a cache: the tables that are read, and of them nothing of the machine's own words.
#
# An export embeds the environment, the command line, standard error and the names of processes; a copy
# that outlives the
# analysis must not.


_READ = {
    "StringIds", RUNTIME, NVTX, MPI_RANKS, DIAGNOSTICS, EXPORT,
    *GPU_TABLES, NODES, *WAIT_TABLES, *COUNTER_TABLES, *PAYLOAD_TABLES, *SESSION_TABLES,
}  # fmt: skip

_STRINGS = ((KERNEL, KERNEL_NAMES), (RUNTIME, ("nameId",)), (NVTX, ("textId",)))
"""Columns that name the strings which are read."""


def scrub(path: Path) -> None:
    """Take out of a database everything that no reader reads, and rewrite the file so that nothing of it is left."""
    with closing(sqlite3.connect(path)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for view in [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]:
            database.execute(f'DROP VIEW "{view}"')
        for table in tables - _READ:
            if not table.startswith("sqlite_"):
                database.execute(f'DROP TABLE "{table}"')
        if "StringIds" in tables:
            database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({_named(database, tables)})")  # noqa: S608
        if EXPORT in tables:
            database.create_function("is_plain", 2, lambda name, value: name in SETTINGS and is_plain_setting(value))
            database.execute(f"DELETE FROM {EXPORT} WHERE NOT is_plain(name, value)")  # noqa: S608
        if DIAGNOSTICS in tables:
            database.create_function("plain", 1, plain_diagnostic)
            database.execute(f"UPDATE {DIAGNOSTICS} SET text = plain(text)")  # noqa: S608
        database.commit()
        database.execute("VACUUM")


def _named(database: sqlite3.Connection, tables: set[str]) -> str:
    """A query for the ids of all strings that events name."""
    queries = []
    for table, columns in _STRINGS:
        held = {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')} if table in tables else set()
        queries += [f"SELECT {name} FROM {table} WHERE {name} NOT NULL" for name in columns if name in held]  # noqa: S608
    return " UNION ".join(queries or ["SELECT NULL WHERE 0"])
