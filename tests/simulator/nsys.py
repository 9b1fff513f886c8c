"""Writes a capture as one Nsight Systems SQLite export: every rank a process with a GPU of its own."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.simulator.capture import Captured, Recorded, StreamWait
from tests.simulator.engine import GpuOp
from tests.simulator.kineto import BASE_NS, KERNELS

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
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
    globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, binaryData TEXT);
"""

_PUSH_POP, _DOMAIN_NAME, _NCCL_DOMAIN = 59, 75, 1
_COPY_KINDS = {"HtoD": (1, 1, 2), "DtoH": (2, 2, 1), "DtoD": (8, 2, 2)}
"""`copyKind`, `srcKind`, `dstKind`."""

_FUNCTIONS = {"all_reduce": "ncclAllReduce", "all_gather": "ncclAllGather", "reduce_scatter": "ncclReduceScatter",
              "broadcast": "ncclBroadcast", "all_to_all": "ncclAllToAll", "send_recv": "ncclGroupEnd"}  # fmt: skip


class _Strings:
    """Ids of texts, given out in order of first use."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids) + 1)


def write(captured: Captured, path: Path) -> Path:
    """A report without payload blobs: collectives have no sizes and no groups."""
    strings = _Strings()
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_SCHEMA)
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (BASE_NS,))
        database.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.0')")
        for recorded in captured.ranks:
            gpu = (1 << 48, recorded.rank, "NVIDIA H200", f"0000:{recorded.rank:02x}:00.0", 150109880320, 132, "",
                   recorded.rank)  # fmt: skip
            database.execute(f"INSERT INTO TARGET_INFO_GPU VALUES ({_marks(gpu)})", gpu)
            for table, row in _rows(recorded, strings):
                database.execute(f"INSERT INTO {table} VALUES ({_marks(row)})", row)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, text) for text, i in strings.ids.items()])
    return path


def _marks(row: tuple[Any, ...]) -> str:
    return ", ".join("?" * len(row))


def _rows(recorded: Recorded, strings: _Strings) -> Iterator[tuple[str, tuple[Any, ...]]]:
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
    for op in recorded.launches:
        yield from _launch(op, shift, thread, strings)
    for op in recorded.ops:
        yield _gpu_op(recorded, op, process, strings)
    for wait in recorded.waits:
        yield from _stream_wait(recorded, wait, process, thread, strings)


def _launch(op: GpuOp, shift: int, thread: int, strings: _Strings) -> Iterator[tuple[str, tuple[Any, ...]]]:
    start, end = op.launch_start_ns + shift, op.launch_end_ns + shift
    name = strings["cudaMemcpyAsync" if op.instruction.kind == "copy" else "cudaLaunchKernel"]
    yield "CUPTI_ACTIVITY_KIND_RUNTIME", (start + 100, end - 100, 0, thread, op.number + 1, name, 0, None)
    if op.instruction.comm:
        function = strings[_FUNCTIONS[op.instruction.comm.collective]]
        yield "NVTX_EVENTS", (start, end, _PUSH_POP, None, thread, None, function, _NCCL_DOMAIN, None)


def _stream_wait(
    recorded: Recorded, wait: StreamWait, process: int, thread: int, strings: _Strings
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """All records are of one event: only `eventSyncId` tells them apart. `deviceId` of a wait is 0, as in real files."""
    record, told = wait.record_ns + recorded.offset_ns, wait.wait_ns + recorded.offset_ns
    event = (7, wait.record_correlation)
    yield "CUPTI_ACTIVITY_KIND_RUNTIME", (
        record, record + 20, 0, thread, wait.record_correlation, strings["cudaEventRecord"], 0, None,
    )  # fmt: skip
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
    name = strings[KERNELS[what.comm.collective] if what.comm else what.name]
    return "CUPTI_ACTIVITY_KIND_KERNEL", (
        *place, None, what.stream, op.number + 1, process, name, name, None, 24, 1, 1, 512, 1, 1, None,
    )  # fmt: skip
