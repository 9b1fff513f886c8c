"""What each CUDA stream of a rank carries: busy time, kinds, bytes, and the role that follows from them."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.names import StreamsColumn
from traceanalyzer.analyses.streams import dependencies, traffic
from traceanalyzer.analyses.streams.dependencies import Dependency
from traceanalyzer.analyses.streams.memory_ops import is_copy
from traceanalyzer.analyses.streams.traffic import CLASSES
from traceanalyzer.analyses.time.breakdown import known_only
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, columns_of, table_of

_NS = tuple(f"{name.replace(' ', '_')}_ns" for name in CLASSES)
_UNKNOWN_NS = _NS[-1]


class Streams(Result[StreamsColumn]):
    """One row for each rank and stream that ran something in the window, busiest first within a rank."""

    title: ClassVar[str] = "Streams"
    keys: ClassVar[tuple[str, ...]] = ("rank", "stream")
    joined_by: ClassVar[tuple[str, ...]] = ("role",)
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "stream": Column.ident("Number in the trace."),
        "role": Column.text(
            "The class that makes up 90 % or more of its operations' time (`mixed` when none does): compute, "
            "communication, upload, download, exchange (copies between GPUs), device memory, unknown (CUDA graphs "
            "that were recorded as one operation each)."
        ),
        "operations": Column.count("GPU operations in the window."),
        "busy_ns": Column.time("Time in which the stream runs something.", leads=True),
        "busy_pct": Column.share("100 · busy / window."),
        "compute_ns": Column.time("Time in which it runs compute kernels.", better=Better.LESS),
        "communication_ns": Column.time("Time in which it runs communication kernels."),
        "upload_ns": Column.time("Time in which it copies from host to device."),
        "download_ns": Column.time("Time in which it copies from device to host."),
        "exchange_ns": Column.time("Time in which it copies between two GPUs."),
        "device_memory_ns": Column.time("Time of memsets and of copies within the GPU."),
        "unknown_ns": Column.time(
            "Time in which it runs CUDA graphs that were recorded as one operation each; with any, the times above are "
            "n/a: the graph may do each of it."
        ),
        "copied_bytes": Column.size("Bytes of its copies and memsets; absent without any, or when one does not say."),
        "dependency_ns": Column.time(
            "Time in which its next operation was launched and the stream was free, but others ran and it "
            "waited for an event of another stream; stretches under 5 µs are left out."
        ),
        "dependency_by": Column.text(
            "`recorded`: the capture has the events that streams waited for; `inferred`: it has none, and "
            "all such time counts; `partly inferred`: some of its waits name no event.",
            is_secondary=True,
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        known = [name for name in _NS if name != _UNKNOWN_NS]
        table = known_only(table, table[_UNKNOWN_NS], known)
        return self._with(table, {"busy_pct": percent(table["busy_ns"], table["window_ns"])})


def per_rank(trace: RankTrace, stream_role_pct: float = 90) -> pd.DataFrame:
    """The rank's operations by stream, clipped to its window."""
    ops = trace.gpu_ops
    if ops.empty:
        return pd.DataFrame()
    starts, ends, stream = (array_of(ops, name) for name in ("start_ns", "end_ns", "stream"))
    is_inside = trace.window.touched(starts, ends) != NONE
    waited = dependencies.of_streams(trace)
    rows = [_row(trace, number, is_inside & (stream == number), stream_role_pct, waited[number]) for number in waited]
    held = sorted((row for row in rows if row["operations"]), key=lambda row: -row["busy_ns"])
    if not held:
        return pd.DataFrame()
    columns = {name: [row[name] for row in held] for name in held[0]}
    return table_of(columns | {"copied_bytes": pd.array(columns["copied_bytes"], dtype="Int64")})


def across(parts: Mapping[int, pd.DataFrame]) -> Streams:
    """The ranks' rows under each other."""
    return Streams(stack(parts, (*Streams.columns, "window_ns")))


def _row(trace: RankTrace, stream: int, inside: np.ndarray, role_pct: float, dependency: Dependency) -> dict[str, Any]:
    ops, rows = columns_of(trace.gpu_ops), np.flatnonzero(inside)
    starts, ends = ops["start_ns"][rows], ops["end_ns"][rows]
    unions = traffic.unions(starts, ends, traffic.op_classes(trace)[rows])
    times = [own.inside(trace.window).total_ns for own in unions.values()]
    moved = ops["bytes"][inside & is_copy(trace.gpu_ops)]
    return {
        "stream": stream,
        "role": _role(times, role_pct),
        "operations": len(rows),
        "busy_ns": Intervals.of(starts, ends).inside(trace.window).total_ns,
        **dict(zip(_NS, times, strict=True)),
        "copied_bytes": int(moved.sum()) if len(moved) and not moved.isna().any() else None,
        "dependency_ns": dependency.time_ns,
        "dependency_by": dependency.known_by,
        "window_ns": trace.window.length_ns,
    }


def _role(times: list[int], role_pct: float) -> str:
    largest = int(np.argmax(times))
    return CLASSES[largest] if 100 * times[largest] >= role_pct * sum(times) else "mixed"
