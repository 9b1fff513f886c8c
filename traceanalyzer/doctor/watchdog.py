"""What PyTorch's NCCL watchdog (1.13 to today) and launchers print when a job hangs or dies, and what it means."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from signal import SIGABRT, Signals
from typing import TYPE_CHECKING

from traceanalyzer.doctor.knowledge import KNOWLEDGE, Case, Facts, by_value, known_error, operation_words

if TYPE_CHECKING:
    from traceanalyzer.doctor.nccl_log import NcclLog

_WHO = r"(?:\[rank(?P<job>\d{1,9})\]:[^\n]{0,200}?)?\[(?:PG (?P<group>[^\[\]]{1,99}?) )?Rank (?P<rank>\d{1,9})\] *"
"""`[rank5]:` is the job's rank; `Rank 1` counts in the process group that `PG` names."""

_LINES = {
    name: re.compile(pattern.replace("<who>", _WHO).replace(" *", r"\s*").replace(" ", r"\s+"))
    for name, pattern in KNOWLEDGE.lines["watchdog"].items()
}
"""Any space may be a line's end: terminals and pagers wrap long lines."""

_EXITS = {name: re.compile(pattern) for name, pattern in KNOWLEDGE.lines["exits"].items()}

_RANKS = re.compile(r"\[rank(\d{1,6})\]"), re.compile(r"Rank (\d{1,6})\]")
_WORDS = ("enqueued", "SeqNum", "atchdog", "Observed", "Heartbeat", "collective #", "lagging", "COMM:", "exitcode",
          "exited on signal", "srun: error", "Root Cause", "terminated with", "return code =")  # fmt: skip
_AROUND = 6
"""Lines before and after one with such a word that are read too: what belongs together is printed together."""
_ERROR = re.compile(
    r"^\[rank(\d{1,9})\]: ?((?![^\n]*(?:torch\.distributed|OutOfMemory|NCCL|gloo|ProcessGroup|Store|onnection|Barrier))"
    r"[A-Za-z_][\w.]*(?:Error|Exception)\b[^\n]*)",
    re.MULTILINE,
)
"""The last line of a traceback, as PyTorch prefixes it; what torch.distributed raises follows from another rank."""
_SRUN = {"Out Of Memory": -9, "Killed": -9, "Segmentation fault": -11}


@dataclass(frozen=True, slots=True)
class Progress:
    """What one rank printed of one process group.

    Attributes:
        rank: as the job counts, where its line tells it.
        group: the group's name, and its description in brackets; `None` where the lines name none.
        timed_out: the lowest number of a collective that its watchdog gave up.
        operation: what that one is, such as `ALLREDUCE`.
        timeout_ms: its limit.
        enqueued: number of the last collective that it launched; -1 is none.
        completed: the last that ended on its GPU.
    """

    rank: int
    group: str | None = None
    timed_out: int | None = None
    operation: str | None = None
    timeout_ms: int | None = None
    enqueued: int | None = None
    completed: int | None = None

    @property
    def waits_for(self) -> range:
        """Numbers of the collectives that it launched and that did not end; only the first where no more is known."""
        if self.completed is None or self.enqueued is None:
            return range(self.timed_out or 0, (self.timed_out or -1) + 1)
        return range(self.completed + 1, self.enqueued + 1)

    @property
    def numbers(self) -> str:
        """Its numbers in words; empty where it printed none."""
        known = {"timed out at": self.timed_out, "last enqueued": self.enqueued, "last completed": self.completed}
        return ", ".join(f"{name} {'none' if one == -1 else one}" for name, one in known.items() if one is not None)


@dataclass(frozen=True, slots=True)
class Exit:
    """A process that ended with an error: its rank (`None` where only `local` is known), host and exit code."""

    rank: int | None
    local: int | None
    host: str | None
    code: int
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Watchdog:
    """All of a job.

    Attributes:
        progress: of each group and rank.
        dumps_asked: rank → the rank whose timeout made it dump, `None` where it is not named.
        stuck_s: rank → seconds without a heartbeat of its watchdog thread, 0 where they are not printed.
        behind: ranks that PyTorch's desync report names.
        exits: processes that failed.
        errors: rank → the exception that it raised first, where it is the program's own.
        highest_rank: the highest rank that any line names; -1 for none.
    """

    progress: tuple[Progress, ...] = ()
    dumps_asked: Mapping[int, int | None] = field(default_factory=dict)
    stuck_s: Mapping[int, int] = field(default_factory=dict)
    behind: tuple[int, ...] = ()
    exits: tuple[Exit, ...] = ()
    errors: Mapping[int, str] = field(default_factory=dict)
    highest_rank: int = -1

    def __bool__(self) -> bool:
        return bool(self.progress or self.dumps_asked or self.stuck_s or self.behind or self.exits or self.errors)


def read_watchdog(text: str) -> Watchdog:
    """What a job's output holds of it; lines of ranks may interleave."""
    highest = max((int(rank) for pattern in _RANKS for rank in pattern.findall(text)), default=-1)
    errors = {int(rank): error for rank, error in reversed(_ERROR.findall(text)) if not known_error(error)}
    text = _relevant(text)
    found: dict[tuple[str | None, int], Progress] = {}
    asked: dict[int, int | None] = {}

    def add(match: re.Match[str], group: str | None, seq: int | None, **facts: int | str | None) -> None:
        known = found.get((group, _rank(match)), Progress(_rank(match), group))
        if seq is not None and known.timed_out is not None and seq > known.timed_out:
            return
        printed = {name: value for name, value in {"timed_out": seq, **facts}.items() if value is not None}
        found[group, known.rank] = replace(known, **printed)  # type: ignore[arg-type]

    for match in _LINES["status"].finditer(text):
        at, by = _LINES["at_work"].search(match["text"]), _LINES["asked_by"].search(match["text"])
        add(match, _group(match["group"]), _int(at and at[1]),
            enqueued=_number(match["enqueued"]), completed=_number(match["completed"]))  # fmt: skip
        if by:
            asked[_rank(match)] = _int(by[1])
    for match in _LINES["timeout"].finditer(text):
        seq, own = int(match["seq"]), _group(match["group"])
        exact = {group for (group, _), one in found.items() if one.timed_out == seq}
        homes = exact or {group for (group, _), one in found.items() if seq in one.waits_for}
        add(match, homes.pop() if own is None and len(homes) == 1 else own, seq, operation=match["operation"],
            timeout_ms=_int(match["limit_ms"]))  # fmt: skip
    for match in _LINES["observed"].finditer(text):
        asked.setdefault(_rank(match), None)
    return Watchdog(
        tuple(found.values()),
        asked,
        {_rank(match): int(match["seconds"] or 0) for match in _LINES["stuck"].finditer(text)},
        tuple(sorted({int(one) for match in _LINES["behind"].finditer(text)
                      for one in re.findall(r"\d{1,9}", match[1] or match[2])})),
        tuple(_exits(text)),
        errors,
        highest,
    )  # fmt: skip


def _relevant(text: str) -> str:
    """The lines around those that are read: a log of many steps has few."""
    lines = text.splitlines()
    at = (number for number, line in enumerate(lines) if any(word in line for word in _WORDS))
    near = sorted({near for number in at for near in range(max(number - _AROUND, 0), number + _AROUND)})
    return "\n".join(lines[number] for number in near if number < len(lines))


def _rank(match: re.Match[str]) -> int:
    return int(match["job"] or match["rank"])


def _int(text: str | None) -> int | None:
    return int(text) if text else None


def _group(printed: str | None) -> str | None:
    """`0 (default_pg)` and `ID 0 PG GUID 0(default_pg)` → `default_pg (0)`; `ID 2 PG GUID 3` → `3`."""
    found = re.search(r"(?:GUID\s+)?([^\s()]+)\s*(?:\((\w+)\))?$", printed or "")
    return None if found is None else f"{found[2]} ({found[1]})" if found[2] not in {None, "undefined"} else found[1]


def _number(text: str) -> int | None:
    """A sequence number; versions before 2.5 print an uninitialized one of 57 bits for none."""
    return number if (number := int(text)) < 1 << 48 else None


def _exits(text: str) -> list[Exit]:
    """The first failure first: torchrun's summary names it, else it is the first that is printed."""
    root = text.find("Root Cause (first observed failure)")
    made = [_exit(match, 0 <= root < match.start()) for match in _EXITS["summary"].finditer(text)]
    made = made or [_exit(match) for pattern in _EXITS.values() for match in pattern.finditer(text)]
    return sorted(made, key=lambda one: not one.is_first)


def _exit(match: re.Match[str], is_first: bool = False) -> Exit:
    facts = match.groupdict()
    code = _int(facts.get("code")) or -(_int(facts.get("signal")) or 0) or _SRUN.get(facts.get("what", ""), 0)
    if name := facts.get("name"):
        code = -getattr(Signals, name, Signals.SIGKILL)
    code = 128 - code if 128 < code < 193 else code  # shells and containers add a signal to 128
    return Exit(_int(facts.get("rank")), _int(facts.get("local")), facts.get("host"), code, is_first)


_FOLLOWS = {-6, -15}
"""SIGABRT is how the watchdog itself ends a process, SIGTERM how launchers end the others."""


def dead_ranks(log: "NcclLog") -> Iterator[Facts]:
    """Processes that died of something else than the watchdog: the timeouts of the others follow from it."""
    dog = log.watchdog
    waiting = {one.rank for one in dog.progress}
    causes = [one for one in dog.exits if one.code not in _FOLLOWS and (one.code < 0 or one.rank not in waiting)]
    causes = causes or ([] if dog.progress or dog.stuck_s else [one for one in dog.exits if one.code == -SIGABRT])
    for first in causes[:1]:
        is_known = -first.code in set(Signals)
        yield {
            "first": first,
            "signal": Signals(-first.code).name if is_known else f"signal {-first.code}",
            "others": waiting - {first.rank},
            "ranks": () if first.rank is None else (first.rank,),
        }


def python_errors(log: "NcclLog") -> Iterator[Facts]:
    """Exceptions of ranks that the others wait for."""
    waiting = {one.rank for one in log.watchdog.progress}
    for error, ranks in by_value(log.watchdog.errors).items():
        if causes := sorted(set(ranks) - waiting):
            yield {"error": error, "waiting": waiting, "ranks": causes}


def timeouts(log: "NcclLog", case: Case) -> list[Facts]:
    """Collectives that PyTorch's watchdog gave up: by group who is behind, who is silent, who waits."""
    if case.recorder is not None and not case.recorder.entries.empty:
        return []
    by_group: dict[str | None, dict[int, Progress]] = {}
    for one in log.watchdog.progress:
        by_group.setdefault(one.group, {})[one.rank] = one
    found = (_timeout(case, log, group, own) for group, own in by_group.items())
    return sorted((one for one in found if one), key=lambda one: not one["ranks"])


def _timeout(case: Case, log: "NcclLog", group: str | None, own: Mapping[int, Progress]) -> Facts | None:
    dog = log.watchdog
    seqs = by_value({rank: one.timed_out for rank, one in own.items() if one.timed_out is not None})
    enqueued = {rank: one.enqueued for rank, one in own.items() if one.enqueued is not None}
    waits = [one.waits_for[0] for one in own.values() if one.waits_for]
    seq = max(seqs, key=lambda one: len(seqs[one])) if seqs else min(waits, default=max(enqueued.values(), default=0))
    behind = sorted({rank for rank, last in enqueued.items() if last < seq} | set(dog.behind))
    if not seqs and not behind and not set(own) & set(dog.dumps_asked):
        return None
    world = max(log.world, case.ras.ranks if case.ras else 0, dog.highest_rank + 1)
    silent = sorted(set(range(world)) - set(own)) if world < 2 * len(own) else []
    operations = by_value({rank: operation_words(one.operation) for rank, one in own.items()
                           if one.timed_out == seq and one.operation})  # fmt: skip
    kinds = {
        "out of step": len(seqs) > 1,
        "different calls": len(operations) > 1,
        "behind": behind,
        "silent": silent,
        "nothing open": not waits,
        "none completed": all(one.completed is not None and one.completed < 1 for one in own.values()),
        "all wait": True,
    }
    kind = next(name for name, is_so in kinds.items() if is_so)
    asked = by_value({rank: by for rank, by in dog.dumps_asked.items() if by is not None})
    return {
        "kind": kind,
        "group": group,
        "where": f" of process group {group}" if group else "",
        "what": f"{min(operations, default='collective')} {seq}",
        "own": own,
        "seqs": seqs,
        "behind": behind,
        "operations": operations,
        "limit_ms": max((one.timeout_ms or 0 for one in own.values()), default=0),
        "waited": set(own) - set(behind),
        "numbers": by_value({rank: one.numbers for rank, one in own.items() if one.numbers}),
        "asked": {by: ranks for by, ranks in asked.items() if set(ranks) & set(own)},
        "is_running": case.ras is not None and set(case.ras.states) == {"RUNNING"},
        "ranks": {"out of step": sorted(rank for ranks in seqs.values() for rank in ranks),
                  "different calls": sorted(own)}.get(kind, behind or silent),
    }  # fmt: skip


def stuck_watchdog(log: "NcclLog") -> Iterator[Facts]:
    """Watchdog threads without a heartbeat: a CUDA or NCCL call that does not return, or the GIL."""
    if stuck_s := log.watchdog.stuck_s:
        yield {"longest_s": max(stuck_s.values()), "ranks": sorted(stuck_s)}
