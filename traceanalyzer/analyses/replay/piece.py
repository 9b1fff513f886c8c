"""One rank's part of the job's graph: operations, CPU chain, waits between streams; and what explains each start."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.meaning.vocabulary import DATA, LAUNCH_NS, SHORT_NS
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, spilled, table_of

MEMORY = "memory_ns"
"""A column of `Piece.host`."""

SOURCE = 0
"""The node that stands for what happened before the capture: always reached at time 0."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One rank's operations and host, as parallel columns; times are on the rank's own clock.

    Attributes:
        ops: GPU operations, stream by stream, each in order of start: `row` (in `gpu_ops`), `stream`, `start_ns`,
            `duration_ns`, `kind`, `name`, `work` (`same_work`; of communication its collective, size and group),
            `operator`, its `autograd` pass and `shapes`, `phase`, `step` (number, -1 for none), `call` (position among
            the rank's communication operations, -1 for none), `collective`, its `group_ranks`, `launch` (row in `host`,
            -1: none), `loop` (of which it is a later turn), `is_ring` (a message that goes round between attention
            kernels).
        host: the host's stretches of work in order: `segment`, `ns` (length), `data_ns` (of that in the data
            loader), `memory_ns` (in calls that take GPU memory or give it back), `recorded` (operators and calls that
            the profiler wrote down in it), `takes_up` (of one that waits for workers' batch, how many up to it:
            `stretches_taken_up`; else 0), `step`, `operator` (around the launch that ends it), `loop` (of that),
            `is_launch`. A stretch ends with a launch, or with the call that ends its segment.
        segments: the host between two blocking calls: `begin_ns`, `before` (the segment that its call ends, -1 for the
            first of a chain), `own_ns` (what the call takes when nothing is left to wait for), `step` (in which it
            returns), `call` (its name).
        waits: an operation waits for one of another stream: `source`, `target` (rows of `ops`), `is_recorded`,
            `is_touching` (inferred from one's end and the other's start).
        blocks: a segment begins when an operation has ended: `op`, `segment`, `is_own` (the copy that the call made).
        meetings: collectives of the CPU that the host takes part in: `step`, `name`, `start_ns`, `end_ns`, `begins`
            (the segment that begins where it does), `segment` (the one that begins when the host has waited for it, -1:
            it did not).
        steps: `step`, `begin_ns` (when the host begins it), `is_paused` (recording paused after it); without any one
            of number -1 that begins with the first operation.
        why_no_host: why there is no host side; empty when there is one.
    """

    ops: pd.DataFrame
    host: pd.DataFrame
    segments: pd.DataFrame
    waits: pd.DataFrame
    blocks: pd.DataFrame
    meetings: pd.DataFrame
    steps: pd.DataFrame
    why_no_host: str = field(default="", kw_only=True)

    def __len__(self) -> int:
        return len(self.ops)

    def spilled(self) -> "Piece":
        """The same with large tables in files: from when it is made until all ranks' are put together."""
        return replace(self, ops=spilled(self.ops), host=spilled(self.host), waits=spilled(self.waits))

    @property
    def segment_of_op(self) -> np.ndarray:
        """The segment in which each operation was launched; -1 for none."""
        segment: np.ndarray = np.append(array_of(self.host, "segment"), NONE)[array_of(self.ops, "launch")]
        return segment

    @property
    def ends_ns(self) -> np.ndarray:
        """When each operation ends."""
        return array_of(self.ops, "start_ns") + array_of(self.ops, "duration_ns")

    @property
    def begins_stream(self) -> np.ndarray:
        """Operations that are the first of their stream."""
        stream = array_of(self.ops, "stream")
        begins: np.ndarray = np.append(True, stream[1:] != stream[:-1])[: len(stream)]
        return begins


# What of each operation's start its known reasons explain: launch latency, turnaround, and the lag that is left.


LATENCY_NS = 20_000
"""From a launching call to its operation, or from an operation to the return of a call that waits for it.

At most, with nothing else to wait for.
"""

NEVER = int(np.iinfo(np.int64).min) // 8
"""Long before any recorded time; the weight of an edge that a change has taken away."""


class Explained(Struct, frozen=True):
    """For each operation: from the end before it in its stream, from its launch, from each wait's source, to its start.

    Attributes:
        turnaround_ns: after the operation before it in its stream.
        latency_ns: after its launching call's start.
        wait_ns: for each row of `waits`, after its source's end.
        lag_ns: what is left when the latest of these had come.
        release_ns: recorded start of operations that nothing recorded comes before or explains, else -1.
    """

    turnaround_ns: np.ndarray
    latency_ns: np.ndarray
    wait_ns: np.ndarray
    lag_ns: np.ndarray
    release_ns: np.ndarray


def explained(piece: Piece) -> Explained:
    """Delays are as recorded where they decide, up to a limit, and the rank's median where something else decides."""
    ops = piece.ops
    starts, ends = array_of(ops, "start_ns"), piece.ends_ns
    previous = np.where(piece.begins_stream, NEVER, np.append(0, ends[:-1])[: len(ends)])
    launched = launch_times(piece)
    source, target = array_of(piece.waits, "source"), array_of(piece.waits, "target")
    reached = np.full(len(ops), NEVER)
    np.maximum.at(reached, target, ends[source])
    after, since = starts - previous, starts - launched
    queued = launched + SHORT_NS < np.maximum(previous, reached)
    turnaround = _median(after[queued & (after >= 0) & (after < SHORT_NS)], 0)
    free = (launched > np.maximum(previous, reached)) & (since >= 0) & (since < LATENCY_NS)
    latency = _median(since[free], SHORT_NS)
    by_launch = launched + latency > np.maximum(previous, reached)
    by_wait = ~by_launch & (reached > previous)
    turnarounds = np.minimum(after, np.where(by_launch | by_wait, turnaround, SHORT_NS))
    latencies = np.minimum(since, np.where(by_launch, LATENCY_NS, latency))
    waits = np.minimum(starts[target] - ends[source], np.where(by_wait[target], SHORT_NS, turnaround))
    ready = np.maximum(previous + turnarounds, launched + latencies)
    np.maximum.at(ready, target, ends[source] + waits)
    # What was launched before the capture, and began late for no reason, was launched late: nothing moves that.
    is_untold = (array_of(ops, "launch") == NONE) & (starts - ready > LAUNCH_NS) & (not piece.why_no_host)
    has_reason = (ready > NEVER // 2) & ~is_untold
    return Explained(turnarounds, latencies, waits, np.where(has_reason, starts - ready, 0),
                     np.where(has_reason, NONE, starts))  # fmt: skip


def launch_times(piece: Piece) -> np.ndarray:
    """Recorded start of each operation's launching call; long ago for none."""
    host = piece.host
    begins = array_of(piece.segments, "begin_ns")
    times = begins[array_of(host, "segment")] + offsets(array_of(host, "segment"), array_of(host, "ns"))
    launched: np.ndarray = np.append(times, NEVER)[array_of(piece.ops, "launch")]
    return launched


def offsets(segment: np.ndarray, ns: np.ndarray) -> np.ndarray:
    """For each stretch of the host its end since its segment's begin; segments are in order."""
    first = np.flatnonzero(np.append(True, segment[1:] != segment[:-1])[: len(segment)])
    total = np.cumsum(ns)
    before = total[first] - ns[first]
    found: np.ndarray = total - np.repeat(before, np.diff(np.append(first, len(segment))))
    return found


def _median(values: np.ndarray, default: int) -> int:
    return int(np.median(values)) if len(values) else default


def no_hosts() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """`Piece.host`, `segments`, `blocks` and `meetings` of a capture without a host's side."""
    integers = (
        ("segment", "ns", DATA.column, MEMORY, "recorded", "takes_up", "step"),
        ("begin_ns", "before", "own_ns", "step"),
        ("op", "segment"),
        ("step", "begins", "segment", "start_ns", "end_ns"),
    )
    host, segments, blocks, meetings = (
        table_of({name: np.empty(0, dtype=np.int64) for name in names}) for names in integers
    )
    text = pd.Series(dtype="str")
    return (
        host.assign(is_launch=False), segments.assign(call=text), blocks.assign(is_own=False),
        meetings.assign(name=text),
    )  # fmt: skip
