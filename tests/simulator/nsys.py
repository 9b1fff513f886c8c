"""Writes a capture as one Nsight Systems SQLite export: every rank a process with a GPU of its own."""

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.simulator.capture import Captured, Recorded, StreamWait
from tests.simulator.engine import GpuOp
from tests.simulator.kineto import BASE_NS, KERNELS
from tests.simulator.program import Comm, Group

_SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT,
    totalMemory INTEGER, smCount INTEGER, uuid TEXT, cuDevice INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
    gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL,
    blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER,
    dstDeviceId INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
    callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER, eventSyncId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (deviceId INTEGER, contextId INTEGER, streamId INTEGER,
    correlationId INTEGER, globalPid INTEGER, eventId INTEGER, eventSyncId INTEGER);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER, flags INTEGER, type INTEGER,
    name TEXT, offset INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
    globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, binaryData TEXT);
"""

_PUSH_POP, _DOMAIN_NAME, _NCCL_DOMAIN = 59, 75, 1
_COPY_KINDS = {"HtoD": (1, 1, 2), "DtoH": (2, 2, 1), "DtoD": (8, 2, 2)}
"""`copyKind`, `srcKind`, `dstKind`."""

_FUNCTIONS = {"all_reduce": "ncclAllReduce", "all_gather": "ncclAllGather", "reduce_scatter": "ncclReduceScatter",
              "broadcast": "ncclBroadcast", "all_to_all": "ncclAllToAll", "send_recv": "ncclGroupEnd"}  # fmt: skip


_COLLECTIVE, _MESSAGE = 16777221, 16777222
_PAYLOADS = (
    (1, _COLLECTIVE, 0, None, 18, "NCCL communicator ID", None),
    (1, _COLLECTIVE, 1, None, 22, "Message size [bytes]", 8),
    (1, _MESSAGE, 0, None, 18, "NCCL communicator ID", None),
    (1, _MESSAGE, 1, None, 22, "Message size [bytes]", 8),
    (1, _MESSAGE, 2, None, 5, "Peer rank", 16),
)
"""Schemas of NCCL's payloads, of collectives and of messages."""

_IS_PART = ("all_gather", "reduce_scatter", "all_to_all")
"""Of these NCCL states one rank's part."""


class _Strings:
    """Ids of texts, given out in order of first use."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids) + 1)


def write_reports(captured: Captured, folder: Path) -> list[Path]:
    """One report of all ranks; where clocks differ one for each, `report_rank<r>.sqlite`: a report has one clock."""
    if not captured.how.offset_ns:
        return [write(captured, folder / "report.sqlite")]
    return [
        write(Captured(captured.run, captured.how, (one,)), folder / f"report_rank{one.rank}.sqlite")
        for one in captured.ranks
    ]


def write(captured: Captured, path: Path) -> Path:
    """A report; with `has_payloads` calls have bytes and communicators, which each rank introduces as the runners do.

    Without, collectives have no sizes and no groups.
    """
    strings = _Strings()
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_SCHEMA)
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (BASE_NS,))
        database.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.0')")
        if captured.how.has_payloads:
            database.executemany(f"INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES ({_marks(_PAYLOADS[0])})", _PAYLOADS)
        for recorded in captured.ranks:
            gpu = (1 << 48, recorded.rank, "NVIDIA H200", f"0000:{recorded.rank:02x}:00.0", 150109880320, 132, "",
                   recorded.rank)  # fmt: skip
            database.execute(f"INSERT INTO TARGET_INFO_GPU VALUES ({_marks(gpu)})", gpu)
            for table, row in _rows(captured, recorded, strings):
                database.execute(f"INSERT INTO {table} VALUES ({_marks(row)})", row)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, text) for text, i in strings.ids.items()])
    return path


def _marks(row: tuple[Any, ...]) -> str:
    return ", ".join("?" * len(row))


def _rows(captured: Captured, recorded: Recorded, strings: _Strings) -> Iterator[tuple[str, tuple[Any, ...]]]:
    process = (1 << 48) | (1000 + recorded.rank) << 24
    thread = process | (1000 + recorded.rank)
    shift = recorded.offset_ns
    yield "NVTX_EVENTS", (shift, None, _DOMAIN_NAME, "NCCL", thread, None, None, _NCCL_DOMAIN, None)
    for event in recorded.host:
        times = (event.start_ns + shift, event.end_ns + shift)
        if event.what == "range":
            yield "NVTX_EVENTS", (*times, _PUSH_POP, event.name, thread, None, None, 0, None)
        elif event.what == "call":
            yield "CUPTI_ACTIVITY_KIND_RUNTIME", (*times, 0, thread, 0, strings[event.name], 0, None)
    if recorded.how.has_payloads:
        yield from _introductions(captured, recorded, thread, strings)
    for op in recorded.launches:
        yield from _launch(captured, recorded, op, thread, strings)
    for op in recorded.ops:
        yield _gpu_op(recorded, op, process, strings)
    for wait in recorded.waits:
        yield from _stream_wait(recorded, wait, process, thread, strings)


def _introductions(
    captured: Captured, recorded: Recorded, thread: int, strings: _Strings
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Ranges at the begin; the calls inside them are left out of the GPU's operations, for Kineto's file has none."""
    own = [group for group in captured.run.job.groups if recorded.rank in group.ranks]
    begin = min(event.start_ns for event in recorded.host) + recorded.offset_ns - 1_000 * (len(own) + 1)
    name = f"rank {recorded.rank} of {len(captured.run.job.programs)}"
    yield "NVTX_EVENTS", (begin, begin + 10, _PUSH_POP, name, thread, None, None, 2, None)
    for place, group in enumerate(own):
        start = begin + 1_000 * place + 100
        name = f"group {group.name} of ranks {','.join(map(str, group.ranks))}: {group.description}"
        yield "NVTX_EVENTS", (start, start + 800, _PUSH_POP, name, thread, None, None, 2, None)
        data = _payload(_COLLECTIVE, struct.pack("<QQ", _communicator(captured, group), 4))
        yield "NVTX_EVENTS", (
            start + 100, start + 700, _PUSH_POP, None, thread, None, strings["ncclAllReduce"], _NCCL_DOMAIN, data,
        )  # fmt: skip


def _launch(
    captured: Captured, recorded: Recorded, op: GpuOp, thread: int, strings: _Strings
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    start, end = op.launch_start_ns + recorded.offset_ns, op.launch_end_ns + recorded.offset_ns
    name = strings["cudaMemcpyAsync" if op.instruction.kind == "copy" else "cudaLaunchKernel"]
    yield "CUPTI_ACTIVITY_KIND_RUNTIME", (start + 100, end - 100, 0, thread, op.number + 1, name, 0, None)
    comm = op.instruction.comm
    if comm is None:
        return
    data = None
    if recorded.how.has_payloads and comm.collective != "send_recv":
        elements = comm.elements // len(comm.group.ranks) if comm.collective in _IS_PART else comm.elements
        data = _payload(_COLLECTIVE, struct.pack("<QQ", _communicator(captured, comm.group), 2 * elements))
    function = strings[_FUNCTIONS[comm.collective]]
    yield "NVTX_EVENTS", (start, end, _PUSH_POP, None, thread, None, function, _NCCL_DOMAIN, data)
    if comm.collective == "send_recv":
        yield from _messages(captured, recorded, comm, start, thread, strings)


def _messages(
    captured: Captured, recorded: Recorded, comm: Comm, start: int, thread: int, strings: _Strings
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """`ncclSend` and `ncclRecv`, before the launch by the group's end."""
    messages = [("ncclSend", peer) for peer in comm.sends] + [("ncclRecv", peer) for peer in comm.receives]
    for place, (function, peer) in enumerate(messages):
        body = struct.pack("<QQi", _communicator(captured, comm.group), 2 * comm.elements, comm.group.ranks.index(peer))
        began, data = start + 5 * place + 1, _payload(_MESSAGE, body) if recorded.how.has_payloads else None
        yield "NVTX_EVENTS", (
            began, began + 4, _PUSH_POP, None, thread, None, strings[function], _NCCL_DOMAIN, data,
        )  # fmt: skip


def _communicator(captured: Captured, group: Group) -> int:
    return 0xF00D_0000_0000_0000 + captured.run.job.groups.index(group)


def _payload(schema: int, body: bytes) -> bytes:
    return struct.pack("<QQQQ", 1, schema, len(body), 32 + len(body)) + body


def _stream_wait(
    recorded: Recorded, wait: StreamWait, process: int, thread: int, strings: _Strings
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """All records are of one event: only `eventSyncId` tells them apart. `deviceId` of a wait is 0, as in real files."""
    record, told = wait.record_ns + recorded.offset_ns, wait.wait_ns + recorded.offset_ns
    event = (7, wait.record_correlation)
    yield "CUPTI_ACTIVITY_KIND_RUNTIME", (
        record, record + 20, 0, thread, wait.record_correlation, strings["cudaEventRecord"], 0, None,
    )  # fmt: skip
    yield "CUPTI_ACTIVITY_KIND_RUNTIME", (
        told, told + 20, 0, thread, wait.correlation, strings["cudaStreamWaitEvent"], 0, None,
    )  # fmt: skip
    if not recorded.how.has_stream_waits:
        return
    yield "CUPTI_ACTIVITY_KIND_CUDA_EVENT", (
        recorded.rank, 1, wait.source_stream, wait.record_correlation, process, *event,
    )  # fmt: skip
    yield "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", (
        told, told + 20, 0, 1, wait.stream, wait.correlation, process, 2, *event,
    )  # fmt: skip


def _gpu_op(recorded: Recorded, op: GpuOp, process: int, strings: _Strings) -> tuple[str, tuple[Any, ...]]:
    what = op.instruction
    place = (op.start_ns + recorded.offset_ns, op.end_ns + recorded.offset_ns, recorded.rank, 1)
    if what.kind == "copy":
        kinds = _COPY_KINDS[what.name.split()[1]]
        return "CUPTI_ACTIVITY_KIND_MEMCPY", (
            *place, what.stream, op.number + 1, process, what.size_bytes, *kinds, None, None, None,
        )  # fmt: skip
    name = strings[(what.comm.kernel or KERNELS[what.comm.collective]) if what.comm else what.name]
    return "CUPTI_ACTIVITY_KIND_KERNEL", (
        *place, None, what.stream, op.number + 1, process, name, name, None, 24, 1, 1, 512, 1, 1, None,
    )  # fmt: skip
