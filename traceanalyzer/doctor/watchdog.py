"""What PyTorch's NCCL watchdog (1.13 to today) and launchers print when a job hangs or dies, and what it means."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from signal import SIGABRT, Signals
from typing import TYPE_CHECKING

from traceanalyzer.doctor.case import Case, Diagnosis, by_value, operation_words
from traceanalyzer.doctor.known_errors import KNOWLEDGE, known_error, warnings
from traceanalyzer.meaning.vocabulary import Severity, first_upper, numbered

if TYPE_CHECKING:
    from traceanalyzer.doctor.nccl_log import NcclLog


def _flexible(pattern: str) -> re.Pattern[str]:
    """The pattern where any space may be a line's end: terminals and pagers wrap long lines."""
    return re.compile(pattern.replace(" ", r"\s+"))


_WHO = r"(?:\[rank(\d{1,9})\]:[^\n]{0,200}?)?\[(?:PG ([^\[\]]{1,99}?) )?Rank (\d{1,9})\]\s*"
"""`[rank5]:` is the job's rank; `Rank 1` counts in the process group that `PG` names."""

_TIMEOUT = _flexible(
    _WHO + r"Watchdog caught collective operation timeout: Work\w*\(SeqNum=(\d{1,18}), OpType=(\w+)"
    r"(?:[^)]{0,200}?Timeout\(ms\)=(\d{1,12}))?"
)
_STATUS = _flexible(
    _WHO + r"((?:(?!\[rank|Rank \d)[^\0]){0,400}?)[lL]ast enqueued (?:NCCL )?work: (-?\d{1,20}), "
    r"last completed (?:NCCL )?work: (-?\d{1,20})"
)
_AT_WORK = _flexible(r"(?:at work|at NCCL work|work sequence id): (\d{1,18})")
_ASKED_BY = _flexible(r"(?:signal|timeout)[^.]{0,60} from (?:rank (\d{1,9})|another rank)")
_OBSERVED = _flexible(_WHO + "Observed flight recorder dump signal from another rank")
_STUCK = _flexible(_WHO + r"(?:ProcessGroup\w+'s watchdog got stuck for (\d{1,9}) seconds|Heartbeat monitor timed out)")
_BEHIND = _flexible(
    r"\[(\d[\d, ]*)\] finished collective #\d+, but didn't join|ranks \[(\d[\d, ]*)\] are the lagging ranks"
)
_RANKS = re.compile(r"\[rank(\d{1,6})\]"), re.compile(r"Rank (\d{1,6})\]")
_WORDS = ("enqueued", "SeqNum", "atchdog", "Observed", "Heartbeat", "collective #", "lagging", "COMM:", "exitcode",
          "exited on signal", "srun: error", "Root Cause", "terminated with", "return code =")  # fmt: skip
_AROUND = 6
"""Lines before and after one with such a word that are read too: what belongs together is printed together."""
_SUMMARY = re.compile(
    r"host +: (?P<host>\S+)[^\n]*\n[^\n]*?rank +: (?P<rank>\d{1,9}) \(local_rank: \d+\)[^\n]*\n[^\n]*?exitcode +: "
    r"(?P<code>-?\d{1,9})"
)
_EXITS = (
    re.compile(r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<local>\d{1,9}) \(pid: (?P<pid>\d+)\)"),
    re.compile(
        r"process rank (?P<rank>\d{1,9}) with PID \d+ on node (?P<host>\S+) exited on signal (?P<signal>\d{1,2})"
    ),
    re.compile(
        r"srun: error: (?P<host>\S+): task (?P<rank>\d{1,9}): (?P<what>Out Of Memory|Killed|Segmentation fault)"
    ),
    re.compile(r"process (?P<local>\d{1,9}) terminated with signal (?P<name>SIG[A-Z]+)"),
    re.compile(r"process (?P<local>\d{1,9}) terminated with exit code (?P<code>\d{1,9})"),
    re.compile(r"--local_rank=(?P<local>\d{1,9})'[^\n]* exits with return code = (?P<code>-?\d{1,9})"),
)
"""Of torchrun, mpirun, srun, torch.multiprocessing and DeepSpeed."""
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

    for match in _STATUS.finditer(text):
        at, by = _AT_WORK.search(match[4]), _ASKED_BY.search(match[4])
        add(match, _group(match[2]), int(at[1]) if at else None,
            enqueued=_number(match[5]), completed=_number(match[6]))  # fmt: skip
        if by:
            asked[_rank(match)] = int(by[1]) if by[1] else None
    for match in _TIMEOUT.finditer(text):
        seq, own = int(match[4]), _group(match[2])
        exact = {group for (group, _), one in found.items() if one.timed_out == seq}
        homes = exact or {group for (group, _), one in found.items() if seq in one.waits_for}
        add(match, homes.pop() if own is None and len(homes) == 1 else own, seq, operation=match[5],
            timeout_ms=int(match[6]) if match[6] else None)  # fmt: skip
    for match in _OBSERVED.finditer(text):
        asked.setdefault(_rank(match), None)
    return Watchdog(
        tuple(found.values()),
        asked,
        {_rank(match): int(match[4] or 0) for match in _STUCK.finditer(text)},
        tuple(sorted({int(rank) for pair in _BEHIND.findall(text) for rank in re.findall(r"\d{1,9}", "".join(pair))})),
        tuple(_exits(text)),
        errors,
        highest,
    )


def _relevant(text: str) -> str:
    """The lines around those that are read: a log of many steps has few."""
    lines = text.splitlines()
    at = (number for number, line in enumerate(lines) if any(word in line for word in _WORDS))
    near = sorted({near for number in at for near in range(max(number - _AROUND, 0), number + _AROUND)})
    return "\n".join(lines[number] for number in near if number < len(lines))


def _rank(match: re.Match[str]) -> int:
    return int(match[1] or match[3])


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
    made = [_exit(match, 0 <= root < match.start()) for match in _SUMMARY.finditer(text)]
    made = made or [_exit(match) for pattern in _EXITS for match in pattern.finditer(text)]
    return sorted(made, key=lambda one: not one.is_first)


def _exit(match: re.Match[str], is_first: bool = False) -> Exit:
    facts = match.groupdict()
    rank, local = (int(facts[name]) if facts.get(name) else None for name in ("rank", "local"))
    code = int(facts.get("code") or -int(facts.get("signal") or 0)) or _SRUN.get(facts.get("what") or "", 0)
    if name := facts.get("name"):
        code = -getattr(Signals, name, Signals.SIGKILL)
    return Exit(rank, local, facts.get("host"), _code(code), is_first)


def _code(code: int) -> int:
    """A signal is negative; shells and containers add it to 128."""
    return 128 - code if 128 < code < 193 else code


_SIGNALS = {
    -9: ("usually out of host memory", "Check `dmesg -T | grep -i oom` and the memory limit of the container or job."),
    -7: ("usually a full /dev/shm", "Give the container shared memory: `--shm-size=16g` or `--ipc=host`."),
    -6: ("abort() in native code", "Read the lines before it: an assertion, a C++ exception, or heap corruption."),
    -11: ("a crash in native code", "Get its stack: `python -X faulthandler`, or a core dump."),
}
_FOLLOWS = {-6, -15}
"""SIGABRT is how the watchdog itself ends a process, SIGTERM how launchers end the others."""


def dead_ranks(log: "NcclLog") -> Iterator[Diagnosis]:
    """Processes that died of something else than the watchdog: the timeouts of the others follow from it."""
    dog = log.watchdog
    waiting = {one.rank for one in dog.progress}
    causes = [one for one in dog.exits if one.code not in _FOLLOWS and (one.code < 0 or one.rank not in waiting)]
    causes = causes or ([] if dog.progress or dog.stuck_s else [one for one in dog.exits if one.code == -SIGABRT])
    if not causes:
        return
    first = causes[0]
    who = f"Rank {first.rank}" if first.rank is not None else f"The process of local rank {first.local}"
    what, fix = _SIGNALS.get(first.code, ("", "Read the first traceback of that rank: later errors follow."))
    name = f"signal {-first.code}" if -first.code not in set(Signals) else Signals(-first.code).name
    how = f"was killed by {name}" if first.code < 0 else f"failed with exit code {first.code}"
    others = sorted(waiting - {first.rank})
    yield Diagnosis(
        severity="high" if first.code < 0 else "medium",
        diagnosis=f"{who} {how}{f' ({what})' if what else ''}.",
        signal=f"Exit code {first.code}{f' on {first.host}' if first.host else ''} is the first failure."
        + (f" The timeout of {numbered('rank', others)} follows from it." if others else ""),
        recommendation=fix,
        caveat="An administrator or a scheduler can send SIGKILL too." if first.code == -9 else None,
        ranks=() if first.rank is None else (first.rank,),
    )


def python_errors(log: "NcclLog") -> Iterator[Diagnosis]:
    """Exceptions of ranks that the others wait for."""
    waiting = {one.rank for one in log.watchdog.progress}
    for error, ranks in by_value(log.watchdog.errors).items():
        if causes := sorted(set(ranks) - waiting):
            follows = f" The timeout of {numbered('rank', sorted(waiting))} follows from it." if waiting else ""
            yield Diagnosis(
                severity="high" if waiting else "medium",
                diagnosis=f"{first_upper(numbered('rank', causes))} raised {error[:200]}.",
                signal=f"The last line of a traceback.{follows}",
                ranks=tuple(causes),
            )


def timeouts(log: "NcclLog", case: Case) -> list[Diagnosis]:
    """Collectives that PyTorch's watchdog gave up: by group who is behind, who is silent, who waits."""
    if case.recorder is not None and not case.recorder.entries.empty:
        return []
    causes = (one for other in case.logs for one in (*dead_ranks(other), *python_errors(other), *warnings(other)))
    severity: Severity = "medium" if any(one.severity == "high" for one in causes) else "high"
    by_group: dict[str | None, dict[int, Progress]] = {}
    for one in log.watchdog.progress:
        by_group.setdefault(one.group, {})[one.rank] = one
    found = (_timeout(case, log, group, own) for group, own in by_group.items())
    return sorted((replace(one, severity=severity) for one in found if one), key=lambda one: not one.ranks)


def _timeout(case: Case, log: "NcclLog", group: str | None, own: Mapping[int, Progress]) -> Diagnosis | None:
    timed_out = {rank: one.timed_out for rank, one in own.items() if one.timed_out is not None}
    enqueued = {rank: one.enqueued for rank, one in own.items() if one.enqueued is not None}
    waits = [one.waits_for[0] for one in own.values() if one.waits_for]
    seqs = by_value(timed_out)
    seq = max(seqs, key=lambda one: len(seqs[one])) if seqs else min(waits, default=max(enqueued.values(), default=0))
    behind = sorted({rank for rank, last in enqueued.items() if last < seq} | set(log.watchdog.behind))
    if not seqs and not behind and not set(own) & set(log.watchdog.dumps_asked):
        return None
    world = max(log.world, case.ras.ranks if case.ras else 0, log.watchdog.highest_rank + 1)
    silent = sorted(set(range(world)) - set(own)) if world < 2 * len(own) else []
    suspects = behind or silent
    where = f" of process group {group}" if group else ""
    operations = by_value({rank: operation_words(one.operation) for rank, one in own.items()
                      if one.timed_out == seq and one.operation})  # fmt: skip
    what = f"{min(operations, default='collective')} {seq}{where}"
    who, are, all_ranks = numbered("rank", suspects), "is" if len(suspects) == 1 else "are", numbered("rank", own)
    cases = (
        (len(seqs) > 1, "out_of_step", f"Ranks are out of step{where or ', or of different groups'}: "
         + "; ".join(f"{numbered('rank', seqs[at])} at {at}" for at in sorted(seqs))),
        (len(operations) > 1, "different_calls", f"Ranks call different collectives as number {seq}{where}: "
         + ", ".join(f"{numbered('rank', operations[name])} {name}" for name in sorted(operations))),
        (bool(behind), "suspects", f"{first_upper(who)} {are} behind: {what} was never launched there"),
        (bool(suspects), "suspects", f"NCCL timeout at {what}: {who} never reported"),
        (not waits, "nothing_open", f"Dumps were requested while {all_ranks} had nothing open{where}"),
        (all(one.completed is not None and one.completed < 1 for one in own.values()), "none_completed",
         f"NCCL timeout at {what} on {all_ranks}: no collective ever completed"),
        (True, "all_wait", f"NCCL timeout at {what} on {all_ranks}"),
    )  # fmt: skip
    kind, headline = next((kind, text) for is_so, kind, text in cases if is_so)
    if case.ras is not None and set(case.ras.states) == {"RUNNING"}:
        headline += ", while RAS reports RUNNING"
    limit_ms = max((one.timeout_ms or 0 for one in own.values()), default=0)
    who_waited = first_upper(numbered("rank", sorted(set(own) - set(behind))))
    waiting = f"{who_waited} waited over {limit_ms / 1000:g} s, the timeout."
    facts = (waiting if limit_ms else "", _numbers(own), _asked(log.watchdog.dumps_asked, own))
    texts = KNOWLEDGE.timeouts
    return Diagnosis(
        diagnosis=f"{headline}.",
        signal=" ".join(filter(None, facts)) or "Lines of PyTorch's watchdog.",
        recommendation=f"{texts[kind].format(who=who)} {texts['recorder']}",
        caveat=texts["unnamed"] if group is None and len(seqs) > 1 else texts["inside"] if behind else None,
        ranks=tuple({"out_of_step": sorted(timed_out), "different_calls": sorted(own)}.get(kind, suspects)),
    )


def _numbers(own: Mapping[int, Progress]) -> str:
    """The last numbers of each rank, ranks of the same numbers together."""
    parts = []
    for numbers, ranks in by_value(
        {rank: (one.timed_out, one.enqueued, one.completed) for rank, one in own.items()}
    ).items():
        names = ("timed out at", "last enqueued", "last completed")
        facts = [f"{name} {'none' if number == -1 else number}"
                 for name, number in zip(names, numbers, strict=True) if number is not None]  # fmt: skip
        parts += [f"{numbered('rank', ranks)} {', '.join(facts)}"] if facts else []
    return f"{first_upper('; '.join(parts))}." if parts else ""


def _asked(asked: Mapping[int, int | None], own: Mapping[int, Progress]) -> str:
    parts = [f"rank {by} requested the dump of {numbered('rank', [r for r in asked if asked[r] == by])}"
             for by in sorted({by for rank, by in asked.items() if by is not None and rank in own})]  # fmt: skip
    return f"{first_upper('; '.join(parts))}." if parts else ""


def stuck_watchdog(log: "NcclLog") -> Iterator[Diagnosis]:
    """Watchdog threads without a heartbeat: a CUDA or NCCL call that does not return, or the GIL."""
    if stuck_s := log.watchdog.stuck_s:
        who, longest = numbered("rank", stuck_s), max(stuck_s.values())
        yield Diagnosis(
            diagnosis=f"A CUDA or NCCL call blocks {who}{f' for {longest} s' if longest else ''}.",
            recommendation=f"On {who} collect `py-spy dump --native --pid PID`, "
            "`dmesg | grep Xid` and `nvidia-smi`; set TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_BUFFER_SIZE=2000. "
            "A longer TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC helps only when the call is slow, not stuck.",
            ranks=tuple(sorted(stuck_s)),
        )
