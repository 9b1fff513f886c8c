"""Tables of a folder that `nsys export --type=parquetdir` wrote: one Parquet file a table."""

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from traceanalyzer.errors import NotATraceError
from traceanalyzer.readers.nsys.source import PACK_BITS, Source, Wanted, with_valid_text

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
                columns[name] = _packed(rows, parts) if has.issuperset(parts) else _nulls(len(rows), pa.int64())
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
    return pa.chunked_array([pa.array([_hex(value) for value in raw], pa.large_string())])


def _hex(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        text = value.decode("ascii")
        bytes.fromhex(text)
    except ValueError:
        return value.hex()
    return text


def _packed(rows: pa.Table, parts: tuple[str, str, str]) -> pa.ChunkedArray:
    high, middle, low = (
        pc.shift_left(rows[name].cast(pa.int64(), safe=False), bits)
        for name, bits in zip(parts, PACK_BITS, strict=True)
    )
    return pc.bit_wise_or(pc.bit_wise_or(high, middle), low)
