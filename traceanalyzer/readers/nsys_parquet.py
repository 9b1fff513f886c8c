"""Nsight Systems reports that were exported with `nsys export --type=parquetdir`: a folder."""

from collections.abc import Iterator
from pathlib import Path

from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import Header, RankHint


def recognises(path: Path) -> bool:
    """Whether the path is a folder that holds an export's tables."""
    return path.is_dir() and (path / "StringIds.parquet").is_file()


def peek(path: Path) -> Header:
    """The folder's head; see `Reader.peek`.

    Raises:
        NotATraceError: it is no export after all, or the same report's database lies beside it.
    """
    from traceanalyzer.readers.nsys import traces
    from traceanalyzer.readers.nsys.source import ParquetSource

    database = path.with_name(f"{path.name.removesuffix('_pqtdir')}.sqlite")
    if database.is_file():
        raise NotATraceError(f"{path}: {database.name} of the same report lies beside it; keep one of them")
    return traces.peek(ParquetSource(path), path)


def ended_ns(path: Path) -> int | None:
    """When the capture ended; see `Reader.ended_ns`."""
    from traceanalyzer.readers.nsys import traces
    from traceanalyzer.readers.nsys.source import ParquetSource

    return traces.ended_ns(ParquetSource(path))


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """Each rank of the folder; see `Reader.read`."""
    from traceanalyzer.readers.nsys import traces
    from traceanalyzer.readers.nsys.source import ParquetSource

    return traces.read(ParquetSource(path), path, hint, rules)
