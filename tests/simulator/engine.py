"""Runs a job: when every host instruction and GPU operation begins and ends, and how long each call truly waits."""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.simulator.program import Comm, Instruction, Job, Program


@dataclass
class GpuOp:
    """A GPU operation; times are true nanoseconds, -1 while unknown."""

    rank: int
    number: int
    instruction: Instruction
    launch_start_ns: int
    launch_end_ns: int
    duration_ns: int
    start_ns: int = -1
    end_ns: int = -1


@dataclass(frozen=True)
class HostEvent:
    """A range, an operator, a Python frame, an API call or a synchronisation on the host."""

    what: str
    name: str
    start_ns: int
    end_ns: int
    shapes: str = ""
    is_aside: bool = False
    sequence: int = -1


@dataclass(frozen=True)
class Call:
    """A communication call and the truth about it: `wait_ns` until its last partner came, and which rank that was."""

    op: GpuOp
    comm: Comm
    key: Hashable
    ready_ns: int
    waits_for: int

    @property
    def wait_ns(self) -> int:
        """Time that the call spent waiting."""
        return self.ready_ns - self.op.start_ns


@dataclass
class Run:
    """A job that has run: per rank its GPU operations, host events and calls, in order."""

    job: Job
    ops: dict[int, list[GpuOp]] = field(default_factory=lambda: defaultdict(list))
    host: dict[int, list[HostEvent]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[int, list[Call]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class _Host:
    program: Program
    time_ns: int
    place: int = 0
    met: int | None = None
    open_ranges: list[tuple[str, int]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.place == len(self.program.instructions)


def run(job: Job) -> Run:
    """Run until every rank is done.

    Raises:
        RuntimeError: the ranks wait for each other for ever.
    """
    return _Engine(job).finish()


class _Engine:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.random = np.random.default_rng(job.seed)
        self.run = Run(job)
        self.hosts = {program.rank: _Host(program, 1_000_000) for program in job.programs}
        self.streams: dict[tuple[int, int], list[GpuOp]] = defaultdict(list)
        self.heads: dict[tuple[int, int], int] = defaultdict(int)
        self.arrivals: dict[Hashable, dict[int, GpuOp]] = defaultdict(dict)
        self.meetings: dict[Hashable, dict[int, int]] = defaultdict(dict)
        self.counts: dict[Hashable, int] = defaultdict(int)
        self.keys: dict[int, list[Hashable]] = {}
        self.open_keys: dict[int, tuple[GpuOp, list[Hashable]]] = {}

    def finish(self) -> Run:
        while not all(host.is_done for host in self.hosts.values()) or self._has_waiting_ops():
            moved = [self._advance(host) for host in self.hosts.values()]
            moved += [self._start_ops(stream) for stream in list(self.streams)]
            moved.append(self._end_calls())
            if not any(moved):
                raise RuntimeError("the ranks wait for each other for ever")
        for calls in self.run.calls.values():
            calls.sort(key=lambda call: (call.op.start_ns, call.op.number))
        return self.run

    def _has_waiting_ops(self) -> bool:
        return any(self.heads[stream] < len(ops) for stream, ops in self.streams.items()) or bool(self.open_keys)

    def _varied(self, ns: int) -> int:
        return max(1, round(ns * (1 + self.job.jitter * self.random.standard_normal()))) if ns else 0

    def _advance(self, host: _Host) -> bool:
        begin = host.place
        while not host.is_done and self._do(host, host.program.instructions[host.place]):
            host.place += 1
        return host.place > begin

    def _do(self, host: _Host, instruction: Instruction) -> bool:
        """Carry out one instruction; false when it has to wait."""
        rank, begin = host.program.rank, host.time_ns
        if instruction.what == "sync":
            ops = self.run.ops[rank]
            if instruction.after:
                ops = [ops[number] for number in instruction.after]
            if any(op.end_ns < 0 for op in reversed(ops)):
                return False
            host.time_ns = max([begin + 2_000, *(op.end_ns + 2_000 for op in ops)])
            self.run.host[rank].append(HostEvent("call", instruction.name, begin, host.time_ns))
        elif instruction.what == "host":
            host.time_ns += self._varied(instruction.ns)
            if instruction.name:
                self.run.host[rank].append(HostEvent(instruction.event, instruction.name, begin, host.time_ns))
        elif instruction.what == "meet":
            return self._meet(host, instruction)
        elif instruction.what == "aside":
            event = HostEvent(instruction.event, instruction.name, begin, begin + instruction.ns, is_aside=True)
            self.run.host[rank].append(event)
        elif instruction.what == "begin":
            host.open_ranges.append((instruction.name, begin))
        elif instruction.what == "end":
            name, start = host.open_ranges.pop()
            event = HostEvent(instruction.event, name, start, begin, instruction.shapes, sequence=instruction.sequence)
            self.run.host[rank].append(event)
        else:
            # The graph's first operation is its launch; the others come with it.
            is_launched = instruction.graph in (-1, len(self.run.ops[rank]))
            host.time_ns += self._varied(self.job.launch_ns) if is_launched else 0
            self._launch(rank, instruction, begin, host.time_ns)
        return True

    def _meet(self, host: _Host, instruction: Instruction) -> bool:
        """Hand a collective to another thread, and wait until all hosts of the group have; false until then."""
        rank, begin, comm = host.program.rank, host.time_ns, instruction.comm
        assert comm is not None
        if host.met is None:
            self.counts[rank, "meet", comm.group.name] += 1
            host.met = self.counts[rank, "meet", comm.group.name]
            self.meetings[comm.group.name, host.met][rank] = begin + 20_000
        arrived = self.meetings[comm.group.name, host.met]
        if len(arrived) < len(comm.group.ranks):
            return False
        done = max(arrived.values()) + instruction.ns
        events = self.run.host[rank]
        events.append(HostEvent("operator", f"c10d::{comm.collective}", begin, begin + 15_000))
        events.append(HostEvent("gloo", instruction.name, begin + 20_000, done))
        if instruction.handed:
            events.append(HostEvent("operator", "aten::something", begin + 25_000, begin + 25_000 + instruction.handed))
        host.time_ns, host.met = max(done, begin + 25_000 + instruction.handed) + 10_000, None
        return True

    def _launch(self, rank: int, instruction: Instruction, start_ns: int, end_ns: int) -> None:
        # A collective's transfer is one duration for all its ranks, so it varies when it ends, not here.
        ns = instruction.ns if instruction.comm else self._varied(instruction.ns)
        op = GpuOp(rank, len(self.run.ops[rank]), instruction, start_ns, end_ns, ns)
        self.run.ops[rank].append(op)
        self.streams[rank, instruction.stream].append(op)
        if instruction.comm:
            self.keys[id(op)] = list(self._call_keys(rank, instruction.comm))

    def _call_keys(self, rank: int, comm: Comm) -> Iterator[Hashable]:
        """What its calls on other ranks share: the group's n-th collective, or a pair's n-th message."""
        pairs = [(rank, peer) for peer in comm.sends] + [(peer, rank) for peer in comm.receives]
        for what in pairs or [comm.group.name]:
            self.counts[rank, what] += 1
            yield what, self.counts[rank, what]

    def _start_ops(self, stream: tuple[int, int]) -> bool:
        ops, begin = self.streams[stream], self.heads[stream]
        while self.heads[stream] < len(ops):
            place = self.heads[stream]
            op = ops[place]
            own = self.run.ops[op.rank]
            needed = [own[number].end_ns for number in op.instruction.after] + (
                [ops[place - 1].end_ns] if place else []
            )
            if any(end < 0 for end in needed):
                break
            op.start_ns = max([op.launch_end_ns + self.job.latency_ns, *needed])
            self.heads[stream] += 1
            if op.instruction.comm is None:
                self._run_between_slices(op)
                continue
            for key in self.keys[id(op)]:
                self.arrivals[key][op.rank] = op
            self.open_keys[id(op)] = (op, self.keys[id(op)])
        return self.heads[stream] > begin

    def _run_between_slices(self, op: GpuOp) -> None:
        """Where another process has the GPU at times, kernels begin after such a time and stand still in it."""
        every_ns, slice_ns = self.job.slices.get(op.rank, (1, 0)) if op.instruction.kind == "compute" else (1, 0)
        if slice_ns:
            op.start_ns = max(op.start_ns, op.start_ns // every_ns * every_ns + slice_ns)
        op.end_ns = op.start_ns + op.duration_ns
        begin = op.start_ns // every_ns + 1
        while slice_ns and begin * every_ns < op.end_ns:
            op.end_ns, begin = op.end_ns + slice_ns, begin + 1

    def _end_calls(self) -> bool:
        """End the calls whose partners have all come: at the same moment, but for a little jitter."""
        ended = []
        for identity, (op, keys) in self.open_keys.items():
            comm = op.instruction.comm
            assert comm is not None
            expected = 2 if comm.sends or comm.receives else len(comm.group.ranks)
            if all(len(self.arrivals[key]) == expected for key in keys):
                last = max((other for key in keys for other in self.arrivals[key].values()), key=lambda o: o.start_ns)
                ready_ns = last.start_ns
                op.end_ns = ready_ns + op.duration_ns + int(self.random.integers(0, self.job.end_jitter_ns + 1))
                self.run.calls[op.rank].append(Call(op, comm, keys[0], ready_ns, last.rank))
                ended.append(identity)
        for identity in ended:
            del self.open_keys[identity]
        return bool(ended)
