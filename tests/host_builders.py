"""Tiny traces with a host side: GPU operations, the calls that launched them, operators and ranges."""

import pandas as pd

from traceanalyzer.analyses.host.cpu_time import HostWork
from traceanalyzer.model import RankMeta, RankTrace, make_trace
from traceanalyzer.selection import Selection, select

KIND = {
    "gemm": "compute",
    "nccl": "comm",
    "HtoD": "copy",
    "DtoH": "copy",
    "HtoH": "copy",
    "PtoP": "comm",
    "memset": "copy",
}


def host_trace(ops=(), calls=(), *, host_ops=(), ranges=(), rank=0, device=0, wanted="all", meta=None) -> RankTrace:
    """A rank from literals.

    Args:
        ops: (name, start, end) or (name, start, end, call number), further (…, stream), (…, memory); a name that
            begins with HtoD, DtoH, HtoH, PtoP or memset is a copy, one that begins with nccl communication.
        calls: (name, start, end) or (name, start, end, thread); numbered from 1 in this order.
        host_ops: (name, start, end, thread) and optionally (sequence, forward thread, shapes, dtypes).
        ranges: (name, start, end) or (name, start, end, thread), further (…, domain).
    """
    tables = {
        "gpu_ops": pd.DataFrame([_op(*op) for op in ops]),
        "api_calls": pd.DataFrame([_call(number, *call) for number, call in enumerate(calls, 1)]),
        "host_ops": pd.DataFrame([_host_op(*op) for op in host_ops]),
        "ranges": pd.DataFrame([_range(*item) for item in ranges]),
    }
    meta = meta or RankMeta(rank, "test", ("test.json",), "kineto", device=device)
    trace = make_trace(meta, **{name: frame for name, frame in tables.items() if len(frame)})
    return select(trace, Selection(steps=wanted))


def _op(name, start, end, call=-1, stream=7, memory="pinned"):
    what = next((known for known in KIND if name.startswith(known)), "gemm")
    is_copy = what in ("HtoD", "DtoH", "PtoP", "HtoH")
    source, target = {
        "HtoD": (memory, "device"),
        "DtoH": ("device", memory),
        "PtoP": ("device", "device"),
        "HtoH": ("pinned", memory),
    }.get(what, (None, None))
    return {
        "start_ns": start, "end_ns": end, "name": name, "kind": KIND[what], "stream": stream, "correlation": call,
        "activity": "memcpy" if is_copy else "memset" if what == "memset" else "kernel",
        "direction": what if is_copy else None, "source_memory": source, "target_memory": target,
        "bytes": (end - start) * 10 if is_copy else None, "peer_device": 1 if what == "PtoP" else None,
    }  # fmt: skip


def _call(number, name, start, end, thread=1):
    return {"start_ns": start, "end_ns": end, "name": name, "thread": thread, "correlation": number}


def _host_op(name, start, end, thread=1, sequence=None, forward_thread=None, shapes=None, dtypes=None):
    return {"start_ns": start, "end_ns": end, "name": name, "thread": thread,
            "sequence": sequence, "forward_thread": forward_thread, "shapes": shapes,
            "dtypes": dtypes}  # fmt: skip


def _range(name, start, end, thread=1, domain=None):
    return {"start_ns": start, "end_ns": end, "name": name, "thread": thread, "domain": domain}


def host_work(rows):
    """That table, of rows (rank, role, name, ms in each of two steps) without GPU work."""
    what = {"collectives": "collective"}
    table = pd.DataFrame(
        [
            {"rank": rank, "role": role, "what": what.get(role, "range"), "name": name, "host_ns": 2_000_000 * ms,
             "steps": 2, "idle_ns": None, "seen_ns": None}
            | dict.fromkeys(("threads", "calls", "launches", "input_bytes"), 0)
            for rank, role, name, ms in rows
        ]
    ).astype({"idle_ns": "Int64", "seen_ns": "Int64"})  # fmt: skip
    return HostWork(table)
