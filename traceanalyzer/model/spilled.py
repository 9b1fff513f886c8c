"""Tables whose columns lie in a file without a name where they are large, and arrays of other things that do."""

import os
import pickle
from io import FileIO
from mmap import PAGESIZE
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from traceanalyzer.files.bounds import BLOCK_BYTES
from traceanalyzer.files.spill import append, can_spill, mapped, spill_file
from traceanalyzer.model.tables import columns_as_they_are, table_of

T = TypeVar("T")


def spilled(table: pd.DataFrame) -> pd.DataFrame:
    """The table, its columns in a file where it is large."""
    return rearranged(columns_as_they_are(table), None) if can_spill() else table


def rearranged(columns: dict[str, Any], order: np.ndarray | None) -> pd.DataFrame:
    """A table of these rows, `None` for all, numbered anew; in a file where it is large.

    Columns are taken out of `columns` one after the other: while one is moved there are two of it, and of no other.
    """
    file = spill_file(sum(values.nbytes for values in columns.values())) if can_spill() else None
    made: dict[str, Any] = {}
    for name in [*columns]:
        values = columns.pop(name)
        values = values if order is None else values.take(order)
        made[name] = values if file is None else _put(file, values)
        del values
    if file is not None:
        with file:
            held = memoryview(mapped(file)) if file.tell() else memoryview(b"")
        made = {name: own.read(held) if isinstance(own, _Pickled) else own for name, own in made.items()}
    return table_of(made)


def spilled_arrays(value: T) -> T:
    """Anything that can be pickled, the large ones of its arrays in a file; they cannot be written to then.

    An array that cannot be written to by now is a table's own, and lies where that does.
    """
    if not can_spill():
        return value
    pickled = _pickled(value)
    large = [own for own in pickled.buffers if own.nbytes > BLOCK_BYTES and not own.readonly]
    file = spill_file(sum(own.nbytes for own in large))
    if file is None:
        return value
    with file:
        try:
            places = {id(own): _laid(file, own) for own in large}
        except OSError:
            return value
        held = memoryview(mapped(file))
    made: T = _Pickled(pickled.rest, [places.get(id(own), own) for own in pickled.buffers]).read(held)
    return made


class _Pickled(NamedTuple):
    """Something without its arrays, and these: the bytes of each, or where in a file they lie."""

    rest: bytes
    buffers: list[Any]

    def read(self, held: memoryview) -> Any:
        """It again, given the file's bytes."""
        buffers = [held[own] if isinstance(own, slice) else own for own in self.buffers]
        return pickle.loads(self.rest, buffers=buffers)  # noqa: S301 - from this process


def _pickled(value: Any) -> _Pickled:
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    return _Pickled(rest, [own.raw() for own in buffers])


def _put(file: FileIO, values: Any) -> Any:
    """The column once it is written; itself where it is of no type of numbers, or there is no room."""
    if values.dtype.kind == "O" and not isinstance(values, pd.Categorical):
        return values
    pickled = _pickled(values)
    try:
        return _Pickled(pickled.rest, [_laid(file, own) for own in pickled.buffers])
    except OSError:
        return values


def _laid(file: FileIO, content: memoryview) -> slice:
    """Where in the file it lies, once it is written.

    Raises:
        OSError: there is no room.
    """
    end = file.seek(0, os.SEEK_END)
    begin = file.seek(-(-end // PAGESIZE) * PAGESIZE)
    append(file, content)
    return slice(begin, begin + content.nbytes)
