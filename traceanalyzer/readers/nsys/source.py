"""Tables of an Nsight Systems export: SQLite or Parquet."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from traceanalyzer.errors import NotATraceError, first_line
from traceanalyzer.files.bounds import MOST_TIMES, ROWS_AT_ONCE, most_bytes
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import texts_as_category

# What a source of an export's tables offers, so that nothing above it knows databases from Parquet files.


class Number(IntEnum):
    """Numbers of Nsight Systems' own enumerations that are read."""

    PUSH_POP, START_END, TEXT_PUSH_POP, TEXT_START_END = 59, 60, 70, 71  # NVTX ranges; those of imported text
    DOMAIN_CREATED = 75
    STREAM_WAIT = 2  # of `ENUM_CUPTI_SYNC_TYPE`: a stream waits for an event
    ERROR = 3  # of diagnostics


STRINGS = "StringIds"
"""The table of all names."""

ESSENTIAL = frozenset({
    STRINGS, "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
})  # fmt: skip
"""Tables without which figures would be wrong, and not only fewer."""

_TYPES = {"ints": pa.int64(), "floats": pa.float64(), "texts": pa.large_string(), "blobs": pa.large_string()}
"""Arrow's type of each kind of column."""


class Source(ABC):
    """The tables of one export. Tables and columns come and go between versions: ask, or read NULLs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: dict[str, str] = {}
        """Tables that are treated as absent, and why."""

    @property
    @abstractmethod
    def tables(self) -> frozenset[str]:
        """Names of the tables that exist; empty ones usually do not."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; empty when there is no such table."""

    @abstractmethod
    def _select(self, table: str, kinds: Mapping[str, str], words: Sequence[str]) -> pa.Table:
        """Columns that the table has, by name with their kinds (keys of `_TYPES`), of all its rows; see `read`."""

    def read(self, table: str, *, containing: Sequence[str] = (), **names: Sequence[str]) -> pa.Table:
        """Chosen columns of all rows.

        Columns that the table lacks are NULL, a table that is absent is empty. So is one that cannot be read, where
        figures can do without it: `damaged` names it then.

        Args:
            table: its name.
            containing: a database's rows only whose column `text`, or string of `textId`, contains one of these words,
                in any case.
            names: `ints` are read as int64 (unsigned ones wrap), `floats` as float64, `texts` as text and `blobs`
                as hexadecimal text; of both NULL may come as "".

        Raises:
            NotATraceError: a table of `ESSENTIAL` cannot be read.
        """
        kinds = {name: kind for kind, own in names.items() for name in own}
        present: dict[str, str] = {}
        rows = pa.table({})
        try:
            if has := self.columns(table):
                present = {name: kind for name, kind in kinds.items() if name in has}
                rows = self._select(table, present, containing)
        except NotATraceError as error:
            if table in ESSENTIAL:
                raise
            self.damaged[table] = str(error)
            present = {}
        read = {
            name: rows[name] if name in present else pa.chunked_array([pa.nulls(len(rows), _TYPES[kind])])
            for name, kind in kinds.items()
        }
        return with_valid_text(pa.table(read))

    def frame(self, table: str, missing: Mapping[str, int] | None = None, **names: Any) -> pd.DataFrame:
        """The same of columns without NULLs; see `read` and `frame_of`."""
        return frame_of(self.read(table, **names), missing)

    def rows(self, table: str, missing: Mapping[str, int] | None = None, **names: Sequence[str]) -> Iterator[Any]:
        """The same as tuples of Python's numbers and texts."""
        frame = self.frame(table, missing, **names)
        return zip(*(frame[name].tolist() for name in frame), strict=True)

    @cached_property
    def _strings(self) -> pa.Table:
        return self.read(STRINGS, ints=("id",), texts=("value",))

    def strings(self, ids: np.ndarray) -> dict[int, str]:
        """Texts of these `StringIds`; only these leave this class: the table also holds the machine's environment."""
        rows = self._strings.filter(pc.is_in(self._strings["id"], value_set=pa.array(ids, pa.int64())))
        return dict(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))

    def names(self, ids: np.ndarray, otherwise: str) -> Callable[[int], str]:
        """From an id among these to its text; `otherwise` for one without a text."""
        texts = self.strings(pd.unique(ids))
        return lambda one: texts.get(one) or otherwise


def with_valid_text(rows: pa.Table) -> pa.Table:
    """The table with replacement characters for bytes of text columns that are not UTF-8."""
    for position, column in enumerate(rows.columns):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                raw = column.cast(pa.large_binary()).to_pylist()
                texts = [None if value is None else value.decode("utf-8", errors="replace") for value in raw]
                mended = pa.chunked_array([pa.array(texts, pa.large_string())])
                rows = rows.set_column(position, rows.column_names[position], mended)
    return rows


def frame_of(rows: pa.Table, missing: Mapping[str, int] | None = None) -> pd.DataFrame:
    """The rows: whole numbers with `missing` by column, else -1, for NULL, others with NaN and texts with ""."""
    columns: dict[str, Any] = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_large_string(column.type):
            columns[name] = np.array([value or "" for value in column.to_pylist()], dtype=object)
        else:
            null = (missing or {}).get(name, NONE) if pa.types.is_integer(column.type) else np.nan
            columns[name] = column.fill_null(null).to_numpy() if column.null_count else column.to_numpy()
    return pd.DataFrame(columns, copy=False)


def maybe(numbers: Any) -> pd.api.extensions.ExtensionArray:
    """Whole numbers as pandas' Int64 with NA for -1."""
    numbers = np.asarray(numbers)
    return pd.arrays.IntegerArray(numbers, numbers == NONE)


_NO_VALUES = np.zeros(0, dtype=np.int64)
"""In place of an index of no pairs, which pandas 2 cannot take apart."""


def labelled(values: Any, label: Callable[[Any], str | None]) -> pd.Categorical:
    """A label for each value, worked out once for a distinct one."""
    codes, distinct = pd.factorize(values if len(values) else _NO_VALUES)
    return texts_as_category([label(one) for one in distinct.tolist()]).take(codes)


# Tables of a database that `nsys export --type=sqlite` wrote, read without touching the file.
#
# ADBC fills Arrow columns: the standard library's cursor takes many times as long.


class SqliteSource(Source):
    """One database, opened read-only and immutable: no lock, no journal, nothing written beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._columns: dict[str, frozenset[str]] = {}

    @cached_property
    def tables(self) -> frozenset[str]:
        """Names of the tables that exist.

        Raises:
            NotATraceError: the file is no database, or changes of it lie beside it.
        """
        if why := _unfinished(self.path.resolve()):
            raise NotATraceError(f"{self.path}: {why}")
        return frozenset(name for (name,) in self._ask("SELECT name FROM sqlite_master WHERE type = 'table'"))

    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; empty when there is no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            self._columns[table] = frozenset(row[1] for row in self._ask(f"PRAGMA table_info({_quoted(table)})"))
        return self._columns[table]

    def _select(self, table: str, kinds: Mapping[str, str], words: Sequence[str]) -> pa.Table:
        # Without any of the columns the number of rows still matters.
        selected = ", ".join(f"{_sql(kind, name)} AS {_quoted(name)}" for name, kind in kinds.items()) or "0"
        condition = self._named(self.columns(table), words) if words else "1"
        rows = self._fetch(f"SELECT {selected} FROM {_quoted(table)} WHERE {condition}")  # noqa: S608
        # A column that is all NULL comes with another type.
        return rows.cast(pa.schema([(name, _TYPES[kind]) for name, kind in kinds.items()])) if kinds else rows

    def _named(self, has: frozenset[str], words: Sequence[str]) -> str:
        """A condition on a row's text."""
        either = [_like("text", words)] if "text" in has else []
        if "textId" in has and self.columns(STRINGS).issuperset(("id", "value")):
            either.append(f'"textId" IN (SELECT id FROM StringIds WHERE {_like("value", words)})')  # noqa: S608
        return " OR ".join(either) or "0"

    def _fetch(self, query: str) -> pa.Table:
        import adbc_driver_sqlite.dbapi as adbc  # noqa: PLC0415 - only where there is a database

        try:
            with adbc.connect(self._uri) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(ROWS_AT_ONCE)})
                cursor.execute(query)
                return self._bounded(cursor.fetch_record_batch())
        except adbc.Error as error:
            raise self._damaged(error) from error

    def _bounded(self, reader: pa.RecordBatchReader) -> pa.Table:
        """All rows; a column's default value is stored once, and is read in each of them."""
        batches, left = [], most_bytes(self.path.stat().st_size)
        for batch in reader:
            left -= batch.nbytes
            if left < 0:
                raise NotATraceError(f"{self.path}: its rows hold over {MOST_TIMES} times its size; not read")
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(self._uri, uri=True)) as connection:
                connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
                return connection.execute(query).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # its own words on a damaged schema need not be UTF-8
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> NotATraceError:
        why = first_line(error)
        return NotATraceError(f"{self.path}: the database cannot be read ({why}); export the report again")


_HOT_JOURNAL = bytes.fromhex("d9d505f920a163d7")

_WAL_HEADER_BYTES = 32


def _unfinished(path: Path) -> str | None:
    """Why the file alone is not the database, if it is not: what was written last lies beside it."""
    log, journal = (path.with_name(path.name + end) for end in ("-wal", "-journal"))
    try:
        if log.is_file() and log.stat().st_size > _WAL_HEADER_BYTES:
            write = f"sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)'"
            return f"changes of it lie in {log.name}: close what has it open, or write them into it: {write}"
        if journal.is_file():
            with journal.open("rb") as file:
                if file.read(len(_HOT_JOURNAL)) == _HOT_JOURNAL:
                    return f"it was left while it was written ({journal.name} undoes that); export the report again"
    except OSError:
        return None
    return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_TIMES = ("start", "end", "timestamp")

_SQL = {
    "ints": "CAST({0} AS INTEGER)",
    # A text would be read as 0, which is a time like any other.
    "times": "CASE WHEN typeof({0}) IN ('integer', 'real') THEN CAST({0} AS INTEGER) END",
    # ADBC takes a column's type from its first rows, so NULL must look like a number: 9e999 is infinity.
    "floats": "IFNULL(CAST({0} AS REAL), 9e999)",
    "texts": "IFNULL(CAST({0} AS TEXT), '')",
    "blobs": "CASE typeof({0}) WHEN 'blob' THEN hex({0}) WHEN 'text' THEN {0} ELSE '' END",
}
"""What is selected for a column of each kind."""


def _sql(kind: str, name: str) -> str:
    return _SQL["times" if kind == "ints" and name in _TIMES else kind].format(_quoted(name))


def _like(column: str, words: Sequence[str]) -> str:
    quoted = [word.replace("'", "''") for word in words]
    return " OR ".join(f"{_quoted(column)} LIKE '%{word}%'" for word in quoted)


# Tables of a folder that `nsys export --type=parquetdir` wrote: one Parquet file a table.


class ParquetSource(Source):
    """One folder of Parquet files."""

    @cached_property
    def tables(self) -> frozenset[str]:
        """Names of the tables that exist."""
        return frozenset(file.stem for file in self.path.glob("*.parquet"))

    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; empty when there is no such table."""
        if table not in self.tables:
            return frozenset()
        with self._explained(table):
            return frozenset(pq.read_schema(self._file(table)).names)

    def _select(self, table: str, kinds: Mapping[str, str], words: Sequence[str]) -> pa.Table:  # noqa: ARG002 - of a database alone
        with self._explained(table), pq.ParquetFile(self._file(table)) as file:
            # Without any of the columns the number of rows still matters.
            rows = file.read(columns=[*kinds] or file.schema_arrow.names[:1])
            return pa.table({name: _of_kind(rows[name], kind) for name, kind in kinds.items()}) if kinds else rows

    def _file(self, table: str) -> Path:
        return self.path / f"{table}.parquet"

    @contextmanager
    def _explained(self, table: str) -> Iterator[None]:
        """Errors of a damaged file, as `NotATraceError`."""
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            why = f"{self._file(table).name} is not readable as Parquet ({first_line(error)})"
            raise NotATraceError(f"{self.path}: {why}; export the report again") from error


def _of_kind(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    """The column as of that kind."""
    if kind == "blobs":
        # The export declares bytes as text: they need not be valid UTF-8.
        raw = column.cast(pa.large_binary(), safe=False).to_pylist()
        return pa.chunked_array([pa.array([_parquet_hex(value) for value in raw], pa.large_string())])
    return column.cast(_TYPES[kind], safe=False)


def _parquet_hex(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        text = value.decode("ascii")
        bytes.fromhex(text)
    except ValueError:
        return value.hex()
    return text
