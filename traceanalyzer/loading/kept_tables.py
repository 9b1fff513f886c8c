"""Small tables as bytes, and back: exactly as they were, whatever types their columns have.

All columns of one file follow each other, packed at once: an entry of the cache has eighty tables of ten columns, and a
format that describes each table apart takes longer to write than a rank takes to decode. Nothing in it runs when it is
read; a table that would not come back as it was is refused when it is written.
"""

import zlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

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


class _Head(msgspec.Struct, array_like=True):
    """What the file holds: `size` bytes of columns once they are unpacked, and their checksum."""

    size: int
    check: int
    tables: list[_Table]


def write_tables(path: Path, tables: Iterable[Told]) -> int:
    """Write the tables, and return how many they are.

    Raises:
        ValueError, TypeError: one is not of the kind that comes back.
    """
    parts: list[Any] = []
    told = [_told(name, frame, said, parts) for name, frame, said in tables]
    body = b"".join(parts)
    head = msgspec.json.encode(_Head(len(body), zlib.crc32(body), told))
    path.write_bytes(b"".join((len(head).to_bytes(8, "little"), head, pa.compress(body, codec=_PACKED, asbytes=True))))
    return len(told)


def read_tables(path: Path, count: int) -> list[Told]:
    """So many tables of a file; what is wrong with it is one of `UNREADABLE`."""
    held = memoryview(path.read_bytes())
    begin = 8 + int.from_bytes(held[:8], "little")
    head = msgspec.json.decode(held[8:begin], type=_Head)
    body = _Body(memoryview(pa.decompress(held[begin:], head.size, codec=_PACKED)))
    if zlib.crc32(body.bytes) != head.check or len(head.tables) != count:
        raise ValueError("not as it was written")
    return [(own.name, _table(own, body), own.said) for own in head.tables]


def _told(name: str, frame: pd.DataFrame, said: str, parts: list[Any]) -> _Table:
    rows: Any = frame.index
    is_numbered = isinstance(rows, pd.RangeIndex) and (rows.start, rows.step) == (0, 1)
    if not (is_numbered or rows.equals(pd.RangeIndex(len(frame)))) or not frame.columns.is_unique:
        raise ValueError("not a table that is kept")
    columns = [_packed(str(column), values, parts) for column, values in columns_of(frame).items()]
    return _Table(name, said, len(frame), columns)


def _table(told: _Table, body: "_Body") -> pd.DataFrame:
    columns = {column.name: _unpacked(column, body) for column in told.columns}
    return table_of(columns, pd.RangeIndex(told.rows))


def _packed(name: str, values: Any, parts: list[Any]) -> _Column:
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
        # Not `factorize`, which takes longer to look at an array of few texts than these take to be told apart.
        codes, distinct = _numbered(texts := values.tolist(), texts)
        return _with_texts(_numbers(name, dtype, codes, parts), "", distinct, parts)  # JSON's null for what is absent
    if dtype == "object":
        codes, distinct = _distinct_objects(values.tolist())
        return _with_texts(_numbers(name, dtype, codes, parts), "", [_text(value) for value in distinct], parts)
    raise ValueError(f"a column of {dtype}")


def _numbers(name: str, dtype: str, values: np.ndarray, parts: list[Any]) -> _Column:
    parts.append(np.ascontiguousarray(values))
    return _Column(name, dtype, _dtype_text(values.dtype), len(values))


@cache
def _dtype_name(dtype: np.dtype) -> str:
    return str(dtype)


@cache
def _dtype_text(dtype: np.dtype) -> str:
    return dtype.str


def _with_texts(told: _Column, of_texts: str, texts: list[Any], parts: list[Any]) -> _Column:
    parts.append(msgspec.json.encode(texts))
    told.texts, told.of_texts = len(parts[-1]), of_texts
    return told


class _Body:
    """The bytes of a file's columns, taken one after the other."""

    def __init__(self, held: memoryview) -> None:
        self.bytes, self._at = held, 0

    def take(self, size: int) -> memoryview:
        self._at += size
        return self.bytes[self._at - size : self._at]

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
