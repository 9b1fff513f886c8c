"""Tables of an Nsight Systems export: SQLite or Parquet."""

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from traceanalyzer.errors import NotATraceError
from traceanalyzer.files import archives
from traceanalyzer.model.schema import NONE

# What a source of an export's tables offers, so that nothing above it knows databases from Parquet files.


Triples = Mapping[str, tuple[str, str, str]]

PACK_BITS = (32, 16, 0)
"""Where a triple's three numbers stand in its packed int64: CUDA's limits are 2³¹−1, 65,535 and 65,535."""


STRINGS = "StringIds"
"""The table of all names."""

ESSENTIAL = frozenset({
    STRINGS, "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
})  # fmt: skip
"""Tables without which figures would be wrong, and not only fewer."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of a table.

    Attributes:
        ints: columns read as int64 (unsigned ones wrap).
        floats: columns read as float64.
        texts: columns read as text; NULL may come as "".
        blobs: columns of bytes, as hexadecimal text; NULL may come as "".
        triples: name → three columns, read as one int64 (`PACK_BITS`), NULL where one is.
        containing: only rows whose column `text`, or string of `textId`, contains one of these words, in any case.
    """

    ints: Sequence[str] = ()
    floats: Sequence[str] = ()
    texts: Sequence[str] = ()
    blobs: Sequence[str] = ()
    triples: Triples = field(default_factory=dict)
    containing: Sequence[str] = ()


class Source(ABC):
    """The tables of one export. Tables and columns come and go between versions: ask, or read NULLs."""

    @property
    @abstractmethod
    def tables(self) -> frozenset[str]:
        """Names of the tables that exist; empty ones usually do not."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; empty when there is no such table."""

    @abstractmethod
    def strings(self, ids: np.ndarray) -> dict[int, str]:
        """Texts of these `StringIds`; only these, since the table also holds the machine's environment."""

    def __init__(self) -> None:
        self.damaged: dict[str, str] = {}
        """Tables that are taken as absent, and why."""

    def read(self, table: str, **wanted: Any) -> pa.Table:
        """Chosen columns of all rows, by the names of `Wanted`.

        Columns that the table lacks are NULL, a table that is absent is empty. So is one that cannot be read, where
        figures can do without it: `damaged` names it then.

        Raises:
            NotATraceError: a table of `ESSENTIAL` cannot be read.
        """
        try:
            return self._read(table, Wanted(**wanted))
        except NotATraceError as error:
            if table in ESSENTIAL:
                raise
            self.damaged[table] = str(error)
            names = Wanted(**wanted)
            kinds = {
                **dict.fromkeys((*names.ints, *names.triples), pa.int64()),
                **dict.fromkeys(names.floats, pa.float64()),
                **dict.fromkeys((*names.texts, *names.blobs), pa.large_string()),
            }
            return pa.table({name: pa.nulls(0, kind) for name, kind in kinds.items()})

    @abstractmethod
    def _read(self, table: str, wanted: Wanted) -> pa.Table:
        """The same."""


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


def int_values(rows: pa.Table, name: str, missing: int = NONE) -> np.ndarray:
    """A column as int64 with `missing` for NULL."""
    column = rows[name]
    if column.null_count == len(column):
        return np.full(len(column), missing, dtype=np.int64)
    values: np.ndarray = (column.fill_null(missing) if column.null_count else column).to_numpy()
    return values


def maybe_ints(rows: pa.Table, name: str) -> pd.api.extensions.ExtensionArray:
    """A column as pandas' Int64 with NA for NULL."""
    column = rows[name]
    if not column.null_count:
        return pd.array(column.to_numpy(), dtype="Int64")
    return pd.arrays.IntegerArray(
        column.fill_null(0).to_numpy().copy(), column.is_null().to_numpy(zero_copy_only=False)
    )


def text_values(rows: pa.Table, name: str) -> list[str]:
    """A column as strings with "" for NULL."""
    return [value or "" for value in rows[name].to_pylist()]


def is_known(rows: pa.Table, name: str) -> np.ndarray:
    """Where a column is not NULL."""
    return np.asarray(pc.is_valid(rows[name]).to_numpy())


def category(codes: np.ndarray, names: Sequence[str | None]) -> pd.Categorical:
    """Categories of those `names` that `codes` (positions in `names`) use; equal names become one."""
    used = np.zeros(len(names), dtype=bool)
    used[codes] = True
    kept = [name for name, is_used in zip(names, used.tolist(), strict=True) if is_used and name is not None]
    distinct = {name: position for position, name in enumerate(dict.fromkeys(kept))}
    # An unused or absent name is never looked up: -1 is pandas' code for NA.
    remap = np.array([NONE if name is None else distinct.get(name, NONE) for name in names], dtype=np.int64)
    new_codes = remap[codes] if len(names) else np.empty(0, dtype=np.int64)
    return pd.Categorical.from_codes(new_codes, categories=pd.Index(list(distinct), dtype="str"))


def triple_category(packed: np.ndarray) -> pd.Categorical:
    """Packed triples as "24x1x1"; NA for negative ones."""
    codes, distinct = pd.factorize(packed)
    high, middle, _ = PACK_BITS
    names = [
        None if value < 0 else f"{value >> high}x{(value >> middle) & 0xFFFF}x{value & 0xFFFF}"
        for value in distinct.tolist()
    ]
    return category(codes, names)


# Tables of a database that `nsys export --type=sqlite` wrote, read without touching the file.
#
# ADBC fills Arrow columns: the standard library's cursor takes many times as long.


_IDS_A_QUERY = 20_000
_BATCH_ROWS = 65_536


class SqliteSource(Source):
    """One database, opened read-only and immutable: no lock, no journal, nothing written beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._columns: dict[str, frozenset[str]] = {}

    @cached_property
    def tables(self) -> frozenset[str]:
        """Names of the tables that exist.

        Raises:
            NotATraceError: the file is no database, or changes of it lie beside it.
        """
        if told := _unfinished(self.path.resolve()):
            raise NotATraceError(f"{self.path}: {told}")
        return frozenset(name for (name,) in self._ask("SELECT name FROM sqlite_master WHERE type = 'table'"))

    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; empty when there is no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            self._columns[table] = frozenset(row[1] for row in self._ask(f"PRAGMA table_info({_quoted(table)})"))
        return self._columns[table]

    def _read(self, table: str, wanted: Wanted) -> pa.Table:
        has = self.columns(table)
        fields = [
            *((name, pa.int64(), (name,), _int(name)) for name in wanted.ints),
            *((name, pa.float64(), (name,), _float(name)) for name in wanted.floats),
            *((name, pa.string(), (name,), _text(name)) for name in wanted.texts),
            *((name, pa.string(), (name,), _sqlite_hex(name)) for name in wanted.blobs),
            *((name, pa.int64(), parts, _sqlite_packed(parts)) for name, parts in wanted.triples.items()),
        ]
        present = [(name, kind, sql) for name, kind, parts, sql in fields if has.issuperset(parts)]
        # Without any of the columns the number of rows still matters.
        asked = present or [("rows", pa.int64(), "0")]
        rows = self._select(table, asked, self._named(has, wanted.containing)) if has else None
        length = len(rows) if rows is not None else 0
        absent = [(name, kind) for name, kind, parts, _ in fields if not has.issuperset(parts)]
        columns = dict(zip(rows.column_names, rows.columns, strict=True)) if rows is not None else {}
        columns |= {name: pa.chunked_array([pa.nulls(length, kind)]) for name, kind in absent}
        return pa.table({name: columns[name] for name, *_ in fields})

    def strings(self, ids: np.ndarray) -> dict[int, str]:
        """Texts of these `StringIds`."""
        found: dict[int, str] = {}
        if not self._has_strings:
            return found
        for first in range(0, len(ids), _IDS_A_QUERY):
            wanted = ",".join(str(int(one)) for one in ids[first : first + _IDS_A_QUERY])
            found.update(
                self._ask(f"SELECT id, CAST(value AS TEXT) FROM StringIds WHERE id IN ({wanted})")  # noqa: S608
            )
        return found

    @cached_property
    def _has_strings(self) -> bool:
        """Whether texts are stored; a generated column, which can be of any length, is none of `columns`."""
        return self.columns("StringIds").issuperset(("id", "value"))

    def _named(self, has: frozenset[str], words: Sequence[str]) -> str:
        """A condition on a row's text; empty without words."""
        if not words:
            return ""
        either = [_like("text", words)] if "text" in has else []
        if "textId" in has and self._has_strings:
            either.append(f'"textId" IN (SELECT id FROM StringIds WHERE {_like("value", words)})')  # noqa: S608
        return f"({' OR '.join(either or ['0'])})"

    def _select(self, table: str, fields: list[tuple[str, pa.DataType, str]], condition: str) -> pa.Table:
        selected = ", ".join(f"{sql} AS {_quoted(name)}" for name, _, sql in fields)
        query = f"SELECT {selected} FROM {_quoted(table)}"  # noqa: S608
        rows = self._fetch(f"{query} WHERE {condition}" if condition else query)
        # A column that is all NULL comes with another type.
        return with_valid_text(rows.cast(pa.schema([(name, kind) for name, kind, _ in fields])))

    def _fetch(self, query: str) -> pa.Table:
        import adbc_driver_sqlite.dbapi as adbc  # noqa: PLC0415 - only where there is a database

        try:
            with adbc.connect(self._uri) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
                cursor.execute(query)
                return self._bounded(cursor.fetch_record_batch())
        except adbc.Error as error:
            raise self._damaged(error) from error

    def _bounded(self, reader: pa.RecordBatchReader) -> pa.Table:
        """All rows; a column's default value is stored once, and is read in each of them."""
        batches, left = [], archives.most_bytes(self.path.stat().st_size)
        for batch in reader:
            left -= batch.nbytes
            if left < 0:
                raise NotATraceError(f"{self.path}: its rows hold over {archives.MOST_TIMES} times its size; not read")
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
        first_line = str(error).partition("\n")[0]
        return NotATraceError(f"{self.path}: the database cannot be read ({first_line}); export the report again")


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


def _int(name: str) -> str:
    number = f"CAST({_quoted(name)} AS INTEGER)"
    # A text would be read as 0, which is a time like any other.
    return f"CASE WHEN typeof({_quoted(name)}) IN ('integer', 'real') THEN {number} END" if name in _TIMES else number


def _float(name: str) -> str:
    # ADBC takes a column's type from its first rows, so NULL must look like a number: 9e999 is infinity.
    return f"IFNULL(CAST({_quoted(name)} AS REAL), 9e999)"


def _text(name: str) -> str:
    return f"IFNULL(CAST({_quoted(name)} AS TEXT), '')"


def _like(column: str, words: Sequence[str]) -> str:
    quoted = [word.replace("'", "''") for word in words]
    return " OR ".join(f"{_quoted(column)} LIKE '%{word}%'" for word in quoted)


def _sqlite_hex(name: str) -> str:
    column = _quoted(name)
    return f"CASE typeof({column}) WHEN 'blob' THEN hex({column}) WHEN 'text' THEN {column} ELSE '' END"


def _sqlite_packed(parts: tuple[str, str, str]) -> str:
    return "(" + " | ".join(f"({_quoted(part)} << {bits})" for part, bits in zip(parts, PACK_BITS, strict=True)) + ")"


# Tables of a folder that `nsys export --type=parquetdir` wrote: one Parquet file a table.


_LONGEST = 120
"""Characters of Arrow's own words that an error carries."""


class ParquetSource(Source):
    """One folder of Parquet files."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @cached_property
    def tables(self) -> frozenset[str]:
        """Names of the tables that exist."""
        return frozenset(file.stem for file in self.path.glob("*.parquet"))

    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; empty when there is no such table."""
        if table not in self.tables:
            return frozenset()
        try:
            return frozenset(pq.read_schema(self._file(table)).names)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._damaged(table, error) from error

    def _read(self, table: str, wanted: Wanted) -> pa.Table:
        plain = {
            **dict.fromkeys(wanted.ints, pa.int64()), **dict.fromkeys(wanted.floats, pa.float64()),
            **dict.fromkeys(wanted.texts, pa.large_string()), **dict.fromkeys(wanted.blobs, pa.large_string()),
        }  # fmt: skip
        has = self.columns(table)
        names = [*plain, *(name for parts in wanted.triples.values() for name in parts)]
        rows = self._load(table, [name for name in names if name in has]) if has else pa.table({})
        try:
            columns = {
                name: _as(rows[name], kind, name in wanted.blobs) if name in has else _nulls(len(rows), kind)
                for name, kind in plain.items()
            }
            for name, parts in wanted.triples.items():
                columns[name] = _parquet_packed(rows, parts) if has.issuperset(parts) else _nulls(len(rows), pa.int64())
            table_read = with_valid_text(pa.table(columns))
        except pa.ArrowException as error:
            raise self._damaged(table, error) from error
        return self._named(table_read, wanted.containing) if wanted.containing else table_read

    def _named(self, rows: pa.Table, words: Sequence[str]) -> pa.Table:
        """Rows whose text, or string of `textId`, contains one of the words."""
        pattern = "(?i)" + "|".join(re.escape(word) for word in words)
        strings = self.read("StringIds", ints=("id",), texts=("value",))
        named = strings.filter(pc.match_substring_regex(strings["value"], pattern))["id"].combine_chunks()
        is_named = pc.is_in(rows["textId"], value_set=named)
        return rows.filter(pc.or_(pc.match_substring_regex(rows["text"].fill_null(""), pattern), is_named))

    def strings(self, ids: np.ndarray) -> dict[int, str]:
        """Texts of these `StringIds`."""
        rows = self.read("StringIds", ints=("id",), texts=("value",))
        rows = rows.filter(pc.is_in(rows["id"], value_set=pa.array(ids, pa.int64())))
        return dict(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))

    def _load(self, table: str, columns: list[str]) -> pa.Table:
        try:
            with pq.ParquetFile(self._file(table)) as file:
                # Without any of the columns the number of rows still matters.
                return file.read(columns=columns or file.schema_arrow.names[:1])
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._damaged(table, error) from error

    def _file(self, table: str) -> Path:
        return self.path / f"{table}.parquet"

    def _damaged(self, table: str, error: Exception) -> NotATraceError:
        first_line = (str(error).splitlines() or [type(error).__name__])[0][:_LONGEST]
        return NotATraceError(f"{self._file(table)}: not readable as Parquet ({first_line}); export the report again")


def _nulls(length: int, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(length, kind)])


def _as(column: pa.ChunkedArray, kind: pa.DataType, is_blob: bool) -> pa.ChunkedArray:
    if not is_blob:
        return column if column.type == kind else column.cast(kind, safe=False)
    # The export declares bytes as text: they need not be valid UTF-8.
    raw = column.cast(pa.large_binary(), safe=False).to_pylist()
    return pa.chunked_array([pa.array([_parquet_hex(value) for value in raw], pa.large_string())])


def _parquet_hex(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        text = value.decode("ascii")
        bytes.fromhex(text)
    except ValueError:
        return value.hex()
    return text


def _parquet_packed(rows: pa.Table, parts: tuple[str, str, str]) -> pa.ChunkedArray:
    high, middle, low = (
        pc.shift_left(rows[name].cast(pa.int64(), safe=False), bits)
        for name, bits in zip(parts, PACK_BITS, strict=True)
    )
    return pc.bit_wise_or(pc.bit_wise_or(high, middle), low)
