"""One rank's part of the job's graph: its operations, its host's stretches of work, and what waits for what."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from traceanalyzer.model.aside import laid_aside
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

MEMORY = "memory_ns"
"""A column of `Piece.host`."""

SOURCE = 0
"""The node that stands for what happened before the capture: always reached at time 0."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One rank's operations and host, as parallel columns; times are on the rank's own clock.

    Attributes:
        ops: GPU operations, stream by stream, each in order of start: `row` (in `gpu_ops`), `stream`, `start_ns`,
            `duration_ns`, `kind`, `name`, `work` (`same_work`), `operator`, its `shapes`, `phase`, `step` (number, -1
            for none), `call` (position among the rank's communication operations, -1 for none), `collective`, `launch`
            (row in `host`, -1: none), `loop` (of which it is a later turn), `is_ring` (a message that goes round
            between attention kernels).
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
        denied: waits that calls would tell and times contradict, as `waits`.
        blocks: a segment begins when an operation has ended: `op`, `segment`, `is_own` (the copy that the call made).
        meetings: collectives of the CPU that the host takes part in: `step`, `name`, `start_ns`, `end_ns`, `begins`
            (the segment that begins where it does), `segment` (the one that begins when the host has waited for it, -1:
            it did not), `instance` (the same number on all ranks that meet, once pieces are joined).
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
    denied: pd.DataFrame
    steps: pd.DataFrame
    why_no_host: str = field(default="", kw_only=True)

    def __len__(self) -> int:
        return len(self.ops)

    def laid_aside(self) -> "Piece":
        """The same with large tables in files: from when it is made until all ranks' are put together."""
        return replace(self, ops=laid_aside(self.ops), host=laid_aside(self.host), waits=laid_aside(self.waits))

    @property
    def segment_of_op(self) -> np.ndarray:
        """The segment in which each operation was launched; -1 for none."""
        segment: np.ndarray = np.append(array_of(self.host, "segment"), NONE)[array_of(self.ops, "launch")]
        return segment

    @property
    def begins_stream(self) -> np.ndarray:
        """Operations that are the first of their stream."""
        stream = array_of(self.ops, "stream")
        begins: np.ndarray = np.append(True, stream[1:] != stream[:-1])[: len(stream)]
        return begins
