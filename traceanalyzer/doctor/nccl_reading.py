"""NCCL logs, read line by line: files of one job are put together, files of several jobs kept apart."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from traceanalyzer.doctor.nccl_lines import Line, lines
from traceanalyzer.doctor.nccl_log import Link, Member, NcclLog, Process, Timeout
from traceanalyzer.errors import InputError

_VERSION = re.compile(r"(?:NCCL|RCCL) version (\d\S*)")
_MEMBER = re.compile(r"comm (0x[0-9a-fA-F]+) rank (\d{1,6}) n[rR]anks (\d{1,6})(?!\d)(.*)$")
_STATE = re.compile(r"- (Init|Destroy|Abort|Finalize) (START|COMPLETE)")
_FACT = re.compile(r"(?:(cudaDev|nvmlDev) (\d{1,9})(?!\w)|(busId|commId|parent) (\w+))")
_NODES = re.compile(r"comm (0x\w+) rank (\d{1,9}) nRanks (\d{1,9}) nNodes (\d{1,9})")
_TIMINGS = re.compile(r"Init timings - \w+: rank (\d{1,9}) nranks (\d{1,9}) total (\d{1,9}(?:\.\d{1,9})?)")
_LINK = re.compile(
    r"(?:Channel|Ring|Tree) (\d{1,9})(?:/\d+)? : (\d{1,9})\[\w+\] -> (\d{1,9})\[\w+\] "
    r"(?:\[(?:send|receive)\] )?via (\S.*)$"
)
_RING = re.compile(r"Channel (\d{1,9})/(\d{1,9}) : +(\d{1,9}(?: +\d{1,9})*) *$")
_TREES = re.compile(r"Trees ((?:\[\d{1,9}\] \S+ ?)+)")
_CHANNELS = re.compile(r"(\d{1,9}) (coll|collnet|nvls|p2p) channels(?! per)")
_NETWORK = re.compile(r"Using network (\S.*)$")
_IB = re.compile(r"NET/IB : Using +(.*?)(?:;.*)?$")
_IB_DEVICE = re.compile(r"\[\d{1,9}\](\w+):\d{1,9}/(\w+)")
_ENVIRONMENT = re.compile(r"(NCCL_\w+) set (?:by environment )?to (.*?)\.?$")
_CHOICE = re.compile(r"(\w+): (\d{1,18}) Bytes -> Algo (\w+) proto (\w+)")
_OPERATION = re.compile(r"\w+: opCount (?:0x)?([0-9a-fA-F]{1,16}) sendbuff")
_P2P_OFF = re.compile(r"P2P is disabled between .*|Could not enable P2P between .*", re.IGNORECASE)
_TIMEOUT = re.compile(
    r"\[Rank (\d{1,9})\].*Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(\d{1,9}), OpType=(\w+).*?(?:Timeout\(ms\)=(\d{1,9}))?\)"
)
_CONNECTED = re.compile(r"Connected (?:all )?(?:rings|trees)|Connected binomial trees")

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
    for number, (name, text) in enumerate(texts):
        own = list(lines(text, number))
        told = sum(line.process is not None for line in own)
        if not told and not any(_VERSION.search(line.text) or _TIMEOUT.search(line.text) for line in own):
            raise InputError(f"{name}: no line of an NCCL log in it; record one with NCCL_DEBUG=INFO")
        parsed.append(own)
    return tuple(
        _log(tuple(texts[number][0] for number in job), [line for number in job for line in parsed[number]])
        for job in _jobs(parsed)
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


def _log(names: tuple[str, ...], said: list[Line]) -> NcclLog:
    reading = _Reading()
    for line in said:
        reading.take(line)
    return reading.log(names)


class _Reading:
    """What has been read of a job so far."""

    def __init__(self) -> None:
        self.members: dict[tuple[Process, str], Member] = {}
        self.of_process: dict[Process, list[tuple[Process, str]]] = defaultdict(list)
        self.versions: dict[Process, str] = {}
        self.bare_version: str | None = None
        self.known: dict[str, dict[Process, Any]] = defaultdict(dict)
        self.rings: dict[tuple[str | None, int], tuple[int, ...]] = {}
        self.connected: set[Process] = set()
        self.environment: dict[tuple[str, str], set[Process]] = defaultdict(set)
        self.warnings: dict[str, list[Process]] = defaultdict(list)
        self.algorithms: Counter[tuple[str, str, str]] = Counter()
        self.p2p_off: dict[str, None] = {}
        self.timeouts: dict[tuple[int, int], Timeout] = {}
        self.found: list[Link] = []
        self.count = 0

    def take(self, line: Line) -> None:
        """Add one line."""
        if found := _TIMEOUT.search(line.text):
            limit = int(found[4]) if found[4] else None
            self.timeouts[int(found[1]), int(found[2])] = Timeout(int(found[1]), int(found[2]), found[3], limit)
        if line.process is None:
            if found := _VERSION.search(line.text):
                self.bare_version = found[1]
            return
        self.count += 1
        self.known["last"][line.process] = line.text
        if line.level == "WARN":
            self.warnings[line.text].append(line.process)
        for take in (self._member, self._connection, self._process):
            take(line, line.process)

    def _member(self, line: Line, process: Process) -> None:
        if found := _NODES.search(line.text):
            self._update(process, found[1], nodes=int(found[4]))
        elif (found := _MEMBER.search(line.text)) and (state := _STATE.search(found[4])):
            self._state(line.text, process, found, state)
        if found := _TIMINGS.search(line.text):
            own = [key for key in self.of_process[process] if self.members[key].rank == int(found[1])]
            if own:
                self.members[own[-1]] = replace(self.members[own[-1]], init_s=float(found[3]))

    def _state(self, text: str, process: Process, found: re.Match[str], state: re.Match[str]) -> None:
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
            bus_id=facts.get("busId") or before.bus_id,
            has_started=before.has_started or (state[1] == "Init" and state[2] == "START"),
            is_complete=before.is_complete or (state[1] == "Init" and state[2] == "COMPLETE"),
            is_closed=state[1] if state[1] in {"Destroy", "Abort"} else before.is_closed,
            is_split=before.is_split or "parent" in facts or "CommSplit" in text,
        )

    def _update(self, process: Process, pointer: str, **facts: Any) -> None:
        if (process, pointer) in self.members:
            self.members[process, pointer] = replace(self.members[process, pointer], **facts)

    def _connection(self, line: Line, process: Process) -> None:
        if found := _LINK.search(line.text):
            source, target = int(found[2]), int(found[3])
            communicator = self._communicator(process, {source, target}, max(source, target))
            self.found.append(Link(communicator, process, int(found[1]), source, target, found[4].strip()))
        elif found := _RING.search(line.text):
            order = tuple(int(rank) for rank in found[3].split())
            self.rings[self._communicator(process, set(order), max(order)), int(found[1])] = order
        elif _CONNECTED.search(line.text):
            self.connected.add(process)

    def _communicator(self, process: Process, ranks: set[int], highest: int) -> str | None:
        """The process' newest communicator that a line about these ranks can be of."""
        for key in reversed(self.of_process[process]):
            member = self.members[key]
            if member.rank in ranks and member.size > highest:
                return member.communicator
        return None

    def _process(self, line: Line, process: Process) -> None:
        text = line.text
        if found := _VERSION.search(text):
            self.versions[process] = found[1]
        elif found := _ENVIRONMENT.match(text):
            self.environment[found[1], found[2].strip()].add(process)
        elif found := _NETWORK.search(text):
            self.known["network"][process] = found[1].strip()
        elif found := _IB.search(text):
            self.known["ib"][process] = ", ".join(f"{name} ({kind})" for name, kind in _IB_DEVICE.findall(found[1]))
        elif found := _CHOICE.search(text):
            self.algorithms[found[1], _named(found[3], _ALGORITHMS), _named(found[4], _PROTOCOLS)] += 1
        elif found := _OPERATION.search(text):
            self.known["operation"][process] = int(found[1], 16)
        elif _P2P_OFF.search(text):
            self.p2p_off[text] = None
        else:
            self._counts(text, process)

    def _counts(self, text: str, process: Process) -> None:
        if "NVLS multicast support is" in text or "Connected NVLS" in text:
            self.known["nvls"][process] = "not available" not in text
        if found := _TREES.search(text):
            self.known["trees"][process] = len(re.findall(r"\[\d{1,9}\]", found[1]))
        if counts := _CHANNELS.findall(text):
            self.known["channels"][process] = {kind: int(count) for count, kind in counts}

    def _placed(self, link: Link) -> Link:
        """A connection with its communicator; versions before 2.16 name that only when init is complete."""
        if link.communicator is not None:
            return link
        ends = {link.source, link.target}
        own = [self.members[key] for key in self.of_process[link.process]]
        return replace(link, communicator=next((one.communicator for one in own if one.rank in ends), None))

    def log(self, names: tuple[str, ...]) -> NcclLog:
        """All that was read."""
        processes: Iterable[Process] = self.known["last"]
        bare = {} if self.bare_version is None else dict.fromkeys(processes, self.bare_version)
        return NcclLog(
            names=names,
            versions=bare | self.versions,
            members=tuple(self.members.values()),
            links=tuple(self._placed(link) for link in self.found),
            channels=self.known["channels"],
            networks=self.known["network"],
            ib_devices=self.known["ib"],
            rings=self.rings,
            trees=self.known["trees"],
            nvls=self.known["nvls"],
            connected=frozenset(self.connected),
            environment={key: frozenset(who) for key, who in self.environment.items()},
            warnings={text: tuple(who) for text, who in self.warnings.items()},
            algorithms=self.algorithms,
            operations=self.known["operation"],
            p2p_disabled_pairs=tuple(self.p2p_off),
            timeouts=tuple(self.timeouts.values()),
            last_texts=self.known["last"],
            nccl_lines=self.count,
        )


def _named(code: str, names: Sequence[str]) -> str:
    """A name by its number, as older versions print it."""
    return names[int(code)] if code.isdigit() and int(code) < len(names) else code
