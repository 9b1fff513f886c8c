"""NCCL logs (`NCCL_DEBUG=INFO`): who wrote each line, and what the lines of a job say."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

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
            text = line[level.end() : after]
            if after < len(line):
                text = _PREFIX_OF_NEXT.sub("", text)
            host, pid = line[start : head.end("host")] if head["host"] else "", head["pid"] or ""
            process = host, int(pid if pid.isdecimal() else head["device"] or -1)
            yield Line(process, level[1], text.strip())


def _clean(text: str) -> Iterator[str]:
    """The lines without colors, and those joined that a terminal cut: all full ones go on in one that has no head."""
    lines = ANSI.sub("", text).splitlines()
    width = max(map(len, lines), default=0)
    is_full = [len(line) == width and not line.endswith("  ") for line in lines]  # terminals pad a text's last line
    cut = [(line, after) for full, (line, after) in zip(is_full, pairwise(lines), strict=False) if full]
    is_wrapped = sum("NCCL" in line for line, _ in cut) > 1 and not any(
        _LEVEL.search(after) or after.startswith("[rank") for _, after in cut
    )
    whole = ""
    for line, full in zip(lines, is_full, strict=True):
        whole += line
        if not (is_wrapped and full):
            yield whole
            whole = ""
    if whole:
        yield whole


def _rest_of_previous(head: re.Match[str], hosts: Collection[str]) -> int:
    """How much of a head's host is the end of a line that it ran into: what stands before a known host's name."""
    host = head["host"] or ""
    return len(host) - len(max((name for name in hosts if name and host.endswith(name)), key=len, default=host))


Process = tuple[str, int]
"""Host and process id: what NCCL marks its lines with."""


@dataclass(slots=True)
class Member:
    """One rank of one communicator.

    Attributes:
        communicator: its id; where the version prints none, its size and place among the process' communicators.
        process: who has it.
        rank: in the communicator.
        size: ranks of the communicator.
        device: CUDA device of the process, `None` where unknown.
        gpu: the machine's number of the GPU (NVML), `None` where unknown.
        nodes: nodes of the communicator, where printed.
        init_s: time of init, where printed.
        events: `Init START` (not before 2.16), `Init COMPLETE`, `Destroy COMPLETE`, …
    """

    communicator: str
    process: Process
    rank: int
    size: int
    device: int | None = None
    gpu: int | None = None
    nodes: int | None = None
    init_s: float | None = None
    events: set[str] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        """Whether the end of init is in the log."""
        return "Init COMPLETE" in self.events

    @property
    def is_unfinished(self) -> bool:
        """Whether init started and neither ended nor was given up."""
        return "Init START" in self.events and not (self.is_complete or self.closed_by)

    @property
    def closed_by(self) -> str | None:
        """`Destroy` or `Abort`, where it was closed."""
        return next((word for word in ("Destroy", "Abort") for event in self.events if event.startswith(word)), None)


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
        facts: name of a fact (`FACTS`) → process → its value.
        members: ranks of communicators.
        links: connections.
        rings: (communicator, channel) → ranks in ring order.
        environment: (variable, value) → processes that print it.
        warnings: text → processes that warned.
        algorithms: (collective, algorithm, protocol) → times chosen, where the tuner logs.
        p2p_disabled_pairs: lines by which NCCL says that P2P is off between two GPUs.
        watchdog: what PyTorch's watchdog and the launcher printed.
        link_gb_per_s: (host, kind of link: `NVL`, `PCI`) → GPU's bus → GB/s of all its links, by NCCL's topology.
        test_gb_per_s: bytes → bus bandwidth that nccl-tests measured.
        wrong_values: values that nccl-tests found wrong.
        has_more: whether other lines follow the last one of NCCL.
        last_texts: process → its last line.
        nccl_lines: lines that NCCL marked.
    """

    names: tuple[str, ...]
    facts: dict[str, dict[Process, Any]] = field(default_factory=lambda: {name: {} for name in FACTS})
    members: tuple[Member, ...] = ()
    links: tuple[Link, ...] = ()
    rings: dict[tuple[str | None, int], tuple[int, ...]] = field(default_factory=dict)
    environment: dict[tuple[str, str], set[Process]] = field(default_factory=lambda: defaultdict(set))
    warnings: dict[str, list[Process]] = field(default_factory=lambda: defaultdict(list))
    algorithms: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    p2p_disabled_pairs: dict[str, None] = field(default_factory=dict)
    watchdog: Watchdog = field(default_factory=Watchdog)
    link_gb_per_s: dict[tuple[str, str], dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
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
        return tuple(sorted({host for host, _ in (*(member.process for member in self.members), *self.facts["nccl"])}))

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
        counts = {value: len(who) for (name, value), who in self.environment.items() if name == variable}
        return max(counts, key=counts.__getitem__, default=None)

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

    def kinds(self) -> Counter[str]:
        """Kind of transport → connections."""
        return Counter(link.kind for link in self.links)

    def within_node(self) -> Counter[str]:
        """The same of connections inside a host, as far as the log shows."""
        return Counter(link.kind for link in self.links if self.is_within_node(link))

    def is_within_node(self, link: Link) -> bool:
        """Whether a connection's two ranks are on one host, as far as the log shows."""
        ends = self.ends(link)
        return ends[0].process[0] == ends[1].process[0] if ends else self.is_one_node

    def coll_channels(self) -> int | None:
        """Channels for collectives, the most of all ranks."""
        counts = [channels["coll"] for channels in self.facts["channels"].values() if "coll" in channels]
        return max(counts or [channel + 1 for _, channel in self.rings], default=None)

    def ends(self, link: Link) -> list[Member]:
        """The two ranks that a connection joins; none where the log does not have both."""
        known = [self._by_rank.get((link.communicator or "", rank)) for rank in (link.source, link.target)]
        return [one for one in known if one is not None] if None not in known else []


_MEMBER = re.compile(r"comm (0x[0-9a-fA-F]+) rank (\d{1,6}) n[rR]anks (\d{1,6})(?!\d)(.*)$")
_STATE = re.compile(r"- ((?:Init|Destroy|Abort|Finalize) (?:START|COMPLETE))")
_MEMBER_FACT = re.compile(r"(cudaDev|nvmlDev|nNodes) (\d{1,9})(?!\w)|(commId) (\w+)")
_TIMINGS = re.compile(r"Init timings - \w+: rank (\d{1,9}) nranks (\d{1,9}) total (\d{1,9}(?:\.\d{1,9})?)")
_LINK = re.compile(
    r"(?:Channel|Ring|Tree) (\d{1,9})(?:/\d+)? : (\d{1,9})\[\w+\] -> (\d{1,9})\[\w+\] "
    r"(?:\[(?:send|receive)\] )?via (\S.*)$"
)
_RING = re.compile(r"Channel (\d{1,9})/(\d{1,9}) : +(\d{1,9}(?: +\d{1,9})*) *$")
_ENVIRONMENT = re.compile(r"(NCCL_\w+) set (?:by environment )?to (.*?)\.?$")
_CHOICE = re.compile(r"(\w+): (\d{1,18}) Bytes -> Algo (\w+) proto (\w+)")
_P2P_OFF = re.compile(r"P2P is disabled between .*|Could not enable P2P between .*", re.IGNORECASE)
_NODE = re.compile(r"^ *(?:\+ (\w+)\[(\d{1,9}(?:\.\d{1,9})?)\] - )?(\w+)/([\w-]+)")
_TEST_ROW = re.compile(r"^ *(\d{1,15}) +\d+ +\w+ +\w+ +-?\d+ +(.*)$")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values *: *(\d{1,18})")
_VERSION = re.compile(r"(?:NCCL|RCCL) version (\d\S*)")

FACTS: Mapping[str, tuple[str, re.Pattern[str], Callable[[re.Match[str]], Any]]] = {
    "nccl": (" version ", _VERSION, lambda found: found[1]),
    "interface": ("Bootstrap", re.compile(r"Bootstrap *: Using (?:\[\d\])?(\S+?):"), lambda found: found[1]),
    "network": ("Using network", re.compile(r"Using network (\S.*)$"), lambda found: found[1].strip()),
    "ib_devices": (
        "NET/IB",
        re.compile(r"NET/IB : Using +(.*?)(?:;.*)?$"),
        lambda found: ", ".join(
            f"{name} ({kind})" for name, kind in re.findall(r"\[\d{1,9}\](\w+):\d{1,9}/(\w+)", found[1])
        ),
    ),
    "operation": (
        "opCount",
        re.compile(r"opCount (?:0x)?([0-9a-fA-F]{1,16}) sendbuff"),
        lambda found: int(found[1], 16),
    ),
    "connected": ("Connected", re.compile("Connected (?:all |binomial )?(?:rings|trees)"), bool),
    "nvls": (
        "NVLS",
        re.compile("NVLS multicast support is.*|Connected NVLS"),
        lambda found: "not available" not in found[0],
    ),
    "trees": ("Trees", re.compile(r"Trees ((?:\[\d{1,9}\] \S+ ?)+)"), lambda found: found[1].count("[")),
    "channels": (
        " channels",
        re.compile(r"\d{1,9} coll channels.*"),
        lambda found: {kind: int(count) for count, kind in re.findall(r"(\d{1,9}) (\w+) channels(?! per)", found[0])},
    ),
    "ring_graph": (
        "Pattern 4",
        re.compile(r"nChannels (\d{1,9}), bw ([\d.]{1,20})/\S+, type (\w+)/"),
        lambda found: (int(found[1]), float(found[2]), found[3]),
    ),
    "nvl_domain": ("nvlDomainSize", re.compile(r"MNNVL 1 .*nvlDomainSize (\d{1,9})"), lambda found: int(found[1])),
    "fabric": (
        "fabric UUID",
        re.compile(r"fabric UUID ([\w.]+) cliqueId (\w+) state (\d)"),
        lambda found: found.groups(),
    ),
}
"""What a line tells of its process: name → a part of such lines, the pattern, and what makes a value of the match.

`ring_graph` is channels, GB/s of each, and the farthest path; `fabric` the NVLink domain's UUID, clique and state (3:
ready), by `src/init.cc` and `src/mnnvl.cc` of NCCL 2.30.
"""

_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


def read_logs(texts: Sequence[tuple[str, str]]) -> tuple[NcclLog, ...]:
    """Logs of one or several jobs: files that name the same communicator are one job's.

    Args:
        texts: name and content of each file.

    Raises:
        InputError: a file holds no line of NCCL.
    """
    for name, text in texts:
        if not holds_log(text):
            raise InputError(f"{name}: no line of an NCCL log in it; record one with NCCL_DEBUG=INFO")
    parsed = [list(lines(text)) for _, text in texts]
    return tuple(
        _Reading([texts[number] for number in job]).finished(line for number in job for line in parsed[number])
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
    jobs: list[set[int]] = []
    for number in sorted(range(len(ids)), key=lambda number: not ids[number]):
        same = [job for job in jobs if any(ids[other] & ids[number] for other in job)]
        same = same if ids[number] else sorted(jobs, key=min)[:1]
        jobs = [job for job in jobs if job not in same] + [{number}.union(*same)]
    return sorted(map(sorted, jobs))


class _Reading:
    """What has been read of a job so far: the log that is filled, and what is not placed in it yet."""

    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        self.log = NcclLog(tuple(name for name, _ in texts))
        self.log.watchdog = read_watchdog("\n".join(line for _, text in texts for line in _clean(text)))
        self.members: dict[tuple[Process, str], Member] = {}
        self.of_process: dict[Process, list[tuple[Process, str]]] = defaultdict(list)
        self.bare_version: str | None = None
        self.gpus: dict[Process, str] = {}
        self.rates: dict[Process, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        self.found: list[Link] = []

    def finished(self, found: Iterable[Line]) -> NcclLog:
        """The log of these lines."""
        for line in found:
            if line.process is None:
                self._unmarked(line.text)
            else:
                self._marked(line, line.process)
        for (host, _), kinds in self.rates.items():
            for kind, rates in kinds.items():
                self.log.link_gb_per_s[host, kind] |= rates
        if self.bare_version is not None:
            self.log.facts["nccl"] = dict.fromkeys(self.log.last_texts, self.bare_version) | self.log.facts["nccl"]
        self.log.members = tuple(self.members.values())
        self.log.links = tuple(map(self._placed, self.found))
        return self.log

    def _unmarked(self, text: str) -> None:
        self.log.has_more |= bool(text)
        if found := _VERSION.search(text):
            self.bare_version = found[1]
        elif found := _TEST_ROW.match(text):  # time, algbw, busbw, wrong: out of place, then in place
            cells = found[2].split()
            rates = [float(cell) for cell in cells[2::4] if cell.replace(".", "", 1).isdecimal()]
            self.log.test_gb_per_s |= {int(found[1]): max(rates)} if rates else {}
        elif found := _OUT_OF_BOUNDS.search(text):
            self.log.wrong_values += int(found[1])
        elif known_error(text):
            rank = re.match(r"(?:\[?rank(\d{1,9})\]?)", text)
            self.log.warnings[text].append(("", int(rank[1]) if rank else -1))

    def _marked(self, line: Line, process: Process) -> None:
        log, text = self.log, line.text
        log.nccl_lines += 1
        log.has_more = False
        log.last_texts[process] = text
        if line.level == "WARN":
            log.warnings[text].append(process)
        for name, (stem, pattern, value_of) in FACTS.items():
            if stem in text and (found := pattern.search(text)):
                log.facts[name][process] = value_of(found)
        if found := _LINK.search(text):
            source, target = int(found[2]), int(found[3])
            communicator = self._communicator(process, {source, target}, max(source, target))
            self.found.append(Link(communicator, process, int(found[1]), source, target, found[4].strip()))
        elif found := _RING.search(text):
            order = tuple(int(rank) for rank in found[3].split())
            log.rings[self._communicator(process, set(order), max(order)), int(found[1])] = order
        elif found := _NODE.match(text):
            self._topology_node(process, *found.groups())
        else:
            self._event(process, text)

    def _event(self, process: Process, text: str) -> None:
        log = self.log
        if found := _MEMBER.search(text):
            self._member(process, found)
        elif found := _TIMINGS.search(text):
            for member in [one for one in self._own(process) if one.rank == int(found[1])][:1]:
                member.init_s = float(found[3])
        elif found := _ENVIRONMENT.match(text):
            log.environment[found[1], found[2].strip()].add(process)
        elif found := _CHOICE.search(text):
            log.algorithms[found[1], _named(found[3], _ALGORITHMS), _named(found[4], _PROTOCOLS)] += 1
        elif _P2P_OFF.search(text):
            log.p2p_disabled_pairs[text] = None

    def _member(self, process: Process, found: re.Match[str]) -> None:
        facts = {one[0] or one[2]: one[1] or one[3] for one in _MEMBER_FACT.findall(found[4])}
        event = state[1] if (state := _STATE.search(found[4])) else ""
        key, size = (process, found[1]), int(found[3])
        if not event and "nNodes" not in facts:
            return
        member = self.members.get(key)
        if member is None or (event == "Init START" and member.closed_by):
            nth = len(self.of_process[process])
            if member is not None:  # an address that was used before: keep the closed one under a name of its own
                self.members[process, f"{found[1]} closed {nth}"] = member
            member = self.members[key] = Member(f"{size} ranks, number {nth + 1}", process, int(found[2]), size)
            self.of_process[process].append(key)
        member.communicator = facts.pop("commId", member.communicator)
        for name, value in facts.items():
            setattr(member, {"cudaDev": "device", "nvmlDev": "gpu", "nNodes": "nodes"}[name], int(value))
        member.events |= {event} - {""}

    def _communicator(self, process: Process, ranks: set[int], highest: int) -> str | None:
        """The process' newest communicator that a line about these ranks can be of."""
        own = self._own(process)
        return next((one.communicator for one in own if one.rank in ranks and one.size > highest), None)

    def _own(self, process: Process) -> list[Member]:
        """The process' ranks of communicators, the newest first."""
        return [self.members[key] for key in reversed(self.of_process[process])]

    def _topology_node(self, process: Process, kind: str | None, rate: str | None, node: str, name: str) -> None:
        """`+ PCI[24.0] - GPU/1B000 (0)` and, below it, `+ NVL[240.0] - NVS/0`."""
        rates = self.rates[process]
        if node == "GPU" and kind == "PCI":
            self.gpus[process] = name
            for one in rates.values():  # the process prints its topology again
                one.pop(name, None)
            rates[kind][name] = float(rate or 0)
        elif kind in {"NVL", "XGMI", "C2C"} and process in self.gpus:
            gpu = self.gpus[process]
            rates[kind][gpu] = rates[kind].get(gpu, 0) + float(rate or 0)
        elif node != "GPU" or kind is None:
            self.gpus.pop(process, None)

    def _placed(self, link: Link) -> Link:
        """A connection with its communicator; versions before 2.16 name that only when init is complete."""
        own = [one.communicator for one in self._own(link.process) if one.rank in {link.source, link.target}]
        return link if link.communicator else replace(link, communicator=own[-1] if own else None)


def _named(code: str, names: Sequence[str]) -> str:
    """A name by its number, as older versions print it."""
    return names[int(code)] if code.isdigit() and int(code) < len(names) else code
