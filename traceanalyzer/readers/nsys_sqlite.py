"""Nsight Systems reports that were exported with `nsys export --type=sqlite`."""

from collections.abc import Iterator
from pathlib import Path

from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import Header, RankHint

_MAGIC = b"SQLite format 3\x00"


def recognises(path: Path) -> bool:
    """Whether the file is an SQLite database; `peek` says whether it is Nsight Systems'."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def peek(path: Path) -> Header:
    """The file's head; see `Reader.peek`."""
    from traceanalyzer.readers.nsys import traces
    from traceanalyzer.readers.nsys.source import SqliteSource

    return traces.peek(SqliteSource(path), path)


def ended_ns(path: Path) -> int | None:
    """When the capture ended; see `Reader.ended_ns`."""
    from traceanalyzer.readers.nsys import traces
    from traceanalyzer.readers.nsys.source import SqliteSource

    return traces.ended_ns(SqliteSource(path))


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """Each rank of the file; see `Reader.read`."""
    from traceanalyzer.readers.nsys import traces
    from traceanalyzer.readers.nsys.source import SqliteSource

    return traces.read(SqliteSource(path), path, hint, rules)
