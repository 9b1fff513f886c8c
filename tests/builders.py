"""Tiny traces for tests: literals in, a `RankTrace` or a Kineto file out."""

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from traceanalyzer.model import RankMeta, RankTrace, make_trace
from traceanalyzer.selection import Selection, select

NAMES = {
    "compute": "gemm",
    "comm": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)",
    "copy": "Memcpy HtoD (Pinned -> Device)",
}

Op = tuple[str, int, int] | tuple[str, int, int, int]
"""(kind, start, end) or (kind, start, end, launch time on the host)."""


def rank_trace(ops: Iterable[Op], *, rank: int = 0, steps: Sequence[tuple[int, int]] = (), wanted: str = "all",
               streams: Mapping[str, int] | None = None, world_size: int | None = None) -> RankTrace:  # fmt: skip
    """A rank with these operations; `steps` are host ranges ProfilerStep#0, #1, …"""
    ops = list(ops)
    places = streams or {"compute": 7, "comm": 17, "copy": 7}
    gpu_ops = pd.DataFrame(
        {
            "start_ns": [op[1] for op in ops],
            "end_ns": [op[2] for op in ops],
            "name": [NAMES[op[0]] for op in ops],
            "kind": [op[0] for op in ops],
            "activity": ["memcpy" if op[0] == "copy" else "kernel" for op in ops],
            "stream": [places[op[0]] for op in ops],
            "correlation": [number if len(op) == 4 else -1 for number, op in enumerate(ops, 1)],
        }
    )
    launches = [(number, op[3]) for number, op in enumerate(ops, 1) if len(op) == 4]
    api_calls = pd.DataFrame(
        {
            "start_ns": [time for _, time in launches],
            "end_ns": [time + 1 for _, time in launches],
            "name": "cudaLaunchKernel",
            "thread": 1,
            "correlation": [number for number, _ in launches],
        }
    )
    ranges = pd.DataFrame(
        {
            "start_ns": [start for start, _ in steps],
            "end_ns": [end for _, end in steps],
            "name": [f"ProfilerStep#{number}" for number in range(len(steps))],
            "thread": 1,
        }
    )
    meta = RankMeta(rank, "test", ("test.json",), "kineto", world_size=world_size)
    tables = {"gpu_ops": gpu_ops, "api_calls": api_calls, "ranges": ranges}
    trace = make_trace(meta, **{name: frame for name, frame in tables.items() if len(frame)})
    return select(trace, Selection(steps=wanted))


def kernel(start: float, duration: float, *, name: str = "gemm", stream: int = 7, device: int = 0,
           correlation: int = 0, cat: str = "kernel", **args: Any) -> dict[str, Any]:  # fmt: skip
    """A Kineto GPU event; times in µs."""
    fixed = {"device": device, "stream": stream, "correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "pid": device, "tid": stream, "ts": start, "dur": duration,
            "args": fixed | args}  # fmt: skip


def host(
    start: float, duration: float, *, name: str, cat: str = "cpu_op", thread: int = 1, **args: Any
) -> dict[str, Any]:
    """A Kineto host event; times in µs."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": thread, "ts": start, "dur": duration, "args": args}


def document(events: Sequence[Mapping[str, Any]], *, rank: int | None = None, world_size: int = 2,
             base_ns: int = 0, **more: Any) -> dict[str, Any]:  # fmt: skip
    """A Kineto file's content."""
    head: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": base_ns, **more}
    if rank is not None:
        head["distributedInfo"] = {"rank": rank, "world_size": world_size, "pg_config": []}
    return {**head, "traceEvents": list(events)}


def write(path: Path, content: Any) -> Path:
    """Write a Kineto file: an object, or text as it is; gzip when the name says so."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
