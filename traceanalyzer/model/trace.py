"""A rank's trace and the window that is looked at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import overload

import numpy as np
import pandas as pd

from traceanalyzer.errors import UsageError
from traceanalyzer.kinds import KindRules
from traceanalyzer.model.schema import NONE, TABLES
from traceanalyzer.model.tables import array_of
from traceanalyzer.validation import shown

# The GPU time of a rank that is looked at: the whole capture, or stretches of it.


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


def whole_capture(gpu_ops: pd.DataFrame) -> Window:
    """First start to last end of the rank's GPU operations; empty at 0 without any."""
    if gpu_ops.empty:
        return Window(((0, 0),), "no GPU operations")
    return Window(
        ((int(array_of(gpu_ops, "start_ns").min()), int(array_of(gpu_ops, "end_ns").max())),), "whole capture"
    )


# What a trace is once it is read: frozen types around pandas tables.


LARGE = 200_000
"""Events of a rank whose tables take tens of megabytes."""


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
    multiprocessors: int | None = None
    """Of the GPU, or of the slice of it that the process has."""
    devices_seen: int | None = None
    """GPUs that the process saw, whether it used them or not."""
    host: str | None = None
    process: int | None = None
    trace_id: str | None = None
    groups: tuple[ProcessGroup, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    capture_start_ns: int | None = None
    capture_end_ns: int | None = None
    is_host_only: bool = False
    """The capture has no GPU work: what there is to say is of the host."""
    has_api_calls: bool = False
    """It has no GPU work, and calls of the GPU's API: the profiler did not record the GPU."""
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
    def is_large(self) -> bool:
        """Whether its tables take tens of megabytes."""
        return len(self.host_ops) + len(self.gpu_ops) > LARGE

    @property
    def launch(self) -> np.ndarray:
        """For each `gpu_ops` row the row in `api_calls` of the call that launched it; -1 for none."""
        return array_of(self.gpu_ops, "launch")

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
        """Event table by its name in `TABLES`.

        Raises:
            UsageError: none has that name.
        """
        if name not in TABLES:
            raise UsageError(f"no table is called {shown(name)}; there are {', '.join(TABLES)}")
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
    """The ranks of one run, in memory, in order of rank; `unprofiled_step_ns` is what the caller of `load` gave."""

    label: str
    ranks: tuple[RankTrace, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    unprofiled_step_ns: int | None = None

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
        texts = [*self.notes, *(f"{item.what}: {item.why}" for item in self.skipped)]
        notes = "".join(f"<p>{escape(text)}</p>" for text in texts)
        return f"<p>{escape(self.label)}</p>{pd.DataFrame(rows).to_html(index=False, na_rep='')}{notes}"
