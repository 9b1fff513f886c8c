"""Nsight Systems exports for tests: rows as literals in, a database or a folder of Parquet files out."""

import sqlite3
import struct
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers import reader_of
from traceanalyzer.readers.base import RankHint

HINT = RankHint(0, "test")
EPOCH_NS = 1_700_000_000_000_000_000

Tables = dict[str, list[dict[str, Any]]]
"""Rows by table; a key that only some rows have is NULL in the others."""


def gid(process: int, thread: int = 0) -> int:
    """`globalPid`, or `globalTid` with a thread, of VM 1."""
    return (1 << 48) | (process << 24) | thread


def kernel(start: int, end: int, *, process: int = 100, device: int = 0, correlation: int = 1, stream: int = 7,
           name: int | None = 1, **more: Any) -> dict[str, Any]:  # fmt: skip
    """A row of the kernels' table as schema 3.20 has it, less what nobody reads."""
    return {
        "start": start, "end": end, "deviceId": device, "contextId": 1, "greenContextId": None, "streamId": stream,
        "correlationId": correlation, "globalPid": gid(process), "demangledName": name, "shortName": name,
        "mangledName": None, "gridX": 8, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1,
        "graphNodeId": None,
    } | more  # fmt: skip


def memcpy(start: int, end: int, *, process: int = 100, device: int = 0, correlation: int = 2, kind: int = 1,
           memories: tuple[int | None, int | None] = (1, 2), size: int = 4096, **more: Any):  # fmt: skip
    """A row of the copies' table."""
    return {
        "start": start, "end": end, "deviceId": device, "streamId": 7, "correlationId": correlation,
        "globalPid": gid(process), "bytes": size, "copyKind": kind, "srcKind": memories[0], "dstKind": memories[1],
        "srcDeviceId": None, "dstDeviceId": None, "graphNodeId": None,
    } | more  # fmt: skip


def memset(start: int, end: int, *, process: int = 100, device: int = 0, correlation: int = 3, size: int = 64,
           **more: Any) -> dict[str, Any]:  # fmt: skip
    """A row of the memsets' table."""
    return {
        "start": start, "end": end, "deviceId": device, "streamId": 7, "correlationId": correlation,
        "globalPid": gid(process), "value": 0, "bytes": size, "memKind": 2, "graphNodeId": None,
    } | more  # fmt: skip


def call(start: int, end: int, *, process: int = 100, thread: int = 100, correlation: int = 1, name: int | None = 2):
    """A row of the API calls' table."""
    return {"start": start, "end": end, "globalTid": gid(process, thread), "correlationId": correlation, "nameId": name}


def nvtx(start: int, end: int | None, text: str | None = None, *, process: int = 100, thread: int = 100,
         event: int = 59, text_id: int | None = None, domain: int = 0, data: bytes | None = None):  # fmt: skip
    """A row of the NVTX table."""
    return {
        "start": start, "end": end, "eventType": event, "text": text, "globalTid": gid(process, thread),
        "endGlobalTid": None, "textId": text_id, "domainId": domain, "binaryData": data,
    }  # fmt: skip


def strings(**texts: str) -> list[dict[str, Any]]:
    """Rows of StringIds: `s1="gemm"` is id 1."""
    return [{"id": int(name[1:]), "value": text} for name, text in texts.items()]


def export() -> Tables:
    """A whole small export: one process on one GPU, with one of everything."""
    return {
        "StringIds": strings(s1="gemm", s2="cudaLaunchKernel_v7000", s3="cudaMemcpyAsync_v3020",
                             s4="cudaMemsetAsync_v3020", s5="ncclAllReduce", s6="ncclDevKernel_AllReduce(args)"),
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 200), kernel(210, 260, correlation=4, name=6, stream=9)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [memcpy(50, 60)],
        "CUPTI_ACTIVITY_KIND_MEMSET": [memset(70, 75)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call(90, 95), call(40, 45, correlation=2, name=3), call(65, 68, correlation=3, name=4),
            call(150, 155, correlation=4),
        ],
        "NVTX_EVENTS": [
            nvtx(-500, None, "NCCL", event=75, domain=1),
            nvtx(0, 300, "step_0"),
            nvtx(80, 99, "aten::mm, seq = 7, op_id = 3"),
            nvtx(148, 158, text_id=5, domain=1),
        ],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH_NS, "utcTime": "x", "localTime": "x"}],
        "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA H200"}],
        "META_DATA_EXPORT": [
            {"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2.0"},
            {"name": "EXPORT_PARAM_TIME_NORMALIZE", "value": "false"},
        ],
        "ANALYSIS_DETAILS": [{"globalVid": 1, "duration": 1000, "startTime": 5, "stopTime": 1005}],
    }  # fmt: skip


def without(tables: Mapping[str, list[dict[str, Any]]], table: str, *columns: str) -> Tables:
    """The same without a table, or without some of its columns."""
    if not columns:
        return {name: rows for name, rows in tables.items() if name != table}
    kept = [{name: value for name, value in row.items() if name not in columns} for row in tables[table]]
    return dict(tables) | {table: kept}


def write_sqlite(path: Path, tables: Mapping[str, list[dict[str, Any]]]) -> Path:
    """Write an export as `nsys export --type=sqlite` does: a table without rows is absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        for table, rows in tables.items():
            columns = _columns(rows)
            if not columns:
                continue
            kinds = [f'"{name}" {"TEXT" if _is_text(rows, name) else "INTEGER"}' for name in columns]
            database.execute(f'CREATE TABLE "{table}" ({", ".join(kinds)})')
            database.executemany(
                f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})',
                [tuple(row.get(name) for name in columns) for row in rows],
            )
        database.commit()
    return path


def write_parquet(path: Path, tables: Mapping[str, list[dict[str, Any]]]) -> Path:
    """Write an export as `nsys export --type=parquetdir` does; bytes as text in hexadecimal."""
    path.mkdir(parents=True, exist_ok=True)
    for table, rows in tables.items():
        if not rows:
            continue
        columns = {}
        for name in _columns(rows):
            values = [row.get(name) for row in rows]
            values = [value.hex() if isinstance(value, bytes) else value for value in values]
            columns[name] = pa.array(values, pa.large_string() if _is_text(rows, name) else pa.int64())
        pq.write_table(pa.table(columns), path / f"{table}.parquet")
    return path


def read_all(path: Path, rules: KindRules | None = None) -> list[RankTrace]:
    """Every rank of an export, by the reader that recognises it."""
    reader = reader_of(path)
    assert reader is not None
    return list(reader.read(path, HINT, rules or KindRules()))


def payload(schema: int, body: bytes, domain: int = 1) -> bytes:
    """A payload with its header: domain, schema, size, size of it all."""
    return struct.pack("<QQQQ", domain, schema, len(body), 32 + len(body)) + body


def _columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _is_text(rows: Iterable[Mapping[str, Any]], name: str) -> bool:
    values = [row.get(name) for row in rows]
    return name in ("text", "binaryData") or any(isinstance(value, str | bytes) for value in values)
