"""rocprofv3 captures for tests: a JSON file, or a rocpd database of either schema."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

HIP, MARKER, RCCL, COPY, KERNEL = range(1, 6)

OPERATIONS = {
    HIP: ("HIP_RUNTIME_API", ["hipLaunchKernel", "hipMemcpyAsync", "hipStreamSynchronize"]),
    MARKER: ("MARKER_CORE_RANGE_API", ["roctxMarkA", "roctxThreadRangeA"]),
    RCCL: ("RCCL_API", ["ncclAllReduce", "ncclCommInitRank"]),
    COPY: ("MEMORY_COPY", ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE",
                           "MEMORY_COPY_DEVICE_TO_HOST", "MEMORY_COPY_DEVICE_TO_DEVICE"]),
    KERNEL: ("KERNEL_DISPATCH", ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE", "KERNEL_DISPATCH_COMPLETE"]),
}  # fmt: skip

CPU_AGENT, FIRST_GPU, SECOND_GPU = 10, 20, 21

KERNELS = {1: "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", 2: "gemm", 3: "__amd_rocclr_fillBufferAligned",
           4: "__amd_rocclr_copyBuffer"}  # fmt: skip

SECRET = "token=hunter2"


def record(kind: int, operation: int, start: int, end: int, correlation: int, thread: int = 7) -> dict[str, Any]:
    """What every record has."""
    return {"kind": kind, "operation": operation, "thread_id": thread, "start_timestamp": start, "end_timestamp": end,
            "correlation_id": {"internal": correlation, "external": 0}}  # fmt: skip


def kernel(number: int, start: int, end: int, correlation: int, *, agent: int = FIRST_GPU, stream: int | None = 3,
           items: tuple[int, int, int] = (1000, 70000, 1)) -> dict[str, Any]:  # fmt: skip
    """A kernel by its number in KERNELS."""
    extents = [dict(zip("xyz", sizes, strict=True)) for sizes in ((256, 1, 1), items)]
    info = {"agent_id": {"handle": agent}, "queue_id": {"handle": 9}, "kernel_id": number,
            "workgroup_size": extents[0], "grid_size": extents[1]}  # fmt: skip
    streams = {} if stream is None else {"stream_id": {"handle": stream}}
    return record(KERNEL, 2, start, end, correlation) | {"dispatch_info": info} | streams


def copy(operation: int, start: int, end: int, correlation: int, source: int, target: int) -> dict[str, Any]:
    """A copy of 4096 bytes."""
    agents = {"src_agent_id": {"handle": source}, "dst_agent_id": {"handle": target}}
    return record(COPY, operation, start, end, correlation) | agents | {"bytes": 4096, "stream_id": {"handle": 3}}


def buffers() -> dict[str, list[dict[str, Any]]]:
    """One step of a process: a product, an all-reduce inside RCCL's call, copies, a fill, a wait of the host."""
    return {
        "hip_api": [record(HIP, 0, 100, 110, 1), record(HIP, 0, 205, 210, 2), record(HIP, 1, 300, 310, 3),
                    record(HIP, 1, 320, 330, 4), record(HIP, 2, 340, 900, 5)],
        "marker_api": [record(MARKER, 1, 50, 950, 90), record(MARKER, 0, 60, 60, 91)],
        "rccl_api": [record(RCCL, 0, 200, 220, 80)],
        "kernel_dispatch": [kernel(2, 400, 500, 1), kernel(1, 500, 700, 2, stream=5), kernel(3, 710, 720, 3)],
        "memory_copy": [copy(2, 720, 760, 3, CPU_AGENT, FIRST_GPU), copy(4, 760, 800, 4, FIRST_GPU, SECOND_GPU)],
    }  # fmt: skip


def write_json(path: Path, records: Mapping[str, list[dict[str, Any]]]) -> Path:
    """A file as rocprofv3 writes it."""
    kinds = [{"kind": "NONE", "operations": []}]
    kinds += [{"kind": kind, "operations": names} for kind, names in OPERATIONS.values()]
    process = {
        "metadata": {"node": {"hostname": SECRET}, "pid": 55, "init_time": 10, "fini_time": 2000, "command": [SECRET]},
        "agents": [{"id": {"handle": CPU_AGENT}, "type": 1, "product_name": "CPU"},
                   *({"id": {"handle": agent}, "type": 2, "product_name": "AMD Instinct MI300X", "name": "gfx942",
                      "logical_node_type_id": number} for number, agent in enumerate((FIRST_GPU, SECOND_GPU)))],
        "strings": {"buffer_records": kinds, "marker_api": [{"key": 90, "value": "step_0"}, {"key": 91, "value": "mark"}]},
        "kernel_symbols": [{"kernel_id": number, "kernel_name": f"{name}.kd", "formatted_kernel_name": name}
                           for number, name in KERNELS.items()],
        "buffer_records": dict(records),
    }  # fmt: skip
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))
    return path


def write_database(path: Path, records: Mapping[str, list[dict[str, Any]]], later: bool = False) -> Path:
    """The same as a database; later schemata keep times and tracks in tables of their own."""
    tables = _rows(records)
    if later:
        tables = _normalised(tables)
    with closing(sqlite3.connect(path)) as connection:
        for table, rows in tables.items():
            name = f"{table}_00aa_11bb"
            columns = list(dict.fromkeys(column for row in rows or [{"id": 0}] for column in row))
            connection.execute(f'CREATE TABLE "{name}" ({", ".join(f"{column!r}" for column in columns)})')
            holders = ", ".join("?" * len(columns))
            values = [[row.get(column) for column in columns] for row in rows]
            connection.executemany(f'INSERT INTO "{name}" VALUES ({holders})', values)
        connection.commit()
    return path


def _rows(records: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    texts = {"step_0", "mark", *(text for kind, names in OPERATIONS.values() for text in (kind, *names))}
    ids = {text: number for number, text in enumerate(sorted(texts), 1)}
    messages = {90: "step_0", 91: "mark"}
    events: list[dict[str, Any]] = []

    def event(row: Mapping[str, Any]) -> int:
        correlation = row["correlation_id"]["internal"]
        extra = {"message": messages[correlation]} if row["kind"] == MARKER else {}
        events.append({"id": len(events) + 1, "category_id": ids[OPERATIONS[row["kind"]][0]], "stack_id": correlation,
                       "correlation_id": 0, "extdata": json.dumps(extra)})  # fmt: skip
        return len(events)

    def timed(row: Mapping[str, Any]) -> dict[str, Any]:
        return {"start": row["start_timestamp"], "end": row["end_timestamp"], "pid": 55, "tid": row["thread_id"],
                "event_id": event(row), "name_id": ids[OPERATIONS[row["kind"]][1][row["operation"]]]}  # fmt: skip

    def dispatch(row: Mapping[str, Any]) -> dict[str, Any]:
        info = row["dispatch_info"]
        sizes = {f"{what}_{axis}": info[what][axis] for what in ("grid_size", "workgroup_size") for axis in "xyz"}
        return timed(row) | sizes | {"agent_id": info["agent_id"]["handle"], "kernel_id": info["kernel_id"],
                                     "queue_id": 9, "stream_id": row["stream_id"]["handle"]}  # fmt: skip

    def copied(row: Mapping[str, Any]) -> dict[str, Any]:
        return timed(row) | {"src_agent_id": row["src_agent_id"]["handle"], "dst_agent_id": row["dst_agent_id"]["handle"],
                             "size": row["bytes"], "stream_id": 3}  # fmt: skip

    regions = [timed(row) for name in ("hip_api", "marker_api", "rccl_api") for row in records[name]]
    return {
        "rocpd_kernel_dispatch": [dispatch(row) for row in records["kernel_dispatch"]],
        "rocpd_memory_copy": [copied(row) for row in records["memory_copy"]],
        "rocpd_region": regions,
        "rocpd_event": events,
        "rocpd_string": [{"id": number, "string": text} for text, number in ids.items()],
        "rocpd_info_process": [{"pid": 55, "init": 10, "fini": 2000, "command": SECRET, "environment": SECRET}],
        "rocpd_info_agent": [{"id": CPU_AGENT, "pid": 55, "type": "CPU", "type_index": 0, "product_name": "CPU"},
                             *({"id": agent, "pid": 55, "type": "GPU", "type_index": number,
                                "product_name": "AMD Instinct MI300X"}
                               for number, agent in enumerate((FIRST_GPU, SECOND_GPU)))],
        "rocpd_info_kernel_symbol": [{"id": number, "kernel_name": f"{name}.kd", "display_name": name}
                                     for number, name in KERNELS.items()],
    }  # fmt: skip


_TRACK = ("pid", "tid", "agent_id", "queue_id", "stream_id")


def _normalised(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    stamps: dict[int, int] = {}
    tracks: dict[tuple[Any, ...], int] = {}

    def moved(row: dict[str, Any]) -> dict[str, Any]:
        times = {f"{name}_id": stamps.setdefault(row[name], len(stamps) + 1) for name in ("start", "end")}
        track = tracks.setdefault(tuple(row.get(name) for name in _TRACK), len(tracks) + 1)
        return (
            {name: value for name, value in row.items() if name not in ("start", "end", *_TRACK)}
            | times
            | {"track_id": track}
        )

    timed = ("rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region")
    names = {row["id"]: row["string"] for row in tables["rocpd_string"]}
    categories = _categories(names, tables["rocpd_event"])
    made = {name: [moved(row) for row in rows] if name in timed else rows for name, rows in tables.items()}
    return made | {
        "rocpd_timestamp": [{"id": number, "value": value} for value, number in stamps.items()],
        "rocpd_track": [dict(zip(_TRACK, track, strict=True)) | {"id": number} for track, number in tracks.items()],
        "rocpd_info_category": categories,
    }


def _categories(names: Mapping[int, str], events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Categories have numbers of their own there: here 1000 more than the string's."""
    used = sorted({event["category_id"] for event in events})
    for event in events:
        event["category_id"] += 1000
    return [{"id": number + 1000, "name": names[number]} for number in used]
