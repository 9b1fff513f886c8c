"""Tables from whole columns and back to arrays; large ones lie in a file without a name."""

import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from io import FileIO
from mmap import PAGESIZE
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from traceanalyzer.files.bounds import BLOCK_BYTES, append, can_spill, mapped, spill_file
from traceanalyzer.meaning.rows import NONE

Table = TypeVar("Table", bound=pd.DataFrame)


def table_of(columns: Mapping[str, Any], index: pd.Index | None = None) -> pd.DataFrame:
    """A table of columns of one length, which are not copied; its rows are numbered from 0 unless an index is given."""
    return pd.DataFrame({name: _as_column(own, index) for name, own in columns.items()}, index, copy=False)


def _as_column(values: Any, index: pd.Index | None) -> Any:
    """The values of an extension array with the type that they have: of plain objects pandas would look for another."""
    is_plain = type(values) is pd.arrays.NumpyExtensionArray
    return pd.Series(values, index, dtype=values.dtype.numpy_dtype, copy=False) if is_plain else values


def without_rows(columns: Iterable[str]) -> pd.DataFrame:
    """A table of these columns without rows."""
    return pd.DataFrame(columns=[*columns])


def columns_of(table: pd.DataFrame) -> dict[str, Any]:
    """The table's columns by name, as numpy has them or arrays of pandas' own kinds; not to be written to."""
    return {str(name): _values(table, place) for place, name in enumerate(table.columns)}


def _values(table: pd.DataFrame, place: int) -> Any:
    # A `Series` for each look-up takes ten times as long, a tenth of a small rank's analyses: benchmarks/rank_cost.py.
    values = table._get_column_array(place)  # noqa: SLF001
    if isinstance(values, np.ndarray):
        values = values.view()
        values.flags.writeable = False
    return values


def array_of(table: pd.DataFrame, name: str) -> np.ndarray:
    """A column as numpy has it, not to be written to."""
    return np.asarray(_values(table, table.columns.get_loc(name)))


def arrays_of(table: pd.DataFrame, *names: str, rows: Any = slice(None)) -> list[np.ndarray]:
    """Columns as numpy has them, of these rows; not to be written to."""
    return [array_of(table, name)[rows] for name in names]


def column_of(table: pd.DataFrame, name: str) -> Any:
    """A column as an array of pandas' own kinds, not to be written to."""
    values = _values(table, table.columns.get_loc(name))
    return pd.arrays.NumpyExtensionArray(values) if isinstance(values, np.ndarray) else values


def floats(column: Any) -> np.ndarray:
    """A column's numbers, NaN where they are absent."""
    return pd.Series(column).to_numpy(dtype=np.float64, na_value=np.nan)


def columns_as_they_are(table: pd.DataFrame) -> dict[str, Any]:
    """The columns for another table, in which objects stay objects: of a plain array of them pandas finds the type."""
    return {
        name: pd.arrays.NumpyExtensionArray(values) if values.dtype == object else values
        for name, values in columns_of(table).items()
    }


def with_columns(table: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """The table with new columns, whose rows count by position."""
    own = {
        name: values.set_axis(table.index) if isinstance(values, pd.Series) else values
        for name, values in columns.items()
    }
    return table.assign(**own)


def picked(table: pd.DataFrame, rows: np.ndarray, names: Sequence[str] = ()) -> pd.DataFrame:
    """These rows (positions, or a mask) of the named columns, else of all, numbered anew."""
    places = np.flatnonzero(rows) if rows.dtype == bool else rows
    columns = columns_as_they_are(table)
    return table_of({name: columns[name].take(places) for name in names or columns}, pd.RangeIndex(len(places)))


def rows_where(table: Table, mask: Any) -> Table:
    """Rows for which an array or a column says yes, by position; an absent answer is no."""
    is_plain = isinstance(mask, np.ndarray) and mask.dtype.kind == "b"
    return table[mask if is_plain else pd.array(mask, dtype="boolean").to_numpy(dtype=bool, na_value=False)]


def sorted_by(table: pd.DataFrame, name: str, *, kind: Literal["stable", "quicksort"] = "stable") -> pd.DataFrame:
    """The table by a column, the largest first, numbered anew."""
    return picked(table, column_of(table, name).argsort(ascending=False, kind=kind))


def under_each_other(tables: Sequence[pd.DataFrame], *, is_with_texts: bool = False) -> pd.DataFrame:
    """The rows of one table or more; names of categories become texts where they differ, or where that is asked for."""
    types: dict[str, set[Any]] = {}
    for table in tables:
        for name, values in columns_of(table).items():
            types.setdefault(name, set()).add(values.dtype)
    as_texts = {
        name
        for name, own in types.items()
        if any(isinstance(dtype, pd.CategoricalDtype) for dtype in own) and (is_with_texts or len(own) > 1)
    }
    # Converted together: of many small tables each one's conversion takes longer than all the rest.
    table = pd.concat(tables, ignore_index=True)
    return table.astype(dict.fromkeys(as_texts, pd.StringDtype(na_value=np.nan))) if as_texts else table


def lengths_of(table: pd.DataFrame) -> np.ndarray:
    """From `start_ns` to `end_ns` of each row."""
    lengths: np.ndarray = array_of(table, "end_ns") - array_of(table, "start_ns")
    return lengths


def pairs_of(first: Any, second: Any) -> tuple[list[tuple[Any, Any]], np.ndarray]:
    """The distinct pairs of two categoricals' names, `None` for an absent one, and for each row its pair."""
    names, others = [None, *first.categories.tolist()], [None, *second.categories.tolist()]
    codes = (first.codes.astype(np.int64) + 1) * len(others) + second.codes + 1
    pairs, of_row = np.unique(codes, return_inverse=True)
    return [(names[pair // len(others)], others[pair % len(others)]) for pair in pairs.tolist()], of_row


def texts_as_category(texts: Sequence[str | None]) -> pd.Categorical:
    """As `pd.Categorical`, of few texts."""
    names = sorted({text for text in texts if text is not None})
    place: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    codes = np.array([place.get(text, NONE) for text in texts], dtype=np.int64)
    return pd.Categorical.from_codes(codes, dtype=names_of(names))


def names_of(texts: Sequence[str]) -> pd.CategoricalDtype:
    """Categories of these texts; of few ones they are shared by all columns and ranks that have the same."""
    few = len(texts) <= np.iinfo(np.uint8).max
    return _shared_names(tuple(texts), pd.get_option("mode.string_storage")) if few else _names(texts)


@lru_cache(1 << 10)
def _shared_names(texts: tuple[str, ...], _storage: str) -> pd.CategoricalDtype:
    return _names(texts)


def _names(texts: Sequence[str]) -> pd.CategoricalDtype:
    return pd.CategoricalDtype(pd.Index(list(texts), dtype="str"))


def whole_of(table: pd.DataFrame, name: str, absent: int = NONE) -> np.ndarray:
    """A column of integers, with this number where one is absent."""
    return whole(column_of(table, name), absent)


def whole(values: Any, absent: int = NONE) -> np.ndarray:
    """The same of integers that are no column."""
    plain: np.ndarray = values if isinstance(values, np.ndarray) else values.to_numpy(dtype=np.int64, na_value=absent)
    return plain


def known_of(table: pd.DataFrame, name: str) -> np.ndarray:
    """Rows in which a column's value is not absent."""
    known: np.ndarray = ~column_of(table, name).isna()
    return known


def is_name(names: Any, *wanted: str) -> np.ndarray:
    """Rows of a categorical that have one of these names."""
    known = frozenset(wanted)
    mask: np.ndarray = np.array([*(name in known for name in names.categories.tolist()), False])[names.codes]
    return mask


def rows_named(table: pd.DataFrame, column: str, *wanted: str) -> np.ndarray:
    """The same of a table's column."""
    return is_name(column_of(table, column), *wanted)


def mask_of(names: Any, test: Callable[[str], object]) -> np.ndarray:
    """Rows of a categorical whose name passes; asks once for each distinct name."""
    answers = [bool(test(str(name))) for name in names.categories.tolist()]
    mask: np.ndarray = np.array([*answers, False], dtype=bool)[names.codes]
    return mask


def rows_named_so(table: pd.DataFrame, test: Callable[[str], object]) -> np.ndarray:
    """The same of a table's column `name`."""
    return mask_of(column_of(table, "name"), test)


def texts_of(names: Any) -> np.ndarray:
    """A categorical's names as objects, `None` where one is absent."""
    texts: np.ndarray = np.array([*names.categories.tolist(), None], dtype=object)[names.codes]
    return texts


def plain_texts(texts: Any) -> np.ndarray:
    """Texts of any column as objects, `None` where one is absent."""
    if isinstance(texts, pd.Categorical):
        return texts_of(texts)
    plain = np.array(texts, dtype=object)
    plain[pd.isna(plain)] = None
    return plain


def text_array(texts: Sequence[str | None] | np.ndarray) -> Any:
    """Texts, `None` where one is absent, as a column of them."""
    plain = texts.tolist() if isinstance(texts, np.ndarray) else list(texts)  # numpy's own texts fit no JSON
    return pd.array(plain, dtype=pd.StringDtype(na_value=np.nan))


def nullable(values: np.ndarray, is_absent: np.ndarray) -> pd.arrays.IntegerArray:
    """A column of integers, absent where the mask says so."""
    return pd.arrays.IntegerArray(values, is_absent)


def nowhere(count: int) -> np.ndarray:
    """Row numbers that are all -1: none."""
    return np.full(count, NONE, dtype=np.int64)


def innermost(spans: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Row of the span that began last of those that run on each thread at its time; -1 where none does."""
    found = nowhere(len(times))
    for thread in np.unique(threads).tolist():
        own, asked = np.flatnonzero(array_of(spans, "thread") == thread), np.flatnonzero(threads == thread)
        own = own[np.argsort(array_of(spans, "start_ns")[own], kind="stable")]
        starts, ends = arrays_of(spans, "start_ns", "end_ns", rows=own)
        reach = np.append(np.maximum.accumulate(ends), NONE)
        at = np.searchsorted(starts, times[asked], side="right") - 1
        while len(open_ := np.flatnonzero(reach[at] > times[asked])):
            asked, at = asked[open_], at[open_]
            is_around = ends[at] > times[asked]
            found[asked[is_around]] = own[at[is_around]]
            asked, at = asked[~is_around], at[~is_around] - 1
    return found


def as_objects(values: np.ndarray) -> Any:
    """Objects as a column of them: of a plain array of objects pandas finds the type, which takes long."""
    return pd.arrays.NumpyExtensionArray(values)


def outer_first(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Positions in order of starts, of those that start together the longer first, equal ones as they come."""
    order = np.argsort(starts, kind="stable")
    ordered_starts, ordered_ends = starts[order], ends[order]
    # Almost all are so in their tables, which takes a tenth of the time to find out.
    is_inner_first = (ordered_starts[1:] == ordered_starts[:-1]) & (ordered_ends[1:] > ordered_ends[:-1])
    return np.lexsort((-ends, starts)) if is_inner_first.any() else order


# How pandas keeps texts while the library works: settings of the process, which its user has back afterwards.


_OURS: dict[str, Any] = {"mode.string_storage": "python"}
"""Of Arrow's texts each look-up and each row costs ten times as much; of no effect on any figure."""

if pd.__version__.startswith("2."):  # texts with NaN, and no column changed by another one: as pandas 3 always does
    _OURS |= {"future.infer_string": True, "future.no_silent_downcasting": True, "mode.copy_on_write": True}
    for _said in ("The behavior of DataFrame concatenation", "Dtype inference on a pandas", "Mean of empty slice"):
        warnings.filterwarnings("ignore", _said, module="traceanalyzer|numpy")

_lock = Lock()

_found: list[dict[str, Any]] = []
"""The settings as each of those that work now found them: several threads may, and one within itself again."""


def set_up_pandas() -> None:
    """Suit pandas to this package for the rest of the process."""
    for name, ours in _OURS.items():
        pd.set_option(name, ours)


@contextmanager
def pandas_set_up() -> Iterator[None]:
    """Suit pandas meanwhile.

    The last one that ends puts back what the first one found, unless a setting was changed from outside meanwhile.
    """
    with _lock:
        _found.append({name: pd.get_option(name) for name in _OURS})
        set_up_pandas()
    try:
        yield
    finally:
        with _lock:
            before = _found.pop()
            if not _found:
                for name, value in before.items():
                    if pd.get_option(name) == _OURS[name]:
                        pd.set_option(name, value)


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
