"""What each rank of a simulated job does: its host's instructions in order."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

COMPUTE_STREAM, COMM_STREAM, COPY_STREAM = 7, 17, 21


@dataclass(frozen=True)
class Group:
    """A process group."""

    name: str
    ranks: tuple[int, ...]
    description: str = "default_pg"


def adjacent(name: str, each: int, count: int, description: str = "") -> list[Group]:
    """So many groups of `each` ranks that lie beside each other, by number."""
    return [Group(f"{name}{n}", tuple(range(n * each, (n + 1) * each)), description or name) for n in range(count)]


def strided(name: str, each: int, count: int, description: str = "") -> list[Group]:
    """So many groups of `each` ranks that are `count` apart, by number."""
    return [Group(f"{name}{n}", tuple(range(n, each * count, count)), description or name) for n in range(count)]


@dataclass(frozen=True)
class Comm:
    """A communication call: a collective of a group, or messages (`sends`, `receives`: global ranks).

    `kernel` is the name of one that is not NCCL's: its trace has no arguments, and names no group. `splits` are the
    elements that this rank sends to each one of an uneven all-to-all's group, and those that it receives.
    """

    collective: str
    group: Group
    elements: int
    dtype: str = "BFloat16"
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    kernel: str = ""
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@dataclass(frozen=True)
class Instruction:
    """One thing that the host does.

    `what` is `host` (work for `ns`), `aside` (the same in another thread), `launch` (of a GPU operation that runs for `ns`), `sync` (with the operations
    `after`, or all), `meet` (in a collective of the CPU that takes `ns` once all hosts of the group have come; `handed` is
    the host's own work before it waits), `begin` or `end`. `event` is what the profiler records of host work: `operator`, `range`, `frame`
    (of Python) or `call` (of the CUDA API). `graph` is the first operation of the CUDA graph that a launch belongs to,
    `sequence` the number that autograd gave an operator.
    """

    what: str
    ns: int = 0
    name: str = ""
    kind: str = ""
    stream: int = 0
    after: tuple[int, ...] = ()
    comm: Comm | None = None
    size_bytes: int = 0
    event: str = "operator"
    shapes: str = ""
    blocks: int = 24
    handed: int = 0
    graph: int = -1
    sequence: int = -1


@dataclass
class Program:
    """A rank's instructions. GPU operations are numbered in order of launch; `after` names ones to wait for."""

    rank: int
    instructions: list[Instruction] = field(default_factory=list)
    launched: int = 0

    def host(self, ns: int, name: str = "aten::something", event: str = "operator") -> None:
        """The host is busy; with nothing that is recorded, if it has no name."""
        self.instructions.append(Instruction("host", ns, name, event=event))

    def aside(self, ns: int, name: str, event: str = "frame") -> None:
        """Another thread of the host is busy from now on; this one goes on."""
        self.instructions.append(Instruction("aside", ns, name, event=event))

    def kernel(self, name: str, ns: int, *, stream: int = COMPUTE_STREAM, after: tuple[int, ...] = (),
               blocks: int = 24) -> int:  # fmt: skip
        """A compute kernel of so many blocks."""
        return self._launch(Instruction("launch", ns, name, "compute", stream, after, blocks=blocks))

    def graph(self, kernels: Sequence[tuple[str, int]], *, stream: int = COMPUTE_STREAM) -> int:
        """One launch of a CUDA graph of such kernels, by name and length; the number of the last one."""
        first = self.launched
        for name, ns in kernels:
            self._launch(Instruction("launch", ns, name, "compute", stream, graph=first))
        return self.launched - 1

    def copy(self, direction: str, size_bytes: int, ns: int, *, stream: int = COPY_STREAM,
             after: tuple[int, ...] = (), memory: str = "Pinned") -> int:  # fmt: skip
        """A copy: `HtoD`, `DtoH` or `DtoD`; the host's `memory` may be `Pageable`."""
        name = {"HtoD": f"{memory} -> Device", "DtoH": f"Device -> {memory}", "DtoD": "Device -> Device"}[direction]
        return self._launch(
            Instruction("launch", ns, f"Memcpy {direction} ({name})", "copy", stream, after, None, size_bytes)
        )

    def collective(self, collective: str, group: Group, elements: int, transfer_ns: int, *,
                   stream: int = COMM_STREAM, after: tuple[int, ...] = (), kernel: str = "") -> int:  # fmt: skip
        """A collective whose data takes `transfer_ns` once all ranks have come."""
        comm = Comm(collective, group, elements, kernel=kernel)
        return self._launch(Instruction("launch", transfer_ns, collective, "comm", stream, after, comm))

    def exchange_unevenly(self, group: Group, sent: tuple[int, ...], received: tuple[int, ...], transfer_ns: int, *,
                          after: tuple[int, ...] = ()) -> int:  # fmt: skip
        """An all-to-all of so many elements to and from each rank; it takes this rank `transfer_ns` once all have come."""
        comm = Comm("all_to_all", group, sum(sent), splits=(sent, received))
        return self._launch(Instruction("launch", transfer_ns, "all_to_all", "comm", COMM_STREAM, after, comm))

    def exchange(self, group: Group, elements: int, transfer_ns: int, *, sends: tuple[int, ...] = (),
                 receives: tuple[int, ...] = (), stream: int = COMM_STREAM, after: tuple[int, ...] = ()) -> int:  # fmt: skip
        """Messages to and from other ranks, in one kernel."""
        comm = Comm("send_recv", group, elements, sends=sends, receives=receives)
        return self._launch(Instruction("launch", transfer_ns, "send_recv", "comm", stream, after, comm))

    def sync(self, name: str = "cudaDeviceSynchronize", after: tuple[int, ...] = ()) -> None:
        """The host waits for some of its GPU operations, or for all."""
        self.instructions.append(Instruction("sync", name=name, after=after))

    def meet(self, group: Group, name: str = "barrier", ns: int = 300_000, handed: int = 0) -> None:
        """The host calls a collective of the CPU, works on for `handed`, and waits until it is done on all of the group."""
        comm = Comm(name, group, 1)
        self.instructions.append(Instruction("meet", ns, f"gloo:{name}", comm=comm, handed=handed))

    @contextmanager
    def range(self, name: str, event: str = "range", shapes: str = "", sequence: int = -1) -> Iterator[None]:
        """A user's range around instructions; or an operator, with its `shapes` and `sequence`, or a Python frame."""
        self.instructions.append(Instruction("begin", name=name))
        yield
        self.instructions.append(Instruction("end", name=name, event=event, shapes=shapes, sequence=sequence))

    def _launch(self, instruction: Instruction) -> int:
        self.instructions.append(instruction)
        self.launched += 1
        return self.launched - 1


@dataclass(frozen=True)
class Job:
    """Programs of all ranks.

    Attributes:
        jitter: relative standard deviation of every duration.
        end_jitter_ns: a collective's ends differ by up to this between ranks.
        hosts: each rank's host, by rank; nothing where files do not say.
        gpus: each rank's model of GPU, by rank; all are H200 without.
        slices: of ranks whose GPU another process has in turn with the job: how often, and for how long each time.
    """

    programs: tuple[Program, ...]
    groups: tuple[Group, ...]
    seed: int = 0
    jitter: float = 0.02
    end_jitter_ns: int = 3_000
    launch_ns: int = 5_000
    latency_ns: int = 3_000
    hosts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    slices: Mapping[int, tuple[int, int]] = field(default_factory=dict)
