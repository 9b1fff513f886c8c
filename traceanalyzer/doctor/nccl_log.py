"""NCCL logs (`NCCL_DEBUG=INFO`): who wrote each line, and what the lines of a job say."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from traceanalyzer.doctor.knowledge import KNOWLEDGE, known_error
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


Process = tuple[str, int]
"""Host and process id: what NCCL marks its lines with; of a redacted log the device stands for the process id."""

Line = tuple[Process | None, str, str]
"""Who wrote it and its level, such as `WARN` (`None` and nothing for lines that NCCL did not mark); what it says."""


def lines(text: str) -> Iterator[Line]:
    """The log's lines; two that ran into each other are separated at their heads."""
    hosts: set[str] = set()
    for line in _clean(text):
        levels = list(_LEVEL.finditer(line)) if "NCCL" in line else []
        if not levels:
            yield None, "", line.strip()
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
            yield (host, int(pid if pid.isdecimal() else head["device"] or -1)), level[1], text.strip()


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
        facts: name of a fact (a group of `lines.facts` in `knowledge.toml`) → process → its text.
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
    facts: dict[str, dict[Process, str]] = field(default_factory=lambda: defaultdict(dict))
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

    @property
    def has_nvls(self) -> bool:
        """Whether any process has NVLink SHARP."""
        return any("not available" not in text for text in self.facts["nvls"].values())

    @property
    def ib_devices(self) -> list[str]:
        """InfiniBand and RoCE cards as the processes list them: `mlx5_0 (IB), mlx5_1 (RoCE)`."""
        found = (re.findall(r"\[\d{1,9}\](\w+):\d{1,9}/(\w+)", text) for text in self.facts["ib_devices"].values())
        return sorted({", ".join(f"{name} ({kind})" for name, kind in cards) for cards in found if cards})

    def coll_channels(self) -> int | None:
        """Channels for collectives, the most of all ranks."""
        counts = map(int, self.facts["coll_channels"].values())
        return max([*counts] or [channel + 1 for _, channel in self.rings], default=None)

    def ends(self, link: Link) -> list[Member]:
        """The two ranks that a connection joins; none where the log does not have both."""
        known = [self._by_rank.get((link.communicator or "", rank)) for rank in (link.source, link.target)]
        return [one for one in known if one is not None] if None not in known else []


_PATTERNS = {kind: {name: re.compile(pattern) for name, pattern in own.items()}
             for kind, own in KNOWLEDGE.lines.items() if kind in {"facts", "nccl", "others"}}  # fmt: skip

_MEMBER_FACT = re.compile(r"(cudaDev|nvmlDev|nNodes) (\d{1,9})(?!\w)|(commId) (\w+)")
_STATE = re.compile(r"- ((?:Init|Destroy|Abort|Finalize) (?:START|COMPLETE))")

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
        any(
            _LEVEL.search(line) or _PATTERNS["others"]["test_row"].match(line) or known_error(line)
            for line in text.splitlines()
        )
        or re.match(r"NCCL version \d\S*\+cuda", text)
        or read_watchdog("\n".join(_clean(text)))
    )


def _jobs(parsed: Sequence[list[Line]]) -> list[list[int]]:
    """Which files belong together: those that share a communicator's id; those without any join the first."""
    ids = [{found[1] for _, _, text in own if (found := re.search(r"commId (0x\w+)", text))} for own in parsed]
    jobs: list[set[int]] = []
    for number in sorted(range(len(ids)), key=lambda number: not ids[number]):
        same = [job for job in jobs if any(ids[other] & ids[number] for other in job)]
        same = same if ids[number] else sorted(jobs, key=min)[:1]
        jobs = [job for job in jobs if job not in same] + [{number}.union(*same)]
    return sorted(map(sorted, jobs))


class _Reading:
    """What has been read of a job so far: the log that is filled, and what is not placed in it yet.

    A line of `knowledge.toml` goes to the method of its pattern's name, with the pattern's groups.
    """

    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        self.log = NcclLog(tuple(name for name, _ in texts))
        self.log.watchdog = read_watchdog("\n".join(line for _, text in texts for line in _clean(text)))
        self.members: dict[tuple[Process, str], Member] = {}
        self.of_process: dict[Process, list[tuple[Process, str]]] = defaultdict(list)
        self.bare_version: str | None = None
        self.gpus: dict[Process, str] = {}
        self.rates: dict[tuple[Process, str], dict[str, float]] = defaultdict(dict)
        self.found: list[Link] = []

    def finished(self, found: Iterable[Line]) -> NcclLog:
        """The log of these lines."""
        log = self.log
        for process, level, text in found:
            if process is not None:
                self._marked(process, level, text)
            else:
                log.has_more |= bool(text)
                if not self._is_read("others", text) and known_error(text):
                    rank = re.match(r"(?:\[?rank(\d{1,9})\]?)", text)
                    log.warnings[text].append(("", int(rank[1]) if rank else -1))
        for ((host, _), kind), rates in self.rates.items():
            log.link_gb_per_s[host, kind] |= rates
        if self.bare_version is not None:
            log.facts["nccl"] = dict.fromkeys(log.last_texts, self.bare_version) | log.facts["nccl"]
        log.members = tuple(self.members.values())
        log.links = tuple(map(self._placed, self.found))
        return log

    def _is_read(self, kind: str, text: str, *process: Process) -> bool:
        """Whether a line is of a kind's patterns; the first that matches is read."""
        for name, pattern in _PATTERNS[kind].items():
            if found := pattern.search(text):
                getattr(self, name)(*process, **found.groupdict())
                return True
        return False

    def _marked(self, process: Process, level: str, text: str) -> None:
        log = self.log
        log.nccl_lines += 1
        log.has_more = False
        log.last_texts[process] = text
        if level == "WARN":
            log.warnings[text].append(process)
        for stem, pattern in _PATTERNS["facts"].items():
            if stem in text and (found := pattern.search(text)):
                for name, value in found.groupdict().items():
                    if value is not None:
                        log.facts[name][process] = value
        self._is_read("nccl", text, process)

    def version(self, version: str) -> None:
        """NCCL's version, printed before any process has its mark."""
        self.bare_version = version

    def test_row(self, size: str, figures: str) -> None:
        """nccl-tests' time, algbw, busbw and wrong values: out of place, then in place."""
        rates = [float(cell) for cell in figures.split()[2::4] if cell.replace(".", "", 1).isdecimal()]
        self.log.test_gb_per_s |= {int(size): max(rates)} if rates else {}

    def out_of_bounds(self, count: str) -> None:
        """How many values nccl-tests found wrong."""
        self.log.wrong_values += int(count)

    def link(self, process: Process, channel: str, source: str, target: str, transport: str) -> None:
        """A connection of a channel."""
        ends = int(source), int(target)
        self.found.append(Link(self._communicator(process, ends), process, int(channel), *ends, transport.strip()))

    def ring(self, process: Process, channel: str, ranks: str) -> None:
        """A channel's ranks in ring order."""
        order = tuple(map(int, ranks.split()))
        self.log.rings[self._communicator(process, order), int(channel)] = order

    def timings(self, process: Process, rank: str, init_s: str) -> None:
        """How long init took."""
        for member in [one for one in self._own(process) if one.rank == int(rank)][:1]:
            member.init_s = float(init_s)

    def environment(self, process: Process, name: str, value: str) -> None:
        """A variable that the environment sets."""
        self.log.environment[name, value.strip()].add(process)

    def choice(self, _: Process, collective: str, algorithm: str, protocol: str) -> None:
        """What the tuner chose."""
        self.log.algorithms[collective, _named(algorithm, _ALGORITHMS), _named(protocol, _PROTOCOLS)] += 1

    def p2p_off(self, _: Process, line: str) -> None:
        """That P2P is off between two GPUs."""
        self.log.p2p_disabled_pairs[line] = None

    def member(self, process: Process, address: str, rank: str, size: str, rest: str) -> None:
        """A rank of a communicator, and what happens to it."""
        facts = {one[0] or one[2]: one[1] or one[3] for one in _MEMBER_FACT.findall(rest)}
        event = state[1] if (state := _STATE.search(rest)) else ""
        key = (process, address)
        if not event and "nNodes" not in facts:
            return
        member = self.members.get(key)
        if member is None or (event == "Init START" and member.closed_by):
            nth = len(self.of_process[process])
            if member is not None:  # an address that was used before: keep the closed one under a name of its own
                self.members[process, f"{address} closed {nth}"] = member
            name = f"{int(size)} ranks, number {nth + 1}"
            member = self.members[key] = Member(name, process, int(rank), int(size))
            self.of_process[process].append(key)
        member.communicator = facts.pop("commId", member.communicator)
        for name, value in facts.items():
            setattr(member, {"cudaDev": "device", "nvmlDev": "gpu", "nNodes": "nodes"}[name], int(value))
        member.events |= {event} - {""}

    def node(self, process: Process, kind: str | None, rate: str | None, node: str, name: str) -> None:
        """`+ PCI[24.0] - GPU/1B000 (0)` of NCCL's topology and, below it, `+ NVL[240.0] - NVS/0`."""
        if node == "GPU" and kind == "PCI":
            self.gpus[process] = name
            for (who, _), rates in self.rates.items():  # the process prints its topology again
                if who == process:
                    rates.pop(name, None)
            self.rates[process, kind][name] = float(rate or 0)
        elif kind in {"NVL", "XGMI", "C2C"} and process in self.gpus:
            rates, gpu = self.rates[process, kind], self.gpus[process]
            rates[gpu] = rates.get(gpu, 0) + float(rate or 0)
        elif node != "GPU" or kind is None:
            self.gpus.pop(process, None)

    def _communicator(self, process: Process, ranks: Collection[int]) -> str | None:
        """The process' newest communicator that a line about these ranks can be of."""
        own = self._own(process)
        return next((one.communicator for one in own if one.rank in ranks and one.size > max(ranks)), None)

    def _own(self, process: Process) -> list[Member]:
        """The process' ranks of communicators, the newest first."""
        return [self.members[key] for key in reversed(self.of_process[process])]

    def _placed(self, link: Link) -> Link:
        """A connection with its communicator; versions before 2.16 name that only when init is complete."""
        own = [one.communicator for one in self._own(link.process) if one.rank in {link.source, link.target}]
        return link if link.communicator else replace(link, communicator=own[-1] if own else None)


def _named(code: str, names: Sequence[str]) -> str:
    """A name by its number, as older versions print it."""
    return names[int(code)] if code.isdigit() and int(code) < len(names) else code
