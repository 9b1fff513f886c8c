"""AMD's rocpd databases: `rocprofv3 --output-format rocpd` writes `<process>_results.db`."""

from collections.abc import Iterator
from pathlib import Path

from traceanalyzer.errors import NotATraceError
from traceanalyzer.files.other_tools import database_of
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import Format, Header, RankHint, is_sqlite

FORMAT = Format("rocprofv3 --output-format rocpd", "_results.db", suffixes=(".db",), vendor="AMD")


def recognises(path: Path) -> bool:
    """Whether the file is an SQLite database with a table of rocpd's."""
    if not is_sqlite(path):
        return False
    from traceanalyzer.readers.nsys.source import SqliteSource

    try:
        return any(table.startswith("rocpd_") for table in SqliteSource(path).tables)
    except NotATraceError:
        return False


def peek(path: Path) -> Header:
    """Nothing: the file names no rank, and its times are no times of day; see `Reader.peek`."""
    from traceanalyzer.readers.rocprof.capture import NO_GPU_OPS
    from traceanalyzer.readers.rocprof.database import Database

    database = Database(path)
    if not database.suffixes:
        raise NotATraceError(f"{path}: {database_of(database.tables) or NO_GPU_OPS}")
    return Header()


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """A rank for each GPU of the file's processes; see `Reader.read`."""
    from traceanalyzer.readers.rocprof.capture import NO_GPU_OPS, traces
    from traceanalyzer.readers.rocprof.database import Database

    captures = Database(path).captures()
    if not captures:
        raise NotATraceError(f"{path}: {NO_GPU_OPS}")
    yield from traces(captures, path, hint, rules)
