"""What an NCCL log (`NCCL_DEBUG=INFO`) tells of a job: communicators, transports, channels, environment, warnings."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

Process = tuple[str, int]
"""Host and process id: what NCCL marks its lines with."""


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of one communicator.

    Attributes:
        communicator: its id; where the version prints none, its size and place among the process' communicators.
        process: who has it.
        rank: in the communicator.
        size: ranks of the communicator.
        device: CUDA device of the process, `None` where not told.
        gpu: the machine's number of the GPU (NVML), `None` where not told.
        bus_id: PCI bus of the GPU, as written.
        has_started: whether the start of init is in the log (versions before 2.16 do not print it).
        is_complete: whether the end of init is.
        is_closed: whether it was destroyed or aborted afterwards, as written: `Destroy`, `Abort`.
        init_s: time of init, where printed.
        nodes: nodes of the communicator, where printed.
        is_split: whether it was split off another one.
    """

    communicator: str
    process: Process
    rank: int
    size: int
    device: int | None = None
    gpu: int | None = None
    bus_id: str | None = None
    has_started: bool = False
    is_complete: bool = False
    is_closed: str | None = None
    init_s: float | None = None
    nodes: int | None = None
    is_split: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of a channel between two ranks of a communicator, as one of them reported it."""

    communicator: str | None
    process: Process
    channel: int
    source: int
    target: int
    transport: str

    @property
    def kind(self) -> str:
        """`P2P`, `SHM`, `NET/IB`, `NET/Socket`, `NET/<plugin>`, `NVLS`, `COLLNET`, or the text as it is."""
        if self.transport.startswith("direct shared memory"):
            return "SHM"
        words = self.transport.split("/")
        return f"NET/{words[1].strip()}" if words[0] == "NET" and len(words) > 1 else words[0].strip()

    @property
    def is_direct(self) -> bool:
        """Whether the network card reads and writes the GPU's memory itself."""
        return "GDRDMA" in self.transport


@dataclass(frozen=True, slots=True)
class Timeout:
    """A collective that PyTorch's watchdog gave up, as one rank reported it."""

    rank: int
    sequence: int
    operation: str
    timeout_ms: int | None


@dataclass(frozen=True)  # no slots: what is looked up often is kept
class NcclLog:
    """One job's logs.

    Attributes:
        names: the files.
        versions: process → NCCL version.
        members: ranks of communicators.
        links: connections.
        channels: process → `coll`, `nvls`, `p2p` channels and the like.
        networks: process → network in use (`Socket`, `IB`, a plugin's name).
        ib_devices: process → what `NET/IB` found; empty when it found none.
        rings: (communicator, channel) → ranks in ring order.
        trees: number of trees of a rank, by process.
        nvls: process → whether NVLink SHARP is said to be in use.
        connected: processes that reported all rings or trees as connected.
        environment: (variable, value) → processes that say so.
        warnings: text → processes that warned.
        algorithms: (collective, algorithm, protocol) → times chosen, where the tuner logs.
        operations: process → number of the last collective that was logged (`opCount`).
        p2p_disabled_pairs: lines by which NCCL says that P2P is off between two GPUs.
        timeouts: what PyTorch's watchdog reported.
        last_texts: process → its last line.
        nccl_lines: lines that NCCL marked.
    """

    names: tuple[str, ...]
    versions: Mapping[Process, str]
    members: tuple[Member, ...]
    links: tuple[Link, ...]
    channels: Mapping[Process, Mapping[str, int]]
    networks: Mapping[Process, str]
    ib_devices: Mapping[Process, str]
    rings: Mapping[tuple[str | None, int], tuple[int, ...]]
    trees: Mapping[Process, int]
    nvls: Mapping[Process, bool]
    connected: frozenset[Process]
    environment: Mapping[tuple[str, str], frozenset[Process]]
    warnings: Mapping[str, tuple[Process, ...]]
    algorithms: Counter[tuple[str, str, str]]
    operations: Mapping[Process, int]
    p2p_disabled_pairs: tuple[str, ...]
    timeouts: tuple[Timeout, ...]
    last_texts: Mapping[Process, str]
    nccl_lines: int
    notes: tuple[str, ...] = field(default=())

    @property
    def label(self) -> str:
        """What to call the log."""
        first = self.names[0] if self.names else "log"
        return first if len(self.names) == 1 else f"{first} and {len(self.names) - 1} more"

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that wrote it."""
        return tuple(sorted({member.process[0] for member in self.members} | {host for host, _ in self.versions}))

    @cached_property
    def is_one_node(self) -> bool:
        """Whether all that is told is of one node."""
        nodes = [member.nodes for member in self.members if member.nodes is not None]
        return max(nodes, default=1) <= 1 and len(self.hosts) <= 1

    @cached_property
    def world(self) -> int:
        """Ranks of the largest communicator; 0 when there is none."""
        return max((member.size for member in self.members), default=0)

    def set_to(self, variable: str) -> str | None:
        """The value that the environment gave a variable (the one that most processes report)."""
        told = {value: len(who) for (name, value), who in self.environment.items() if name == variable}
        return max(told, key=lambda value: told[value]) if told else None

    def rank_of(self, process: Process) -> int | None:
        """The process' rank in its largest communicator."""
        return self._ranks.get(process)

    @cached_property
    def _ranks(self) -> dict[Process, int]:
        """Process → its rank in its largest communicator, the first of several that are as large."""
        ordered = sorted(self.members, key=lambda member: -member.size)
        return {member.process: member.rank for member in reversed(ordered)}

    @cached_property
    def _by_rank(self) -> dict[tuple[str, int], Member]:
        return {(member.communicator, member.rank): member for member in reversed(self.members)}

    def ranks_of(self, processes: Iterable[Process]) -> list[int]:
        """The processes' ranks in their largest communicators, each once; those that are not known are left out."""
        return sorted({rank for process in set(processes) if (rank := self.rank_of(process)) is not None})

    def transports(self) -> Counter[str]:
        """Transport as written → connections."""
        return Counter(link.transport for link in self.links)

    def kinds(self) -> Counter[str]:
        """Kind of transport → connections."""
        return Counter(link.kind for link in self.links)

    def coll_channels(self) -> int | None:
        """Channels for collectives, the most of all ranks."""
        told = [known["coll"] for known in self.channels.values() if "coll" in known]
        if told:
            return max(told)
        return max((channel + 1 for _, channel in self.rings), default=None)

    def member(self, communicator: str | None, rank: int) -> Member | None:
        """A rank of a communicator."""
        return None if communicator is None else self._by_rank.get((communicator, rank))
