"""The lines of an NCCL log: who wrote each (host, process, thread, device), however ranks interleave."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_HEAD = re.compile(
    r"(?P<host>[\w.<>-]+):(?P<pid>\d{1,18}):(?P<tid>\d{1,18}) +\[(?P<device>-?\d{1,9})\] +"
    r"(?:(?P<source>[\w./-]+:\d+) +)?"
    r"NCCL +(?P<level>INFO|WARN|TRACE|ERROR|ABORT|VERSION) ?",
)
"""Before it may stand what a launcher writes: `[rank3]:`, `[default0]:`, a time."""

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Colours and the like, which terminals take and logs keep."""

_PREFIX_OF_NEXT = re.compile(r"(?:\[[\w\d., :/-]*\]:?\s*|\d{4}-\d\d-\d\d[T ][\d:.,]+\s*)+$")
"""What of the text before a line's head belongs to that line, when two lines ran into each other."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log.

    Attributes:
        file: number of the file that it is from.
        number: its number there, from 1.
        process: (host, pid); empty for lines that NCCL did not mark.
        thread: the thread, -1 when not told.
        level: `INFO`, `WARN`, …; empty for lines that NCCL did not mark.
        text: what it says.
    """

    file: int
    number: int
    process: tuple[str, int] | None
    thread: int
    level: str
    text: str


def lines(text: str, file: int = 0) -> Iterator[Line]:
    """The log's lines; two that ran into each other are told apart by their heads."""
    hosts: set[str] = set()
    for number, raw in enumerate(text.splitlines(), 1):
        line = ANSI.sub("", raw)
        heads = list(_HEAD.finditer(line))
        if not heads:
            yield Line(file, number, None, -1, "", line.strip())
            continue
        hosts.update(head["host"] for head in heads[:1])
        for head, after in zip(heads, [*heads[1:], None], strict=True):
            said = line[head.end() : _begins(after, hosts) if after else len(line)]
            if after:
                said = _PREFIX_OF_NEXT.sub("", said)
            process = (head["host"][_begins(head, hosts) - head.start() :], int(head["pid"]))
            yield Line(file, number, process, int(head["tid"]), head["level"], said.strip())


def _begins(head: re.Match[str], hosts: Collection[str]) -> int:
    """Where a head begins: a line that ran into another one leaves its end before the host's name."""
    host = head["host"]
    known = max((name for name in hosts if host.endswith(name)), key=len, default=host)
    return head.start() + len(host) - len(known)
