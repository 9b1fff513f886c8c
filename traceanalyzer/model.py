"""What a trace is once it is read: frozen types around pandas tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import overload

import numpy as np
import pandas as pd

from traceanalyzer.errors import UsageError
from traceanalyzer.kinds import KindRules
from traceanalyzer.model.copy_engine import with_copied_collectives
from traceanalyzer.model.event_times import possible
from traceanalyzer.model.schema import NONE, STEPS, TABLES, conform, legible, named, printable


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
    """`kineto`, `nsys`, `rocprofv3` or `xplane`."""
    world_size: int | None = None
    device: int | None = None
    device_name: str | None = None
    device_bytes: int | None = None
    """Memory of the GPU."""
    host: str | None = None
    process: int | None = None
    trace_id: str | None = None
    groups: tuple[ProcessGroup, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    capture_start_ns: int | None = None
    capture_end_ns: int | None = None
    is_host_only: bool = False
    """The capture has no GPU work: what there is to say is of the host."""
    is_truncated: bool = False
    events_skipped: int = 0
    """Events that could not be decoded, or whose times cannot be."""
    events_backwards: int = 0
    """Events that ended before they started; they count as taking no time."""
    events_dropped: int = 0
    """Events that the profiler says it lost."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures must know: one sentence each."""
    kind_rules: KindRules = field(default_factory=KindRules)
    """The user's rules for kinds, under which the trace was read."""


@dataclass(frozen=True, slots=True)
class Window:
    """The GPU time that is looked at, and its name for people."""

    stretches: tuple[tuple[int, int], ...]
    """Disjoint [start, end), in order: one, or several when the steps looked at do not follow each other."""
    label: str
    steps: tuple[int, ...] | None = None
    """Selected steps; `None` when the whole capture is looked at."""

    @property
    def start_ns(self) -> int:
        """Start of the first stretch."""
        return self.stretches[0][0]

    @property
    def end_ns(self) -> int:
        """End of the last stretch."""
        return self.stretches[-1][1]

    @property
    def starts(self) -> np.ndarray:
        """Start of each stretch."""
        return np.array([start for start, _ in self.stretches], dtype=np.int64)

    @property
    def ends(self) -> np.ndarray:
        """End of each stretch."""
        return np.array([end for _, end in self.stretches], dtype=np.int64)

    @property
    def length_ns(self) -> int:
        """Sum of the stretches."""
        return sum(end - start for start, end in self.stretches)

    def holds(self, times: np.ndarray) -> np.ndarray:
        """Mask of the times that lie in a stretch."""
        row = np.searchsorted(self.starts, times, side="right") - 1
        held: np.ndarray = (row >= 0) & (times < self.ends[row])
        return held

    def touched(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """For each interval the first stretch that it reaches into; -1 when it reaches into none."""
        row = np.searchsorted(self.ends, starts, side="right")
        begins = np.append(self.starts, np.iinfo(np.int64).max)[row]
        return np.where(begins < ends, row, NONE)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class RankTrace:
    """One rank's events: one (process, device) of the job. A trace equals itself alone.

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

    def __repr__(self) -> str:
        events = f"{len(self.gpu_ops):,} GPU operations, {len(self.host_ops):,} host operators"
        return f"RankTrace(rank {self.rank}, {self.window.label}, {len(self.steps)} steps, {events})"

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

    def __len__(self) -> int:
        return len(self.ranks)

    def __iter__(self) -> Iterator[RankTrace]:
        return iter(self.ranks)

    @overload
    def __getitem__(self, place: int) -> RankTrace: ...
    @overload
    def __getitem__(self, place: slice) -> "TraceSet": ...
    def __getitem__(self, place: int | slice) -> "RankTrace | TraceSet":
        """The trace at a place in order of rank (`of_rank` finds one by its rank), or several as a TraceSet."""
        return replace(self, ranks=self.ranks[place]) if isinstance(place, slice) else self.ranks[place]

    def of_rank(self, rank: int) -> RankTrace:
        """The trace of a global rank.

        Raises:
            UsageError: it is not among these.
        """
        for trace in self.ranks:
            if trace.rank == rank:
                return trace
        raise UsageError(f"rank {rank} is not among these; there are {', '.join(str(one.rank) for one in self.ranks)}")

    def __repr__(self) -> str:
        numbers = ", ".join(str(trace.rank) for trace in self.ranks)
        return f"TraceSet({self.label!r}, ranks {numbers})"

    def _repr_html_(self) -> str:
        rows = [
            {
                "rank": trace.rank,
                "format": trace.meta.format,
                "device": trace.meta.device_name,
                "looked at": trace.window.label,
                "steps": len(trace.steps),
                "gpu_ops": len(trace.gpu_ops),
                "files": ", ".join(trace.meta.files),
            }
            for trace in self.ranks
        ]
        said = [*self.notes, *(f"{item.what}: {item.why}" for item in self.skipped)]
        notes = "".join(f"<p>{escape(text)}</p>" for text in said)
        return f"<p>{escape(self.label)}</p>{pd.DataFrame(rows).to_html(index=False, na_rep='')}{notes}"


def make_trace(meta: RankMeta, *, process_ops: pd.Series | None = None, **tables: pd.DataFrame) -> RankTrace:
    """A `RankTrace` of the whole capture without steps; tables that are not given are empty.

    Each table is brought to its schema and sorted by time. `gpu_ops.launch` and `stream_waits.record` are found here by
    correlation, and `comm_args.gpu_op` must refer to the order in which `gpu_ops` is given.

    Args:
        meta: of the rank.
        process_ops: correlation ids of the operations on all GPUs of the rank's process, when it drives several.
        tables: event tables by their names in `TABLES`.
    """
    found = possible({name: conform(tables.get(name), schema) for name, schema in TABLES.items()})
    frames = {name: legible(frame) for name, frame in found.frames.items()}
    frames = {name: named(frame) if "name" in frame else frame for name, frame in frames.items()}
    meta = _legible(meta)
    if found.left_out or found.backwards:
        skipped, backwards = meta.events_skipped + found.left_out, meta.events_backwards + found.backwards
        meta = replace(meta, events_skipped=skipped, events_backwards=backwards)
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
    parts = (frames[name] for name in ("gpu_ops", "api_calls", "host_ops", "comm_args"))
    frames["gpu_ops"] = with_copied_collectives(*parts)
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


def _legible(meta: RankMeta) -> RankMeta:
    """What the trace says of itself, in printable texts."""
    return replace(
        meta,
        host=meta.host and printable(meta.host),
        device_name=meta.device_name and printable(meta.device_name),
        trace_id=meta.trace_id and printable(meta.trace_id),
        versions={printable(name): printable(version) for name, version in meta.versions.items()},
        groups=tuple(
            ProcessGroup(printable(group.name), printable(group.description), group.ranks) for group in meta.groups
        ),
    )


def whole_capture(gpu_ops: pd.DataFrame) -> Window:
    """First start to last end of the rank's GPU operations; empty at 0 without any."""
    if gpu_ops.empty:
        return Window(((0, 0),), "no GPU operations")
    return Window(((int(gpu_ops["start_ns"].min()), int(gpu_ops["end_ns"].max())),), "whole capture")


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
