"""What a trace is once it is read: frozen types around pandas tables, and the columns of every table.

All times are int64 nanoseconds. A column that points at a row of another table holds its position, or -1
where there is none; a *quantity* that is not known is `NA`, never 0 or -1. Names are categoricals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import pandas as pd

from traceanalyzer.kinds import ACTIVITIES, KINDS

NONE = -1
"""Row position that means "there is none"."""

_CATEGORY, _NS, _INT, _MAYBE_INT = "category", "int64", "int64", "Int64"

GPU_OPS: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": _NS,
        "end_ns": _NS,
        "name": _CATEGORY,
        "kind": _CATEGORY,  # kinds.KINDS
        "activity": _CATEGORY,  # kinds.ACTIVITIES
        "stream": _INT,
        "correlation": _INT,
        "launch": _INT,  # row in api_calls
        "bytes": _MAYBE_INT,  # of a copy or memset
        "direction": _CATEGORY,  # of a copy: HtoD, DtoH, DtoD, PtoP, HtoH
        "source_memory": _CATEGORY,  # pinned, pageable, device, managed
        "target_memory": _CATEGORY,
        "peer_device": _MAYBE_INT,  # the other GPU of a PtoP copy
        "grid": _CATEGORY,  # "24x1x1"
        "block": _CATEGORY,
        "graph_node": _MAYBE_INT,
    }
)
"""Kernels, copies and memsets of one rank, sorted by start."""

API_CALLS: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": _NS,
        "end_ns": _NS,
        "name": _CATEGORY,
        "thread": _INT,
        "correlation": _INT,
        "has_gpu_op": "bool",  # a GPU operation of the process has its correlation id, on whatever GPU
    }
)
"""CUDA runtime and driver calls of the rank's process, launches among them, sorted by start."""

HOST_OPS: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": _NS,
        "end_ns": _NS,
        "name": _CATEGORY,
        "thread": _INT,
        "external_id": _INT,
        "sequence": _MAYBE_INT,  # autograd's sequence number, joins forward and backward
        "forward_thread": _MAYBE_INT,  # not 0/NA on operators that autograd runs
        "shapes": _CATEGORY,  # JSON text as recorded: "[[8,512],[]]"
        "strides": _CATEGORY,  # of the same arguments, in elements: "[[512,1],[]]"
        "dtypes": _CATEGORY,
        "arguments": _CATEGORY,  # JSON text of the values, of attention and convolution only: strides, is_causal
    }
)
"""CPU operators, sorted by start."""

RANGES: Mapping[str, str] = MappingProxyType(
    {"start_ns": _NS, "end_ns": _NS, "name": _CATEGORY, "thread": _INT, "domain": _CATEGORY}
)
"""The user's ranges on the host (`record_function`, NVTX push/pop and start/end), sorted by start."""

FRAMES: Mapping[str, str] = MappingProxyType({"start_ns": _NS, "end_ns": _NS, "name": _CATEGORY, "thread": _INT})
"""Python frames, sorted by start: `nn.Module: Linear_0` and `file.py(12): function`, without built-in functions."""

COMM_ARGS: Mapping[str, str] = MappingProxyType(
    {
        "gpu_op": _INT,  # row in gpu_ops when the kernel itself carries the arguments, else -1
        "start_ns": _NS,  # of the host operation; of the kernel when `gpu_op` is set
        "end_ns": _NS,
        "thread": _INT,
        "external_id": _INT,
        "collective": _CATEGORY,  # kinds.collective
        "group": _CATEGORY,  # process group (nsys: communicator)
        "group_description": _CATEGORY,
        "group_ranks": _CATEGORY,  # "0,1"
        "group_size": _MAYBE_INT,
        "dtype": _CATEGORY,
        "in_elements": _MAYBE_INT,
        "out_elements": _MAYBE_INT,
        "in_split": _CATEGORY,  # "6144,2048"
        "out_split": _CATEGORY,
        "sequence": _MAYBE_INT,  # NCCL's number of the call within its group
        "root": _MAYBE_INT,  # of a rooted collective
        "peer": _MAYBE_INT,  # of send and recv
        "size_bytes": _MAYBE_INT,  # where the trace says bytes instead of elements (nsys payloads)
    }
)
"""Arguments of communication operations, from kernels and from the host operations that launched them."""

STREAM_WAITS: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": _NS,  # of the host call
        "end_ns": _NS,
        "stream": _INT,  # that waits: with what is launched on it from then on
        "source_stream": _MAYBE_INT,  # that the event was recorded on; NA when the trace does not say
        "record_correlation": _INT,  # of the call that recorded the event
        "record": _INT,  # row of that call in api_calls
    }
)
"""Calls that make a stream wait for an event (`cudaStreamWaitEvent`), sorted by start; empty when not recorded."""

COUNTERS: Mapping[str, str] = MappingProxyType({"time_ns": _NS, "name": _CATEGORY, "value": "float64"})
"""Sampled quantities: `memory_allocated_bytes`, `memory_reserved_bytes`, GPU metrics."""

TABLES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "gpu_ops": GPU_OPS,
        "api_calls": API_CALLS,
        "host_ops": HOST_OPS,
        "ranges": RANGES,
        "frames": FRAMES,
        "comm_args": COMM_ARGS,
        "stream_waits": STREAM_WAITS,
        "counters": COUNTERS,
    }
)
"""Every event table of a `RankTrace`, by field name."""

STEPS: Mapping[str, str] = MappingProxyType(
    {
        "step": _INT,  # the number in its name, else its ordinal
        "name": _CATEGORY,
        "host_start_ns": _NS,
        "host_end_ns": _NS,
        "start_ns": _MAYBE_INT,  # GPU window; NA when the step launched nothing that was recorded
        "end_ns": _MAYBE_INT,
        "is_open": "bool",  # the last step: its window ends with its last operation
        "is_partial": "bool",  # cut by the capture
    }
)
"""Steps of one rank in order, as `selection` finds them."""

_FIXED_CATEGORIES = {"kind": KINDS, "activity": ACTIVITIES}


def printable(text: str) -> str:
    """`text` with what a terminal or a file of UTF-8 would choke on (control characters, lone bytes) replaced."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A communicator's name, what it is for, and its global ranks."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankMeta:
    """What is known of a rank besides its events; `None` where the trace does not say."""

    rank: int
    rank_source: str
    """Where the rank's number comes from: `distributedInfo`, `path`, `file order`, `NCCL payload`, …"""
    files: tuple[str, ...]
    format: str
    """`kineto` or `nsys`."""
    world_size: int | None = None
    device: int | None = None
    device_name: str | None = None
    host: str | None = None
    process: int | None = None
    trace_id: str | None = None
    groups: tuple[ProcessGroup, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    capture_start_ns: int | None = None
    capture_end_ns: int | None = None
    is_truncated: bool = False
    events_skipped: int = 0
    """Events that could not be decoded."""
    events_dropped: int = 0
    """Events that the profiler says it lost."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures must know: one sentence each."""


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch of GPU time that is looked at, and its name for people."""

    start_ns: int
    end_ns: int
    label: str
    steps: tuple[int, ...] | None = None
    """Selected steps; `None` when the whole capture is looked at."""

    @property
    def length_ns(self) -> int:
        """End minus start."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One rank's events: one (process, device) of the job.

    The tables have the columns of `TABLES`; `steps` those of `STEPS`. `op_step[i]` is the row in `steps` of `gpu_ops`
    row i, or -1.
    """

    meta: RankMeta
    gpu_ops: pd.DataFrame
    api_calls: pd.DataFrame
    host_ops: pd.DataFrame
    ranges: pd.DataFrame
    frames: pd.DataFrame
    comm_args: pd.DataFrame
    stream_waits: pd.DataFrame
    counters: pd.DataFrame
    steps: pd.DataFrame
    op_step: np.ndarray
    window: Window

    @property
    def rank(self) -> int:
        """Global rank."""
        return self.meta.rank

    @property
    def counted(self) -> np.ndarray:
        """Mask of the `gpu_ops` rows that are counted: all, or those of the selected steps."""
        if self.window.steps is None:
            return np.ones(len(self.gpu_ops), dtype=bool)
        selected = np.flatnonzero(self.steps["step"].isin(self.window.steps).to_numpy())
        return np.isin(self.op_step, selected)

    def table(self, name: str) -> pd.DataFrame:
        """Event table by its name in `TABLES`."""
        frame: pd.DataFrame = getattr(self, name)
        return frame

    def renumbered(self, rank: int, source: str) -> "RankTrace":
        """The same events as another rank's, when the number is decided outside the file."""
        return replace(self, meta=replace(self.meta, rank=rank, rank_source=source))


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, rank or part of the input that was left out, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class TraceSet:
    """The ranks of one run, in memory, in order of rank."""

    label: str
    ranks: tuple[RankTrace, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        numbers = ", ".join(str(trace.rank) for trace in self.ranks)
        return f"TraceSet({self.label!r}, ranks {numbers})"


def make_trace(meta: RankMeta, *, process_ops: pd.Series | None = None, **tables: pd.DataFrame) -> RankTrace:
    """A `RankTrace` of the whole capture without steps; tables that are not given are empty.

    Each table is brought to its schema and sorted by time. `gpu_ops.launch` and `stream_waits.record` are found here by
    correlation, and `comm_args.gpu_op` must refer to the order in which `gpu_ops` is given.

    Args:
        meta: of the rank.
        process_ops: correlation ids of the operations on all GPUs of the rank's process, when it drives several.
        tables: event tables by their names in `TABLES`.
    """
    frames = {name: conform(tables.get(name), schema) for name, schema in TABLES.items()}
    answering = frames["gpu_ops"]["correlation"] if process_ops is None else process_ops
    has_gpu_op = _has_gpu_op(frames["api_calls"]["correlation"], answering)
    frames["api_calls"] = frames["api_calls"].assign(has_gpu_op=has_gpu_op)
    frames["api_calls"] = _by_time(frames["api_calls"])
    frames["host_ops"] = _by_time(frames["host_ops"])
    frames["ranges"] = _by_time(frames["ranges"])
    frames["frames"] = _by_time(frames["frames"])
    frames["counters"] = frames["counters"].sort_values("time_ns", kind="stable", ignore_index=True)
    frames["gpu_ops"], frames["comm_args"] = _sorted_ops(frames["gpu_ops"], frames["comm_args"])
    frames["gpu_ops"] = frames["gpu_ops"].assign(
        launch=launch_rows(frames["gpu_ops"]["correlation"], frames["api_calls"]["correlation"])
    )
    frames["stream_waits"] = _by_time(frames["stream_waits"])
    frames["stream_waits"] = frames["stream_waits"].assign(
        record=launch_rows(frames["stream_waits"]["record_correlation"], frames["api_calls"]["correlation"])
    )
    return RankTrace(
        meta=meta,
        steps=conform(None, STEPS),
        op_step=np.full(len(frames["gpu_ops"]), NONE, dtype=np.int64),
        window=whole_capture(frames["gpu_ops"]),
        **frames,
    )


def whole_capture(gpu_ops: pd.DataFrame) -> Window:
    """First start to last end of the rank's GPU operations; empty at 0 without any."""
    if gpu_ops.empty:
        return Window(0, 0, "no GPU operations")
    return Window(int(gpu_ops["start_ns"].min()), int(gpu_ops["end_ns"].max()), "whole capture")


def conform(frame: pd.DataFrame | None, schema: Mapping[str, str]) -> pd.DataFrame:
    """`frame` with exactly the schema's columns and dtypes, in order; absent columns become NA, -1 or empty."""
    if frame is None:
        frame = pd.DataFrame(index=pd.RangeIndex(0))
    columns = {
        name: _column(frame, name, dtype) if name in frame else _absent(len(frame), name, dtype)
        for name, dtype in schema.items()
    }
    return pd.DataFrame(columns, index=pd.RangeIndex(len(frame)), copy=False)


def launch_rows(correlation: pd.Series, call_correlation: pd.Series) -> np.ndarray:
    """For each GPU operation the row of the host call with its correlation id, -1 where there is none.

    Both belong to one process: correlation ids are unique within a process only. Ids ≤ 0 mean "unknown".
    """
    wanted, known = correlation.to_numpy(), call_correlation.to_numpy()
    if not len(known):
        return np.full(len(wanted), NONE, dtype=np.int64)
    order = np.argsort(known, kind="stable")
    position = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    row = order[position]
    return np.where((known[row] == wanted) & (wanted > 0), row, NONE)


def _has_gpu_op(call_correlation: pd.Series, correlation: pd.Series) -> np.ndarray:
    """Whether a GPU operation has each call's correlation id, which several calls may share. Ids ≤ 0 are unknown."""
    calls = call_correlation.to_numpy()
    found: np.ndarray = (calls > 0) & np.isin(calls, correlation.to_numpy())
    return found


def _column(frame: pd.DataFrame, name: str, dtype: str) -> pd.Series:
    column = frame[name].reset_index(drop=True)
    if name in _FIXED_CATEGORIES:
        return column.astype(pd.CategoricalDtype(list(_FIXED_CATEGORIES[name])))
    return column if str(column.dtype) == dtype else column.astype(dtype)


def _absent(length: int, name: str, dtype: str) -> pd.Series:
    if name in _FIXED_CATEGORIES:
        return pd.Series(pd.Categorical([None] * length, categories=list(_FIXED_CATEGORIES[name])))
    if dtype == _CATEGORY:
        return pd.Series(pd.Categorical([None] * length, categories=pd.Index([], dtype="str")))
    if dtype == _MAYBE_INT:
        return pd.Series(pd.array([pd.NA] * length, dtype=_MAYBE_INT))
    return pd.Series(np.full(length, NONE if dtype == _INT else 0), dtype=dtype)


def _by_time(frame: pd.DataFrame) -> pd.DataFrame:
    # At equal starts the longer comes first, so that a parent precedes its children.
    order = np.lexsort((-frame["end_ns"].to_numpy(), frame["start_ns"].to_numpy()))
    return frame.take(order).reset_index(drop=True)


def _sorted_ops(gpu_ops: pd.DataFrame, comm_args: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    order = np.lexsort((gpu_ops["end_ns"].to_numpy(), gpu_ops["start_ns"].to_numpy()))
    new_row = np.empty(len(order) + 1, dtype=np.int64)
    new_row[order] = np.arange(len(order))
    new_row[NONE] = NONE  # -1 indexes the extra last element
    return (
        gpu_ops.take(order).reset_index(drop=True),
        comm_args.assign(gpu_op=new_row[comm_args["gpu_op"].to_numpy()]),
    )
