"""Where the columns of large tables lie: in a file without a name, of which the system has in memory what is used.

Such memory is the file's: the system takes it back when there is little, and reads the pages again when they are asked
for. All processes that are forked meanwhile share it.
"""

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from weakref import WeakSet

import numpy as np
import pandas as pd

from traceanalyzer.model.tables import columns_as_they_are, columns_of, table_of
from traceanalyzer.processes import give_back_freed

LARGE_BYTES = 8 << 20
"""Of a table: what is smaller stays in memory."""

_FOLDER: ContextVar[Path | None] = ContextVar("folder of large tables", default=None)

_MAPS: "WeakSet[mmap.mmap]" = WeakSet()

_MOUNTS = Path("/proc/self/mounts")

_IN_MEMORY = ("tmpfs", "ramfs")
"""File systems whose files are memory that nobody takes back."""


@contextmanager
def laid_in(folder: Path | None) -> Iterator[None]:
    """Large tables that are made meanwhile lie in files of this folder, else of that of temporary files: on a disk."""
    place = folder if folder is not None and _is_open(folder) else Path(tempfile.gettempdir())
    before = _FOLDER.set(place if _is_on_disk(place) else None)
    try:
        yield
    finally:
        _FOLDER.reset(before)


def _is_open(folder: Path) -> bool:
    """Whether there is such a folder, and this user may write to it."""
    return os.access(folder, os.W_OK | os.X_OK) and folder.is_dir()


def laid_aside(table: pd.DataFrame) -> pd.DataFrame:
    """The table, its columns in a file where it is large."""
    return table if _folder_for(columns_of(table)) is None else rearranged(columns_as_they_are(table), None)


def rearranged(columns: dict[str, Any], order: np.ndarray | None) -> pd.DataFrame:
    """A table of these rows, `None` for all, numbered anew; in a file where it is large.

    Columns are taken out of `columns` one after the other: while one is moved there are two of it, and of no other.
    """
    folder = _folder_for(columns)
    sheet = None if folder is None else _Sheet.opened(folder)
    made: dict[str, Any] = {}
    for name in [*columns]:
        values = columns.pop(name)
        values = values if order is None else values.take(order)
        made[name] = values if sheet is None else sheet.put(values)
        del values
    return table_of(made if sheet is None else sheet.columns(made))


def _folder_for(columns: Mapping[str, Any]) -> Path | None:
    """Where a table of these columns lies; `None` for in memory."""
    folder = _FOLDER.get()
    if folder is None or (size := sum(values.nbytes for values in columns.values())) <= LARGE_BYTES:
        return None
    with suppress(OSError):
        return folder if shutil.disk_usage(folder).free > _LEFT_FREE * size else None
    return None


_LEFT_FREE = 8
"""Times of a table that the disk must have free: what is left is for the other tables, the cache and the report."""


def give_back_memory() -> None:
    """Give the system what was freed, and of such files what was read: what is asked for again is read again."""
    give_back_freed()
    for mapped in _MAPS:
        with suppress(AttributeError, OSError, ValueError):  # not on every system; or closed
            mapped.madvise(mmap.MADV_DONTNEED)


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

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    @classmethod
    def opened(cls, folder: Path) -> "_Sheet | None":
        """One in the folder, without a name: it is gone when nobody uses its columns any more."""
        try:
            return cls(tempfile.TemporaryFile(dir=folder))
        except OSError:
            return None

    def put(self, values: Any) -> Any:
        """The column once it is written; itself where it is of no type of numbers, or there is no room."""
        arrays = _arrays_of(values)
        try:
            places = tuple(map(self._written, arrays))
        except OSError:
            return values
        return _Laid(values[:0].copy(), places) if places else values

    def _written(self, array: np.ndarray) -> _Place:
        offset = self._file.seek(0, os.SEEK_END)
        offset = self._file.seek(-(-offset // _ALIGNED) * _ALIGNED)
        self._file.write(np.ascontiguousarray(array).data)
        self._file.flush()
        return _Place(array.dtype, len(array), offset)

    def columns(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """All columns, those that were written as the file has them."""
        with self._file as file:
            if not any(type(own) is _Laid for own in made.values()):
                return dict(made)
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _MAPS.add(held)
        return {name: _read(own, held) if type(own) is _Laid else own for name, own in made.items()}


_ALIGNED = 64
"""Bytes at whose multiples arrays begin."""


def _arrays_of(values: Any) -> tuple[np.ndarray, ...]:
    """What of a column can lie in a file."""
    if isinstance(values, pd.Categorical):
        return (values.codes,)
    if isinstance(values, pd.arrays.IntegerArray):
        return (values.to_numpy(dtype=np.int64, na_value=1), np.asarray(values.isna()))
    return (values,) if isinstance(values, np.ndarray) and values.dtype != object else ()


def _read(laid: _Laid, held: mmap.mmap) -> Any:
    arrays = [np.frombuffer(held, own.dtype, own.length, own.offset) for own in laid.places]
    if isinstance(laid.empty, pd.Categorical):
        return pd.Categorical.from_codes(arrays[0], dtype=laid.empty.dtype)
    return pd.arrays.IntegerArray(arrays[0], arrays[1]) if isinstance(laid.empty, pd.arrays.IntegerArray) else arrays[0]


def _is_on_disk(folder: Path) -> bool:
    """Whether files of the folder are on one: the mount that it lies in is not of memory. Known of Linux alone."""
    try:
        place = folder.resolve()
        mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
    except (OSError, RuntimeError):
        return False
    around = [(len(Path(mount[1]).parts), number, mount[2]) for number, mount in enumerate(mounts)
              if place.is_relative_to(mount[1])]  # fmt: skip
    return max(around, default=(0, 0, "tmpfs"))[2] not in _IN_MEMORY
