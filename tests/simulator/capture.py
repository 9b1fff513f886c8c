"""What a profiler records of a run: windows that cut, clocks that differ, events that are lost."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulator.engine import GpuOp, HostEvent, Run


@dataclass(frozen=True)
class Capture:
    """How a run is recorded; times are true ns, by rank.

    Attributes:
        start_ns: recording begins: earlier GPU operations and host events are missing.
        end_ns: recording ends: operations that begin later are missing.
        offset_ns: what the rank's clock shows more than the truth.
        dropped: communication kernels that are lost, by their place among the rank's calls (negative: from the end).
        lost: share of the rank's GPU operations that the profiler loses, anywhere.
        arguments: where communication arguments are: `kernel`, `host` (only there) or `none`.
        has_sequence: whether calls carry NCCL's sequence numbers.
        has_payloads: whether Nsight's report says bytes and communicators of NCCL's calls, and which ranks have which.
        has_stream_waits: whether the events that streams wait for are recorded.
        drift: by how much of the time the rank's clock runs too fast.
        clock_step: when the rank's clock is set anew, and by how much.
        missing: ranks whose file is not there.
        cut: ranks whose file ends early, and the share of its text that is left.
    """

    start_ns: Mapping[int, int] = field(default_factory=dict)
    end_ns: Mapping[int, int] = field(default_factory=dict)
    offset_ns: Mapping[int, int] = field(default_factory=dict)
    dropped: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    lost: Mapping[int, float] = field(default_factory=dict)
    arguments: str = "kernel"
    has_sequence: bool = False
    has_payloads: bool = False
    has_stream_waits: bool = False
    drift: Mapping[int, float] = field(default_factory=dict)
    clock_step: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    cut: Mapping[int, float] = field(default_factory=dict)

    def clock_ns(self, rank: int, time_ns: int) -> int:
        """What the rank's clock shows at a true time."""
        since, by_ns = self.clock_step.get(rank, (0, 0))
        drifted_ns = round(time_ns * self.drift.get(rank, 0.0))
        return time_ns + drifted_ns + self.offset_ns.get(rank, 0) + (by_ns if time_ns >= since else 0)


@dataclass(frozen=True)
class StreamWait:
    """A stream's wait for an event, and the event's record: where they stand on the host, and their numbers."""

    stream: int
    source_stream: int
    wait_ns: int
    record_ns: int
    correlation: int
    record_correlation: int


@dataclass(frozen=True)
class Recorded:
    """One rank's part of a capture, on its own clock: its ops with true times kept in `op`."""

    rank: int
    offset_ns: int
    how: Capture
    ops: tuple[GpuOp, ...]
    launched: frozenset[int]
    """Numbers of the operations whose launch was recorded."""
    launches: tuple[GpuOp, ...]
    host: tuple[HostEvent, ...]
    sequences: Mapping[int, int]
    """Sequence number within its group of each communication operation, by number."""
    waits: tuple[StreamWait, ...]


@dataclass(frozen=True)
class Captured:
    """All ranks of a capture."""

    run: Run
    how: Capture
    ranks: tuple[Recorded, ...]


def capture(run: Run, how: Capture = Capture()) -> Captured:
    """Record a run."""
    return Captured(run, how, tuple(_rank(run, how, program.rank) for program in run.job.programs
                                if program.rank not in how.missing))  # fmt: skip


def _rank(run: Run, how: Capture, rank: int) -> Recorded:
    start, end = how.start_ns.get(rank, 0), how.end_ns.get(rank, 1 << 62)
    calls = [call.op.number for call in run.calls[rank] if start <= call.op.start_ns < end]
    lost = {calls[place] for place in how.dropped.get(rank, ())}
    lost |= _lost(run.ops[rank], how.lost.get(rank, 0.0))
    ops = [op for op in run.ops[rank] if start <= op.start_ns < end and op.number not in lost]
    launches = tuple(op for op in run.ops[rank] if start <= op.launch_start_ns < end)
    return Recorded(
        rank=rank,
        offset_ns=how.offset_ns.get(rank, 0),
        how=how,
        ops=tuple(sorted(ops, key=lambda op: op.start_ns)),
        launched=frozenset(op.number for op in launches),
        launches=launches,
        host=tuple(event for event in run.host[rank] if start <= event.start_ns and event.end_ns < end),
        sequences=_sequences(run.ops[rank]),
        waits=_stream_waits(run, launches),
    )


def _lost(ops: list[GpuOp], share: float) -> set[int]:
    """Numbers of operations that are lost, the same in every run."""
    return {op.number for op in ops if share and random.Random(op.number).random() < share}


def _stream_waits(run: Run, launches: tuple[GpuOp, ...]) -> tuple[StreamWait, ...]:
    """Each operation's waits just before its launch, for events recorded just after the launches that it waits for."""
    found: list[StreamWait] = []
    for op in launches:
        for number in op.instruction.after:
            source = run.ops[op.rank][number]
            place = 1_000_000 + 2 * len(found)
            found.append(
                StreamWait(op.instruction.stream, source.instruction.stream, op.launch_start_ns + 10,
                           source.launch_end_ns - 60, place, place + 1)
            )  # fmt: skip
    return tuple(found)


def _sequences(ops: list[GpuOp]) -> dict[int, int]:
    counts: dict[str, int] = {}
    numbers = {}
    for op in ops:
        if op.instruction.comm:
            group = op.instruction.comm.group.name
            numbers[op.number] = counts[group] = counts.get(group, 0) + 1
    return numbers
