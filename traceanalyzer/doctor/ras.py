"""What `ncclras` printed: communicators that lack ranks, or whose ranks have done different numbers of operations."""

import re
from dataclasses import dataclass

from traceanalyzer.errors import InputError

_TROUBLE = re.compile(r"^#(\d{1,9})-(\d{1,9}) \((\w+)\) ([A-Z,]+)\s*$")
_RANK = re.compile(r"^\s+(?:The missing rank: (\d{1,9})|Rank (\d{1,9})\b.*)$")
_COUNTS = re.compile(r"^\s+(\d{1,9}) ranks? ha(?:ve|s) launched up to operation (\d{1,9})")
_OPERATION = re.compile(r"have different (\w+) operation counts")


@dataclass(frozen=True, slots=True)
class RasTrouble:
    """One communicator, or the job, that RAS reports as not in order.

    Attributes:
        communicator: its id; `None` for the job's processes.
        status: `INCOMPLETE`, `MISMATCH`, `ERROR`, …
        operation: the collective whose counts differ, where told.
        counts: (ranks, operations that they have launched).
        ranks: ranks that it lists.
        details: its lines, as printed.
    """

    communicator: str | None
    status: str
    operation: str | None
    counts: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]
    details: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RasReport:
    """What one query of RAS told."""

    troubles: tuple[RasTrouble, ...]
    nccl_version: str | None


def is_ras(text: str) -> bool:
    """Whether a text is the output of `ncclras`."""
    return "Job summary" in text and "Communicators..." in text


def parse_ras(text: str, name: str = "ras") -> RasReport:
    """Read the output of `ncclras`.

    Raises:
        InputError: it is something else.
    """
    if not is_ras(text):
        raise InputError(f"{name}: not the output of ncclras")
    found: list[tuple[str | None, str, list[str]]] = []
    lines = text.splitlines()
    for line in lines:
        if head := _TROUBLE.match(line):
            found.append((head[3], head[4], []))
        elif line.strip() in {"INCOMPLETE", "DEAD", "ERROR", "MISMATCH"} and not line.startswith(" "):
            found.append((None, line.strip(), []))
        elif found and line.startswith("  "):
            found[-1][2].append(line)
    version = re.search(r"NCCL version (\S+)", text)
    return RasReport(tuple(_trouble(*one) for one in found), version[1] if version else None)


def _trouble(communicator: str | None, status: str, lines: list[str]) -> RasTrouble:
    ranks = [int(match[1] or match[2]) for line in lines if (match := _RANK.match(line))]
    counts = [(int(match[1]), int(match[2])) for line in lines if (match := _COUNTS.match(line))]
    named = next((match[1] for line in lines if (match := _OPERATION.search(line))), None)
    return RasTrouble(communicator, status, named, tuple(counts), tuple(ranks), tuple(line.strip() for line in lines))
