"""Small tables as bytes, and back: exactly as they were, whatever types their columns have.

Columns follow each other, some megabytes of them packed at once: an entry of the cache has eighty tables of ten
columns, and a format that describes each table apart takes longer to write than a rank takes to decode; all of a large
one at once would take its size in memory again. Nothing in it runs when it is read; a table that would not come back as
it was is refused when it is written.
"""

import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.model.tables import columns_of, table_of

Told = tuple[str, pd.DataFrame, str]
"""A table's name, the table, and what else there is to say of it."""

_MASKED: Mapping[str, Any] = {
    "Int64": pd.arrays.IntegerArray,
    "Float64": pd.arrays.FloatingArray,
    "boolean": pd.arrays.BooleanArray,
}

_PACKED = "lz4"


class _Column(msgspec.Struct, array_like=True):
    """A column's name and type, and the type and length of its numbers; `texts` are bytes of JSON behind them."""

    name: str
    dtype: str
    numbers: str
    rows: int
    texts: int = 0
    of_texts: str = ""


class _Table(msgspec.Struct, array_like=True):
    name: str
    said: str
    rows: int
    columns: list[_Column]


class _Piece(msgspec.Struct, array_like=True):
    """Some of the columns' bytes: how many they are packed and unpacked."""

    packed: int
    size: int


_NO_PIECE = _Piece(0, 0)


class _Head(msgspec.Struct, array_like=True):
    """What the file holds: it ends with this, and with its length in `_LENGTH_BYTES`."""

    pieces: list[_Piece]
    tables: list[_Table]


_PIECE_BYTES = 8 << 20
"""What is packed at once, and what a longer column is more."""

_LENGTH_BYTES = 8


def write_tables(path: Path, tables: Iterable[Told]) -> int:
    """Write the tables, and return how many they are.

    Raises:
        ValueError, TypeError: one is not of the kind that comes back.
    """
    with path.open("wb") as file:
        parts = _Parts(file)
        told = [_told(name, frame, said, parts) for name, frame, said in tables]
        parts.pack()
        head = msgspec.json.encode(_Head(parts.pieces, told))
        file.write(head + len(head).to_bytes(_LENGTH_BYTES, "little"))
    return len(told)


def read_tables(path: Path, count: int) -> list[Told]:
    """So many tables of a file; what is wrong with it is one of `UNREADABLE`."""
    with path.open("rb") as file:
        end = file.seek(-_LENGTH_BYTES, os.SEEK_END)
        length = int.from_bytes(file.read(), "little")
        file.seek(end - length)
        head = msgspec.json.decode(file.read(length), type=_Head)
        if len(head.tables) != count:
            raise ValueError("not as it was written")
        file.seek(0)
        body = _Body(file, head.pieces)
        return [(own.name, _table(own, body), own.said) for own in head.tables]


class _Parts:
    """The bytes of columns on their way to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.pieces: list[_Piece] = []
        self._file, self._held, self._size = file, list[Any](), 0

    def append(self, part: Any) -> None:
        """The next ones."""
        self._held.append(part)
        self._size += part.nbytes if isinstance(part, np.ndarray) else len(part)
        if self._size >= _PIECE_BYTES:
            self.pack()

    def pack(self) -> None:
        """Write what is held."""
        body = b"".join(self._held)
        self._held, self._size = [], 0
        packed = pa.compress(body, codec=_PACKED, asbytes=True)
        self._file.write(packed)
        self.pieces.append(_Piece(len(packed), len(body)))


def _told(name: str, frame: pd.DataFrame, said: str, parts: "_Parts") -> _Table:
    rows: Any = frame.index
    is_numbered = isinstance(rows, pd.RangeIndex) and (rows.start, rows.step) == (0, 1)
    if not (is_numbered or rows.equals(pd.RangeIndex(len(frame)))) or not frame.columns.is_unique:
        raise ValueError("not a table that is kept")
    columns = [_packed(str(column), values, parts) for column, values in columns_of(frame).items()]
    return _Table(name, said, len(frame), columns)


def _table(told: _Table, body: "_Body") -> pd.DataFrame:
    columns = {column.name: _unpacked(column, body) for column in told.columns}
    return table_of(columns, pd.RangeIndex(told.rows))


def _packed(name: str, values: Any, parts: "_Parts") -> _Column:
    """A column as it is described; its bytes are added to the parts."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        return _numbers(name, _dtype_name(values.dtype), values, parts)
    dtype = str(values.dtype)
    if isinstance(values, pd.Categorical):
        texts = values.categories.tolist()
        if values.ordered or not all(isinstance(text, str) for text in texts):
            raise ValueError("categories that are no names")
        return _with_texts(_numbers(name, "category", values.codes, parts), str(values.categories.dtype), texts, parts)
    if dtype in _MASKED:
        plain = values.to_numpy(dtype=values.dtype.numpy_dtype, na_value=0)
        told = _numbers(name, dtype, plain, parts)
        parts.append(np.asarray(values.isna()))
        return told
    if dtype == "str":
        codes, distinct = _distinct_texts(values)
        return _with_texts(_numbers(name, dtype, codes, parts), "", distinct, parts)  # JSON's null for what is absent
    if dtype == "object":
        codes, distinct = _distinct_objects(values.tolist())
        return _with_texts(_numbers(name, dtype, codes, parts), "", [_text(value) for value in distinct], parts)
    raise ValueError(f"a column of {dtype}")


def _numbers(name: str, dtype: str, values: np.ndarray, parts: "_Parts") -> _Column:
    parts.append(np.ascontiguousarray(values))
    return _Column(name, dtype, _dtype_text(values.dtype), len(values))


@cache
def _dtype_name(dtype: np.dtype) -> str:
    return str(dtype)


@cache
def _dtype_text(dtype: np.dtype) -> str:
    return dtype.str


def _with_texts(told: _Column, of_texts: str, texts: list[Any], parts: "_Parts") -> _Column:
    text = msgspec.json.encode(texts)
    parts.append(text)
    told.texts, told.of_texts = len(text), of_texts
    return told


class _Body:
    """The bytes of a file's columns, taken one after the other."""

    def __init__(self, file: BinaryIO, pieces: Iterable[_Piece]) -> None:
        self._file, self._pieces = file, iter(pieces)
        self._held = memoryview(b"")

    def take(self, size: int) -> memoryview:
        if size > len(self._held):
            self._held = self._next()  # each column lies in one
        if size > len(self._held):
            raise ValueError("not as it was written")
        taken, self._held = self._held[:size], self._held[size:]
        return taken

    def _next(self) -> memoryview:
        piece = next(self._pieces, _NO_PIECE)
        return memoryview(pa.decompress(self._file.read(piece.packed), piece.size, codec=_PACKED))

    def numbers(self, dtype: str, rows: int) -> np.ndarray:
        of = np.dtype(dtype)
        return np.frombuffer(self.take(rows * of.itemsize), dtype=of).copy()


def _unpacked(told: _Column, body: _Body) -> Any:
    values = body.numbers(told.numbers, told.rows)
    if told.dtype in _MASKED:
        return _MASKED[told.dtype](values, body.numbers("?", told.rows))
    if told.dtype not in ("category", "str", "object"):
        return values
    held = body.take(told.texts)
    if told.dtype == "str":
        texts = np.array(msgspec.json.decode(held, type=list[str | None]), dtype=object)
        return pd.array(texts[values], dtype="str")
    names = msgspec.json.decode(held, type=list[str])
    if told.dtype == "category":
        return pd.Categorical.from_codes(values, categories=pd.Index(names, dtype=told.of_texts))
    distinct = np.empty(len(names), dtype=object)
    distinct[:] = [_value(name) for name in names]
    return pd.arrays.NumpyExtensionArray(distinct[values])


def _distinct_texts(values: Any) -> tuple[np.ndarray, list[Any]]:
    """Each text's number in order of appearance, and the texts; what is absent is one of them."""
    if len(values) <= _FEW:
        return _numbered(texts := values.tolist(), texts)
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    return codes.astype(np.int32), distinct.tolist()


_FEW = 200
"""Texts that are told apart before pandas has looked at their array."""


def _distinct_objects(values: list[Any]) -> tuple[np.ndarray, list[Any]]:
    """The same, told apart by which object each is: 1, True and 1.0 are equal."""
    return _numbered(list(map(id, values)), values)


def _numbered(own: list[Any], values: list[Any]) -> tuple[np.ndarray, list[Any]]:
    """Which of the distinct values each is, told apart by what each has of its `own`."""
    distinct = dict(zip(own, values, strict=True))
    number = dict(zip(distinct, range(len(distinct)), strict=True))
    codes = np.fromiter(map(number.__getitem__, own), dtype=np.int32, count=len(own))
    return codes, list(distinct.values())


def _text(value: object) -> str:
    """One of a column of anything: its JSON, or what JSON does not tell apart."""
    if value is None:
        return "null"
    if value is pd.NA:
        return "NA"
    if isinstance(value, float) and np.isnan(value):
        return "NaN"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    is_list = isinstance(value, tuple) and {*map(type, value)} <= {int, str}
    if not is_list and not isinstance(value, str | int | float):
        raise TypeError(f"a {type(value).__name__} in a table")
    return msgspec.json.encode(value).decode()


def _value(text: str) -> object:
    if text == "NA":
        return pd.NA
    value = np.nan if text == "NaN" else msgspec.json.decode(text)
    return tuple(value) if isinstance(value, list) else value
