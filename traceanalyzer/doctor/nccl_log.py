"""NCCL logs (`NCCL_DEBUG=INFO`): who wrote each line, and what the lines of a job say."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from traceanalyzer.doctor.known_errors import known_error
from traceanalyzer.doctor.watchdog import Watchdog, read_watchdog
from traceanalyzer.errors import InputError

_LEVEL = re.compile(r"NCCL +(INFO|WARN|TRACE|ERROR|ABORT) ?")
_HEAD = re.compile(
    r"(?:(?P<host>[\w.<>*-]+):(?P<pid>[\w<>*-]{1,18}):(?P<tid>[\w<>*-]{1,18}) +)?(?:\[(?P<device>-?\d{1,9})\] +)?"
    r"(?:(?P<source>[\w./-]+:\d+) +)?$"
)
"""Before it may stand what a launcher writes: `[rank3]:`, a time; people redact or cut off host and pid."""

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Colours and the like, which terminals take and logs keep."""

_PREFIX_OF_NEXT = re.compile(r"(?:\[[\w\d., :/-]*\]:?\s*|\d{4}-\d\d-\d\d[T ][\d:.,]+\s*)+$")
"""What of the text before a line's head belongs to that line, when two lines ran into each other."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log.

    Attributes:
        process: (host, pid), or the device where the pid is redacted; empty for lines that NCCL did not mark.
        level: `INFO`, `WARN`, …; empty for lines that NCCL did not mark.
        text: what it says.
    """

    process: tuple[str, int] | None
    level: str
    text: str


def lines(text: str) -> Iterator[Line]:
    """The log's lines; two that ran into each other are separated at their heads."""
    hosts: set[str] = set()
    for line in _clean(text):
        levels = list(_LEVEL.finditer(line)) if "NCCL" in line else []
        if not levels:
            yield Line(None, "", line.strip())
            continue
        ends = [level.end() for level in levels]
        heads = [_HEAD.search(line, max(level.start() - 160, before), level.start())
                 for level, before in zip(levels, [0, *ends], strict=False)]  # fmt: skip
        hosts.update(head["host"] or "" for head in heads[:1] if head)
        starts = [head.start() + _rest_of_previous(head, hosts) for head in heads if head]
        for level, head, start, after in zip(levels, heads, starts, [*starts[1:], len(line)], strict=True):
            assert head is not None  # it matches nothing, too
            said = line[level.end() : after]
            if after < len(line):
                said = _PREFIX_OF_NEXT.sub("", said)
            host, pid = line[start : head.end("host")] if head["host"] else "", head["pid"] or ""
            process = host, int(pid if pid.isdecimal() else head["device"] or -1)
            yield Line(process, level[1], said.strip())


def _clean(text: str) -> Iterator[str]:
    """The lines without colors, and those joined that a terminal cut: all full ones go on in one that has no head."""
    lines = ANSI.sub("", text).splitlines()
    width = max(map(len, lines), default=0)
    is_full = [len(line) == width and not line.endswith("  ") for line in lines]  # terminals pad a text's last line
    cut = [(line, after) for full, (line, after) in zip(is_full, pairwise(lines), strict=False) if full]
    is_wrapped = sum("NCCL" in line for line, _ in cut) > 1 and not any(
        _LEVEL.search(after) or after.startswith("[rank") for _, after in cut
    )
    held = ""
    for line, full in zip(lines, is_full, strict=True):
        held += line
        if not (is_wrapped and full):
            yield held
            held = ""
    if held:
        yield held


def _rest_of_previous(head: re.Match[str], hosts: Collection[str]) -> int:
    """How much of a head's host is the end of a line that it ran into: what stands before a known host's name."""
    host = head["host"] or ""
    return len(host) - len(max((name for name in hosts if name and host.endswith(name)), key=len, default=host))


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
        device: CUDA device of the process, `None` where unknown.
        gpu: the machine's number of the GPU (NVML), `None` where unknown.
        has_started: whether the start of init is in the log (versions before 2.16 do not print it).
        is_complete: whether the end of init is.
        is_closed: whether it was destroyed or aborted afterwards, as written: `Destroy`, `Abort`.
        init_s: time of init, where printed.
        nodes: nodes of the communicator, where printed.
    """

    communicator: str
    process: Process
    rank: int
    size: int
    device: int | None = None
    gpu: int | None = None
    has_started: bool = False
    is_complete: bool = False
    is_closed: str | None = None
    init_s: float | None = None
    nodes: int | None = None


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


@dataclass  # no slots: what is looked up often is kept
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
        nvls: process → whether NVLink SHARP is reported in use.
        connected: processes that reported all rings or trees as connected.
        environment: (variable, value) → processes that say so.
        warnings: text → processes that warned.
        algorithms: (collective, algorithm, protocol) → times chosen, where the tuner logs.
        operations: process → number of the last collective that was logged (`opCount`).
        p2p_disabled_pairs: lines by which NCCL says that P2P is off between two GPUs.
        watchdog: what PyTorch's watchdog and the launcher printed.
        link_gb_per_s: host → GPU's bus → kind of link (`NVL`, `PCI`) → GB/s of all its links, by NCCL's topology.
        patterns: process → channels, GB/s of each, and farthest path of its first graph of channels.
        interfaces: process → the socket interface that init uses.
        test_gb_per_s: bytes → bus bandwidth that nccl-tests measured.
        wrong_values: values that nccl-tests found wrong.
        has_more: whether other lines follow the last one of NCCL.
        last_texts: process → its last line.
        nccl_lines: lines that NCCL marked.
    """

    names: tuple[str, ...]
    versions: dict[Process, str] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    links: tuple[Link, ...] = ()
    channels: dict[Process, dict[str, int]] = field(default_factory=dict)
    networks: dict[Process, str] = field(default_factory=dict)
    ib_devices: dict[Process, str] = field(default_factory=dict)
    rings: dict[tuple[str | None, int], tuple[int, ...]] = field(default_factory=dict)
    trees: dict[Process, int] = field(default_factory=dict)
    nvls: dict[Process, bool] = field(default_factory=dict)
    connected: set[Process] = field(default_factory=set)
    environment: dict[tuple[str, str], set[Process]] = field(default_factory=lambda: defaultdict(set))
    warnings: dict[str, list[Process]] = field(default_factory=lambda: defaultdict(list))
    algorithms: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    operations: dict[Process, int] = field(default_factory=dict)
    p2p_disabled_pairs: dict[str, None] = field(default_factory=dict)
    watchdog: Watchdog = field(default_factory=Watchdog)
    link_gb_per_s: dict[str, dict[str, dict[str, float]]] = field(default_factory=lambda: defaultdict(dict))
    patterns: dict[Process, tuple[int, float, str]] = field(default_factory=dict)
    interfaces: dict[Process, str] = field(default_factory=dict)
    test_gb_per_s: dict[int, float] = field(default_factory=dict)
    wrong_values: int = 0
    has_more: bool = False
    last_texts: dict[Process, str] = field(default_factory=dict)
    nccl_lines: int = 0

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
        """Whether the log is of one node."""
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

    def is_on(self, variable: str) -> bool:
        """Whether the environment sets a variable to yes."""
        return (self.set_to(variable) or "").upper() in {"1", "Y", "YES", "TRUE", "T"}

    @cached_property
    def ranks(self) -> dict[Process, int]:
        """Process → its rank in its largest communicator, the first of several that are as large."""
        ordered = sorted(self.members, key=lambda member: -member.size)
        return {member.process: member.rank for member in reversed(ordered)}

    @cached_property
    def _by_rank(self) -> dict[tuple[str, int], Member]:
        return {(member.communicator, member.rank): member for member in reversed(self.members)}

    def ranks_of(self, processes: Iterable[Process]) -> list[int]:
        """The processes' ranks in their largest communicators, each once; those that are not known are left out."""
        return sorted({rank for process in set(processes) if (rank := self.ranks.get(process)) is not None})

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

    def ends(self, link: Link) -> list[Member]:
        """The two ranks that a connection joins; none where the log does not have both."""
        known = [self._by_rank.get((link.communicator or "", rank)) for rank in (link.source, link.target)]
        return [one for one in known if one is not None] if None not in known else []


_VERSION = re.compile(r"(?:NCCL|RCCL) version (\d\S*)")
_MEMBER = re.compile(r"comm (0x[0-9a-fA-F]+) rank (\d{1,6}) n[rR]anks (\d{1,6})(?!\d)(.*)$")
_STATE = re.compile(r"- (Init|Destroy|Abort|Finalize) (START|COMPLETE)")
_FACT = re.compile(r"(?:(cudaDev|nvmlDev) (\d{1,9})(?!\w)|(commId) (\w+))")
_NODES = re.compile(r"comm (0x\w+) rank (\d{1,9}) nRanks (\d{1,9}) nNodes (\d{1,9})")
_TIMINGS = re.compile(r"Init timings - \w+: rank (\d{1,9}) nranks (\d{1,9}) total (\d{1,9}(?:\.\d{1,9})?)")
_LINK = re.compile(
    r"(?:Channel|Ring|Tree) (\d{1,9})(?:/\d+)? : (\d{1,9})\[\w+\] -> (\d{1,9})\[\w+\] "
    r"(?:\[(?:send|receive)\] )?via (\S.*)$"
)
_RING = re.compile(r"Channel (\d{1,9})/(\d{1,9}) : +(\d{1,9}(?: +\d{1,9})*) *$")
_TREES = re.compile(r"Trees ((?:\[\d{1,9}\] \S+ ?)+)")
_CHANNELS = re.compile(r"(\d{1,9}) (coll|collnet|nvls|p2p) channels(?! per)")
_IB = re.compile(r"NET/IB : Using +(.*?)(?:;.*)?$")
_IB_DEVICE = re.compile(r"\[\d{1,9}\](\w+):\d{1,9}/(\w+)")
_ENVIRONMENT = re.compile(r"(NCCL_\w+) set (?:by environment )?to (.*?)\.?$")
_CHOICE = re.compile(r"(\w+): (\d{1,18}) Bytes -> Algo (\w+) proto (\w+)")
_OPERATION = re.compile(r"\w+: opCount (?:0x)?([0-9a-fA-F]{1,16}) sendbuff")
_P2P_OFF = re.compile(r"P2P is disabled between .*|Could not enable P2P between .*", re.IGNORECASE)
_NODE = re.compile(r"^ *(?:\+ (\w+)\[(\d{1,9}(?:\.\d{1,9})?)\] - )?(\w+)/([\w-]+)")
_PATTERN = re.compile(r"Pattern \d+, crossNic \d+, nChannels (\d{1,9}), bw ([\d.]{1,20})/\S+, type (\w+)/")
_TEST_ROW = re.compile(r"^ *(\d{1,15}) +\d+ +\w+ +\w+ +-?\d+ +(.*)$")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values *: *(\d{1,18})")
_CONNECTED = re.compile(r"Connected (?:all )?(?:rings|trees)|Connected binomial trees")

_PLAIN = {
    "versions": _VERSION,
    "interfaces": re.compile(r"Bootstrap *: Using (?:\[\d\])?(\S+?):"),
    "networks": re.compile(r"Using network (\S.*)$"),
}
"""What of the log a line sets for its process."""

_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


def read_logs(texts: Sequence[tuple[str, str]]) -> tuple[NcclLog, ...]:
    """Logs of one or several jobs: files that name the same communicator are one job's.

    Args:
        texts: name and content of each file.

    Raises:
        InputError: a file holds no line of NCCL.
    """
    parsed = []
    for name, text in texts:
        own = list(lines(text))
        if not holds_log(text):
            raise InputError(f"{name}: no line of an NCCL log in it; record one with NCCL_DEBUG=INFO")
        parsed.append(own)
    return tuple(
        _log([texts[number] for number in job], [line for number in job for line in parsed[number]])
        for job in _jobs(parsed)
    )


def holds_log(text: str) -> bool:
    """Whether a text holds anything that is read here: NCCL's lines, the watchdog's, a launcher's, nccl-tests'."""
    return bool(
        any(_LEVEL.search(line) or _TEST_ROW.match(line) or known_error(line) for line in text.splitlines())
        or re.match(r"NCCL version \d\S*\+cuda", text)
        or read_watchdog("\n".join(_clean(text)))
    )


def _jobs(parsed: Sequence[list[Line]]) -> list[list[int]]:
    """Which files belong together: those that share a communicator's id; those without any join the first."""
    ids = [{found[1] for line in own if (found := re.search(r"commId (0x\w+)", line.text))} for own in parsed]
    jobs: list[tuple[set[str], list[int]]] = []
    for number, own in enumerate(ids):
        if not own:
            continue
        same = [job for job in jobs if job[0] & own]
        jobs = [job for job in jobs if job not in same]
        jobs.append((own.union(*(job[0] for job in same)), [at for job in same for at in job[1]] + [number]))
    told = sorted(sorted(job[1]) for job in jobs)
    without = [number for number, own in enumerate(ids) if not own]
    if not told:
        return [without]
    return [sorted(told[0] + without), *told[1:]]


def _log(texts: Sequence[tuple[str, str]], said: list[Line]) -> NcclLog:
    reading = _Reading(NcclLog(tuple(name for name, _ in texts)))
    for line in said:
        reading.take(line)
    reading.finish()
    reading.log.watchdog = read_watchdog("\n".join(line for _, text in texts for line in _clean(text)))
    return reading.log


class _Reading:
    """What has been read of a job so far: the log that is filled, and what is not placed in it yet."""

    def __init__(self, log: NcclLog) -> None:
        self.log = log
        self.members: dict[tuple[Process, str], Member] = {}
        self.of_process: dict[Process, list[tuple[Process, str]]] = defaultdict(list)
        self.bare_version: str | None = None
        self.nodes: dict[Process, str] = {}
        self.rates: dict[Process, dict[str, dict[str, float]]] = defaultdict(dict)
        self.found: list[Link] = []

    def take(self, line: Line) -> None:
        """Add one line."""
        if line.process is None:
            self._unmarked(line.text)
            return
        self.log.nccl_lines += 1
        self.log.has_more = False
        self.log.last_texts[line.process] = line.text
        if line.level == "WARN":
            self.log.warnings[line.text].append(line.process)
        for take in (self._member, self._connection, self._process):
            take(line, line.process)

    def _unmarked(self, text: str) -> None:
        self.log.has_more |= bool(text)
        if found := _VERSION.search(text):
            self.bare_version = found[1]
        elif found := _TEST_ROW.match(text):  # time, algbw, busbw, wrong: out of place, then in place
            cells = found[2].split()
            rates = [float(cell) for cell in cells[2::4] if cell.replace(".", "", 1).isdecimal()]
            self.log.test_gb_per_s.update({int(found[1]): max(rates)} if rates else {})
        elif found := _OUT_OF_BOUNDS.search(text):
            self.log.wrong_values += int(found[1])
        elif known_error(text):
            rank = re.match(r"(?:\[?rank(\d{1,9})\]?)", text)
            self.log.warnings[text].append(("", int(rank[1]) if rank else -1))

    def _member(self, line: Line, process: Process) -> None:
        if found := _NODES.search(line.text):
            key, size = (process, found[1]), int(found[3])
            if key not in self.members and size < 1 << 20:
                name = f"{size} ranks, number {len(self.of_process[process]) + 1}"
                self.members[key] = Member(name, process, int(found[2]), size)
                self.of_process[process].append(key)
            if key in self.members:
                self.members[key] = replace(self.members[key], nodes=int(found[4]))
        elif (found := _MEMBER.search(line.text)) and (state := _STATE.search(found[4])):
            self._state(process, found, state)
        if found := _TIMINGS.search(line.text):
            own = [key for key in self.of_process[process] if self.members[key].rank == int(found[1])]
            if own:
                self.members[own[-1]] = replace(self.members[own[-1]], init_s=float(found[3]))

    def _state(self, process: Process, found: re.Match[str], state: re.Match[str]) -> None:
        facts = {one[0] or one[2]: one[1] or one[3] for one in _FACT.findall(found[4])}
        key = (process, found[1])
        before = self.members.get(key)
        if before is None or (state[1] == "Init" and state[2] == "START" and before.is_closed):
            size, nth = int(found[3]), len(self.of_process[process])
            before = Member(facts.get("commId") or f"{size} ranks, number {nth + 1}", process, int(found[2]), size)
            if key in self.members:  # an address that was used before: keep the closed one under a name of its own
                closed = (process, f"{found[1]} closed {nth}")
                self.members[closed] = self.members.pop(key)
            self.of_process[process].append(key)
        self.members[key] = replace(
            before,
            communicator=facts.get("commId") or before.communicator,
            device=int(facts["cudaDev"]) if "cudaDev" in facts else before.device,
            gpu=int(facts["nvmlDev"]) if "nvmlDev" in facts else before.gpu,
            has_started=before.has_started or (state[1] == "Init" and state[2] == "START"),
            is_complete=before.is_complete or (state[1] == "Init" and state[2] == "COMPLETE"),
            is_closed=state[1] if state[1] in {"Destroy", "Abort"} else before.is_closed,
        )

    def _connection(self, line: Line, process: Process) -> None:
        if found := _LINK.search(line.text):
            source, target = int(found[2]), int(found[3])
            communicator = self._communicator(process, {source, target}, max(source, target))
            self.found.append(Link(communicator, process, int(found[1]), source, target, found[4].strip()))
        elif found := _RING.search(line.text):
            order = tuple(int(rank) for rank in found[3].split())
            self.log.rings[self._communicator(process, set(order), max(order)), int(found[1])] = order
        elif _CONNECTED.search(line.text):
            self.log.connected.add(process)

    def _communicator(self, process: Process, ranks: set[int], highest: int) -> str | None:
        """The process' newest communicator that a line about these ranks can be of."""
        for key in reversed(self.of_process[process]):
            member = self.members[key]
            if member.rank in ranks and member.size > highest:
                return member.communicator
        return None

    def _process(self, line: Line, process: Process) -> None:
        text = line.text
        if found := _ENVIRONMENT.match(text):
            self.log.environment[found[1], found[2].strip()].add(process)
        elif plain := next(((name, found[1]) for name, one in _PLAIN.items() if (found := one.search(text))), None):
            getattr(self.log, plain[0])[process] = plain[1].strip()
        elif found := _IB.search(text):
            self.log.ib_devices[process] = ", ".join(f"{name} ({kind})" for name, kind in _IB_DEVICE.findall(found[1]))
        elif found := _CHOICE.search(text):
            self.log.algorithms[found[1], _named(found[3], _ALGORITHMS), _named(found[4], _PROTOCOLS)] += 1
        elif found := _OPERATION.search(text):
            self.log.operations[process] = int(found[1], 16)
        elif _P2P_OFF.search(text):
            self.log.p2p_disabled_pairs[text] = None
        else:
            self._counts(text, process)

    def _counts(self, text: str, process: Process) -> None:
        if "NVLS multicast support is" in text or "Connected NVLS" in text:
            self.log.nvls[process] = "not available" not in text
        if found := _NODE.match(text):
            self._link(process, *found.groups())
        elif found := _PATTERN.search(text):
            self.log.patterns.setdefault(process, (int(found[1]), float(found[2]), found[3]))
        if found := _TREES.search(text):
            self.log.trees[process] = len(re.findall(r"\[\d{1,9}\]", found[1]))
        if counts := _CHANNELS.findall(text):
            self.log.channels[process] = {kind: int(count) for count, kind in counts}

    def _link(self, process: Process, kind: str | None, rate: str | None, node: str, name: str) -> None:
        """`+ PCI[24.0] - GPU/1B000 (0)` and, below it, `+ NVL[240.0] - NVS/0`."""
        if node == "GPU" and kind == "PCI":
            self.nodes[process] = name
            self.rates[process][name] = defaultdict(float, PCI=float(rate or 0))
        elif kind in {"NVL", "XGMI", "C2C"} and process in self.nodes:
            self.rates[process][self.nodes[process]][kind] += float(rate or 0)
        elif node != "GPU" or kind is None:
            self.nodes.pop(process, None)

    def _placed(self, link: Link) -> Link:
        """A connection with its communicator; versions before 2.16 name that only when init is complete."""
        if link.communicator is not None:
            return link
        ends = {link.source, link.target}
        own = [self.members[key] for key in self.of_process[link.process]]
        return replace(link, communicator=next((one.communicator for one in own if one.rank in ends), None))

    def finish(self) -> None:
        """Put into the log what is known only now."""
        for (host, _), own in self.rates.items():
            self.log.link_gb_per_s[host].update(own)
        if self.bare_version is not None:
            self.log.versions = dict.fromkeys(self.log.last_texts, self.bare_version) | self.log.versions
        self.log.members = tuple(self.members.values())
        self.log.links = tuple(map(self._placed, self.found))


def _named(code: str, names: Sequence[str]) -> str:
    """A name by its number, as older versions print it."""
    return names[int(code)] if code.isdigit() and int(code) < len(names) else code
