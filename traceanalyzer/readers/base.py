"""What every reader offers: does it know the file, what does its head say, and its ranks' traces."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace

FILE_ORDER = "file order"

DEVICE_ORDER = "order of GPUs in one file"

DEVICE_NUMBER = "number of the GPU in its job"

NODE_ORDER = "order of nodes' folders"
"""Numbers within a node stand in names, and groups' sizes say that the nodes are of one job."""

GUESSED = (FILE_ORDER, DEVICE_ORDER)
"""Sources of a rank's number that may collide with another file's."""


class Format(Struct, frozen=True):
    """What a reader's files are, for all that ask before one is read.

    Attributes:
        tool: that writes them.
        files: what they are called, for people.
        suffixes: ends of their names, but for JSON's: archives are looked into for them.
        framework: whose own profiler it is; empty where it records any program.
        vendor: whose GPUs it records, where it is no other's.
        has_one_process: each file holds one process.
        is_general: it takes all files of a kind that no other reader does, and is asked last.
    """

    tool: str
    files: str
    suffixes: tuple[str, ...] = ()
    framework: str = ""
    vendor: str = "NVIDIA"
    has_one_process: bool = False
    is_general: bool = False


class Header(Struct, frozen=True):
    """What the head of a file shows; `None` where it does not say.

    Attributes:
        ranks: ranks whose events the file holds.
        world_size: ranks of the job.
        trace_id: id that the profiler gave to the capture.
        start_ns: when the capture began, ns since the epoch.
        end_ns: when it ended.
    """

    ranks: tuple[int, ...] | None = None
    world_size: int | None = None
    trace_id: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None


class RankHint(Struct, frozen=True):
    """The rank that discovery gives to a file whose content names none, and where it got it from."""

    rank: int
    source: str


def is_sqlite(path: Path) -> bool:
    """Whether a file is an SQLite database, by its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


_SQLITE = b"SQLite format 3\x00"


class Reader(Protocol):
    """One input format. A module of this package with `FORMAT` and these three functions is a reader.

    Where the head does not say when the capture ended but the file does, it has `ended_ns(path)` too, which may have to
    go through the whole file: it is asked of files that name no rank.
    """

    FORMAT: Format

    def recognises(self, path: Path) -> bool:
        """Whether the file or folder is of this format, from its name and first bytes."""

    def peek(self, path: Path) -> Header:
        """The file's head.

        Raises:
            NotATraceError: the file is not a trace after all; the message says why.
        """

    def read(self, path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
        """Each rank of the file, one at a time, in order.

        A damaged file gives what it still holds, and says so in `meta.notes`.

        Raises:
            NotATraceError: nothing in the file can be analysed; the message says why.
        """
