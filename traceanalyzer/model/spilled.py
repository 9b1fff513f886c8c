"""Tables whose columns lie in a file without a name where they are large, and arrays of other things that do."""

import os
import pickle
from collections.abc import Mapping
from io import FileIO
from mmap import PAGESIZE, mmap
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from traceanalyzer.files.bounds import BLOCK_BYTES
from traceanalyzer.files.spill import append, can_spill, mapped, spill_file
from traceanalyzer.meaning.rows import NONE
from traceanalyzer.model.tables import columns_as_they_are, table_of

T = TypeVar("T")


def spilled(table: pd.DataFrame) -> pd.DataFrame:
    """The table, its columns in a file where it is large."""
    columns = columns_as_they_are(table)
    file = _file_for(columns)
    return table if file is None else _moved(columns, None, file)


def rearranged(columns: dict[str, Any], order: np.ndarray | None) -> pd.DataFrame:
    """A table of these rows, `None` for all, numbered anew; in a file where it is large.

    Columns are taken out of `columns` one after the other: while one is moved there are two of it, and of no other.
    """
    return _moved(columns, order, _file_for(columns))


def spilled_arrays(value: T) -> T:
    """Anything that can be pickled, the large ones of its arrays in a file; they cannot be written to then.

    An array that cannot be written to by now is a table's own, and lies where that does.
    """
    if not can_spill():
        return value
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    large = [own for own in raw if own.nbytes > BLOCK_BYTES and not own.readonly]
    file = spill_file(sum(own.nbytes for own in large))
    if file is None:
        return value
    with file:
        try:
            places = {id(own): _appended(file, own) for own in large}
        except OSError:
            return value
        held = memoryview(mapped(file))
    laid = (
        held[place : place + own.nbytes] if (place := places.get(id(own), NONE)) != NONE else buffer
        for own, buffer in zip(raw, buffers, strict=True)
    )
    made: T = pickle.loads(rest, buffers=laid)  # noqa: S301 - from a few lines above
    return made


def _appended(file: FileIO, content: Any) -> int:
    """Where in the file it begins.

    Raises:
        OSError: there is no room.
    """
    offset = file.seek(0, os.SEEK_END)
    offset = file.seek(-(-offset // PAGESIZE) * PAGESIZE)
    append(file, content)
    return offset


def _file_for(columns: Mapping[str, Any]) -> FileIO | None:
    return spill_file(sum(values.nbytes for values in columns.values())) if can_spill() else None


def _moved(columns: dict[str, Any], order: np.ndarray | None, file: FileIO | None) -> pd.DataFrame:
    sheet = None if file is None else _Sheet(file)
    made: dict[str, Any] = {}
    for name in [*columns]:
        values = columns.pop(name)
        values = values if order is None else values.take(order)
        made[name] = values if sheet is None else sheet.put(values)
        del values
    return table_of(made if sheet is None else sheet.columns(made))


class _Place(NamedTuple):
    """Where an array lies in a file."""

    dtype: np.dtype[Any]
    length: int
    offset: int


class _Laid(NamedTuple):
    """A column whose arrays lie in a file: an empty one of its type, and where they are."""

    empty: Any
    places: tuple[_Place, ...]


class _Sheet:
    """A file to which columns are written, one behind the other. What finds no room in it stays in memory."""

    def __init__(self, file: FileIO) -> None:
        self._file = file

    def put(self, values: Any) -> Any:
        """The column once it is written; itself where it is of no type of numbers, or there is no room."""
        arrays = _arrays_of(values)
        try:
            places = tuple(map(self._written, arrays))
        except OSError:
            return values
        return _Laid(values[:0].copy(), places) if places else values

    def _written(self, array: np.ndarray) -> _Place:
        return _Place(array.dtype, len(array), _appended(self._file, np.ascontiguousarray(array)))

    def columns(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """All columns, those that were written as the file has them."""
        with self._file as file:
            if not any(type(own) is _Laid for own in made.values()):
                return dict(made)
            held = mapped(file)
        return {name: _read(own, held) if type(own) is _Laid else own for name, own in made.items()}


def _arrays_of(values: Any) -> tuple[np.ndarray, ...]:
    """What of a column can lie in a file."""
    if isinstance(values, pd.Categorical):
        return (values.codes,)
    if isinstance(values, pd.arrays.IntegerArray):
        return (values.to_numpy(dtype=np.int64, na_value=1), np.asarray(values.isna()))
    return (values,) if isinstance(values, np.ndarray) and values.dtype != object else ()


def _read(laid: _Laid, held: mmap) -> Any:
    arrays = [np.frombuffer(held, own.dtype, own.length, own.offset) for own in laid.places]
    if isinstance(laid.empty, pd.Categorical):
        return pd.Categorical.from_codes(arrays[0], dtype=laid.empty.dtype)
    return pd.arrays.IntegerArray(arrays[0], arrays[1]) if isinstance(laid.empty, pd.arrays.IntegerArray) else arrays[0]
