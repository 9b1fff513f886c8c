"""Tables from whole columns and back to arrays."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, Literal, TypeVar, cast

import numpy as np
import pandas as pd
from pandas.api.internals import create_dataframe_from_blocks

from traceanalyzer.meaning.rows import NONE

# What pandas' tables hold inside: blocks, which are columns of one type as the rows of two dimensions, or one column.
#
# Tables are made of them by pandas' public `create_dataframe_from_blocks`; to read them it has no public way.
# To select a
# column pandas makes an object around it: 6.4 µs, the selection 0.8. Of twenty columns and a hundred rows, all columns
# take 115 to 165 µs and half of the rows 105 to 130, read from the blocks 10 and 29 (pandas 3.1.1). An analysis has
# thousands of small tables: all analyses of two ranks of ddp take 0.50 to 0.52 s of a processor without, 0.39
# with it. A
# pandas that holds its tables otherwise is read the public way.


NUMBERS = "iufb"
"""Kinds of numpy's types that a table holds as they are."""

_FEW = 4_096
"""Rows of a table whose numbers lie in one block for each type: their copy costs less than pandas' objects for each."""


def of_arrays(arrays: Sequence[Any], rows: pd.Index, names: pd.Index) -> pd.DataFrame:
    """A table of columns as tables hold them."""
    alike: dict[str | int, list[int]] = {}
    for place, values in enumerate(arrays):
        is_one_of_several = isinstance(values, np.ndarray) and values.dtype.kind in NUMBERS and len(rows) <= _FEW
        alike.setdefault(values.dtype.str if is_one_of_several else place, []).append(place)
    return create_dataframe_from_blocks([_block(arrays, places) for places in alike.values()], rows, names)


def _block(arrays: Sequence[Any], places: Sequence[int]) -> tuple[Any, np.ndarray]:
    """Columns of one type as a table holds them, of numpy's types as the rows of two dimensions; and their places."""
    if len(places) > 1:
        return np.array([arrays[place] for place in places]), np.array(places)
    (place,) = places
    values = arrays[place]
    return values[None] if isinstance(values, np.ndarray) else values, _place(place)


def in_order(table: pd.DataFrame) -> list[Any]:
    """The table's columns, not to be written to."""
    arrays: list[Any] = [None] * len(table.columns)
    for values, places in blocks_of(table):
        for place, own in zip(places, values if values.ndim > 1 else (values,), strict=True):
            arrays[place] = own
    return arrays


def one_of(table: pd.DataFrame, name: str) -> Any:
    """A column as the table holds it, whose columns have a name each."""
    read = getattr(table, "_get_column_array", None)
    return read(table.columns.get_loc(name)) if read else array_of_series(table[name])


def blocks_of(table: pd.DataFrame) -> list[tuple[Any, Any]]:
    """What the table holds, not to be written to: columns of one type as rows of two dimensions; and their places."""
    held = _held(table)
    if held is None:
        arrays = [unwritable(array_of_series(column)) for _, column in table.items()]
        return [_block(arrays, [place]) for place in range(len(arrays))]
    return [(unwritable(block.values), block.mgr_locs.as_array) for block in held]


def _held(table: pd.DataFrame) -> Any:
    """Pandas' own blocks; `None` of a pandas that has none to be seen."""
    return getattr(getattr(table, "_mgr", None), "blocks", None)


def taken(table: pd.DataFrame, places: np.ndarray, *, is_with_objects: bool = False) -> list[tuple[Any, Any]]:
    """The table's blocks with these rows alone; none where it has plain objects, unless they are asked for."""
    blocks = blocks_of(table)
    if not is_with_objects and any(_is_plain(values) and values.dtype == object for values, _ in blocks):
        return []
    return [(values.take(places, axis=1) if _is_plain(values) else values.take(places), own) for values, own in blocks]


def _is_plain(values: Any) -> bool:
    return isinstance(values, np.ndarray)


def array_of_series(column: pd.Series) -> Any:
    """A column's values as tables hold them."""
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


def unwritable(values: Any) -> Any:
    """The same values, of numpy's types such that are not to be written to."""
    if isinstance(values, np.ndarray):
        values = values.view()
        values.flags.writeable = False
    return values


@cache
def _place(place: int) -> np.ndarray:
    return np.array([place])


# Tables from whole columns as they are: pandas' own ways look at each anew, five times as long for a small table.


Table = TypeVar("Table", bound=pd.DataFrame)

_NUMBERS = (int, float, bool)

_COLUMNS = (np.ndarray, pd.Series, list, pd.api.extensions.ExtensionArray)


def table_of(columns: Mapping[str, Any], index: pd.Index | None = None) -> pd.DataFrame:
    """The same as `pd.DataFrame(columns, copy=False)` of columns of one length, whose rows are numbered from 0.

    Numbers, categories and what may be absent are taken as they are, or a few numbers as a copy; of all else (lists,
    texts, single values) pandas finds the type, and Series whose rows are numbered otherwise are left to it.
    """
    arrays = [*columns.values()]
    if not arrays or not all(map(_is_held, arrays)):
        count = next((len(values) for values in arrays if _is_column(values)), None)
        if count is None or not all(map(_is_numbered, arrays)):
            return pd.DataFrame(dict(columns), index, copy=False)
        arrays = [values if _is_held(values) else _as_held(values, count) for values in arrays]
    lengths = {*map(len, arrays)}
    if len(lengths) != 1:
        raise ValueError("columns of a table must be of one length")
    return of_arrays(arrays, pd.RangeIndex(*lengths) if index is None else index, _names(tuple(columns)))


def without_rows(columns: Iterable[str]) -> pd.DataFrame:
    """The same as `pd.DataFrame(columns=[*columns])`, which costs pandas as much as a hundred rows do."""
    names = tuple(columns)
    blocks = [(np.empty((len(names), 0), dtype=object), np.arange(len(names)))] if names else []
    return create_dataframe_from_blocks(blocks, pd.RangeIndex(0), _names(names) if names else pd.Index([]))


def columns_of(table: pd.DataFrame) -> dict[str, Any]:
    """The table's columns by name: arrays that are not to be written to; those of numbers as numpy has them."""
    return dict(zip(table.columns.tolist(), in_order(table), strict=True))


def array_of(table: pd.DataFrame, name: str) -> np.ndarray:
    """The same as `table[name].to_numpy()` of a table whose columns have a name each."""
    values = one_of(table, name)
    array: np.ndarray = unwritable(values if isinstance(values, np.ndarray) else values.to_numpy())
    return array


def column_of(table: pd.DataFrame, name: str) -> Any:
    """The same as `table[name].array` of such a table: an array of pandas' own kinds."""
    values = one_of(table, name)
    return pd.arrays.NumpyExtensionArray(unwritable(values)) if isinstance(values, np.ndarray) else values


def floats(column: Any) -> np.ndarray:
    """A column's numbers, NaN where they are absent."""
    values = array_of_series(column) if isinstance(column, pd.Series) else column
    if isinstance(values, np.ndarray) and values.dtype.kind in NUMBERS:  # else pandas looks at each
        return values.astype(np.float64)
    numbers: np.ndarray = pd.array(values).to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def columns_as_they_are(table: pd.DataFrame) -> dict[str, Any]:
    """The same for another table, in which objects stay objects: of a plain array of them pandas finds the type."""
    return {name: _kept(values) for name, values in columns_of(table).items()}


def with_columns(table: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """The same as `table.assign(**columns)`; the new columns count by position."""
    added = {
        n: _kept(array_of_series(values)) if isinstance(values, pd.Series) else values for n, values in columns.items()
    }
    return table_of(columns_as_they_are(table) | added, table.index)


def picked(table: pd.DataFrame, rows: np.ndarray, names: Sequence[str] = ()) -> pd.DataFrame:
    """These rows (positions, or a mask) of the named columns, else of all, numbered anew."""
    places = np.flatnonzero(rows) if rows.dtype == bool else rows
    if not names and (blocks := taken(table, places)):
        return create_dataframe_from_blocks(blocks, pd.RangeIndex(len(places)), table.columns)
    columns = {name: unwritable(one_of(table, name)) for name in names} if names else columns_of(table)
    # Not `values[places]`: of its own columns pandas asks first what the places are, which costs more than the picking.
    return table_of({name: columns[name].take(places) for name in columns})


def rows_where(table: Table, mask: Any) -> Table:
    """The same as `table[mask]`, by position: rows for which an array or a column says yes; an absent answer is no.

    Pandas takes half a millisecond for twenty columns, this a quarter of it.
    """
    if isinstance(mask, pd.Series):
        mask = array_of_series(mask)
    if not isinstance(mask, np.ndarray):
        mask = mask.to_numpy(dtype=bool, na_value=False)
    places = np.flatnonzero(mask)
    blocks = taken(table, places, is_with_objects=True)
    return cast("Table", create_dataframe_from_blocks(blocks, table.index.take(places), table.columns))


def only(table: Table, names: Sequence[str]) -> Table:
    """The same as `table[[*names]]`."""
    columns = [unwritable(one_of(table, name)) for name in names]
    return cast("Table", of_arrays(columns, table.index, _names(tuple(names))))


def sorted_by(table: pd.DataFrame, name: str, *, kind: Literal["stable", "quicksort"] = "stable") -> pd.DataFrame:
    """The same as `table.sort_values(name, ascending=False, kind=kind, ignore_index=True)`."""
    order = _descending(column_of(table, name), kind)
    return table_of({own: _kept(values.take(order)) for own, values in columns_of(table).items()})


def _descending(values: Any, kind: Literal["stable", "quicksort"]) -> np.ndarray:
    """The same as `values.argsort(ascending=False, kind=kind)`."""
    if values.dtype.kind not in "iub" or values.isna().any():
        order: np.ndarray = values.argsort(ascending=False, kind=kind)
        return order
    # As pandas does it, which asks first what the values are.
    return len(values) - 1 - np.argsort(values.to_numpy(values.dtype.type)[::-1], kind=kind)[::-1]


def under_each_other(tables: Sequence[pd.DataFrame], *, is_with_texts: bool = False) -> pd.DataFrame:
    """The same as `pd.concat(tables, ignore_index=True)`, of one table or more; categories as texts where so asked."""
    parts = [columns_of(table) for table in tables]
    if is_with_texts:
        return _with_texts(parts)
    if any([*own] != [*parts[0]] for own in parts):
        return pd.concat(tables, ignore_index=True)
    return table_of({name: _joined([own[name] for own in parts]) for name in parts[0]})


def _joined(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return _kept(unwritable(parts[0]))
    dtype = parts[0].dtype
    if any(own.dtype != dtype for own in parts):
        if all(isinstance(own, pd.Categorical) and isinstance(own.categories.dtype, pd.StringDtype) for own in parts):
            return _texts(parts)
        return pd.concat([pd.Series(own, dtype=own.dtype) for own in parts], ignore_index=True)
    if isinstance(parts[0], np.ndarray):
        return _kept(np.concatenate(parts))
    return type(parts[0])._concat_same_type(parts)  # noqa: SLF001 - what pandas has its extensions answer


def _with_texts(parts: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    names = [*parts[0]]
    if any([*own] != names for own in parts):
        tables = [table_of({name: _kept(_text([values])) for name, values in own.items()}) for own in parts]
        return pd.concat(tables, ignore_index=True)
    return table_of({name: _kept(_text([own[name] for own in parts])) for name in names})


def _text(parts: Sequence[Any]) -> Any:
    """A column's parts under each other, names of categories as texts."""
    are_names = [isinstance(own, pd.Categorical) for own in parts]
    if not any(are_names):
        return _joined(parts)
    if all(are_names) and all(isinstance(own.categories.dtype, pd.StringDtype) for own in parts):
        return _texts(parts)
    text = pd.StringDtype(na_value=np.nan)
    return _joined([own.astype(text) if is_name else own for own, is_name in zip(parts, are_names, strict=True)])


def _texts(parts: Sequence[pd.Categorical]) -> Any:
    """Names of different categories under each other, as texts."""
    texts = np.concatenate([*(own.categories.to_numpy(dtype=object) for own in parts), [None]])
    before = np.cumsum([0, *(len(own.categories) for own in parts)])
    codes = [np.where(own.codes < 0, NONE, own.codes + begin) for own, begin in zip(parts, before[:-1], strict=True)]
    return pd.array(texts[np.concatenate(codes)], dtype=parts[0].categories.dtype)


def _kept(values: Any) -> Any:
    is_plain = isinstance(values, np.ndarray) and values.dtype == object
    return pd.arrays.NumpyExtensionArray(values) if is_plain else values


def _is_numbered(values: Any) -> bool:
    if not isinstance(values, pd.Series):
        return True
    index: Any = values.index
    return isinstance(index, pd.RangeIndex) and index.start == 0 and index.step == 1 and index.name is None


def _is_extension(values: Any) -> bool:
    """A column of pandas' own kinds: texts, names, what may be absent; not a plain array that it wraps."""
    return isinstance(values, pd.api.extensions.ExtensionArray) and type(values) is not pd.arrays.NumpyExtensionArray


def _is_column(values: Any) -> bool:
    return isinstance(values, _COLUMNS)


def _is_held(values: Any) -> bool:
    """Whether a table holds it as it is: numbers, or a column of pandas' own kinds."""
    return values.dtype.kind in NUMBERS if type(values) is np.ndarray else _is_extension(values)


def _as_held(values: Any, count: int) -> Any:
    """A column as a table holds it."""
    if isinstance(values, pd.Series):
        return array_of_series(values)
    if type(values) is pd.arrays.NumpyExtensionArray:  # texts are of a class below it
        return values.to_numpy()
    if type(values) in _NUMBERS:
        return np.full(count, values)
    return values if _is_held(values) else _typed([None] * count if values is None else values, count)


def _typed(values: Any, count: int) -> Any:
    """What pandas makes of values whose type it finds: for numbers and texts its search takes three times as long."""
    if type(values) is list and {*map(type, values)} == {int} and max(map(int.bit_length, values)) < _BITS:
        return np.array(values, dtype=np.int64)
    if _is_column(values) and pd.api.types.infer_dtype(values, skipna=True) == "string":
        return pd.array(values, dtype=pd.StringDtype(na_value=np.nan))
    return array_of_series(pd.Series(values, index=None if _is_column(values) else pd.RangeIndex(count)))


_BITS = 63
"""Of an integer in a column, without its sign."""


@cache
def _names(names: tuple[str, ...]) -> pd.Index:
    """Names of columns, shared by all tables that have them: what finds a name in them is built once."""
    if all(type(name) is str for name in names):  # else pandas looks at each to find it out
        return pd.Index(list(names), dtype=pd.StringDtype("python", na_value=np.nan))  # Arrow's are converted each time
    return pd.Index(names)


# A table's columns as plain arrays: pandas' own objects around them cost more than what is done with them.


def lengths_of(table: pd.DataFrame) -> np.ndarray:
    """From `start_ns` to `end_ns` of each row."""
    lengths: np.ndarray = array_of(table, "end_ns") - array_of(table, "start_ns")
    return lengths


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
    mask: np.ndarray = np.array([*(name in wanted for name in names.categories.tolist()), False])[names.codes]
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
    return pd.array(list(texts), dtype=pd.StringDtype(na_value=np.nan))


def single(value: object) -> Any:
    """A column of one value, of the type that pandas gives it."""
    if value is None:
        return as_objects(np.array([None], dtype=object))
    return text_array([value]) if isinstance(value, str) else np.array([value])


def single_integer(value: int | None) -> pd.arrays.IntegerArray:
    """A column of one integer that may be absent."""
    return pd.arrays.IntegerArray(np.array([1 if value is None else value]), np.array([value is None]))


def sorted_table(columns: Mapping[str, Any], by: str) -> pd.DataFrame:
    """The same as `sorted_by(table_of(columns), by)` of arrays, by integers that are all known: one table, not two."""
    order = np.argsort(-whole(columns[by]), kind="stable")
    return table_of({name: values.take(order) for name, values in columns.items()})


def as_objects(values: np.ndarray) -> Any:
    """Objects as a column of them: of a plain array of objects pandas finds the type, which takes long."""
    return pd.arrays.NumpyExtensionArray(values)


def outer_first(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Positions in order of starts, of those that start together the longer first, equal ones as they come."""
    order = np.argsort(starts, kind="stable")
    begun, until = starts[order], ends[order]
    # Almost all are so in their tables, which takes a tenth of the time to find out.
    is_inner_first = (begun[1:] == begun[:-1]) & (until[1:] > until[:-1])
    return np.lexsort((-ends, starts)) if is_inner_first.any() else order


# How pandas keeps texts while the library works: a setting of the process, which its user has back afterwards.


_NAME, _OURS = "mode.string_storage", "python"

_lock = Lock()

_found: list[str] = []
"""The setting as each of those that work now found it: several threads may, and each may begin within itself again."""


@contextmanager
def texts_in_python() -> Iterator[None]:
    """Meanwhile texts are made as Python has them: of Arrow's each look-up and each row costs ten times as much.

    It has no effect on any figure. The last one that ends puts back what the first one found, unless the setting was
    changed from outside in the meantime.
    """
    with _lock:
        _found.append(pd.get_option(_NAME))
        pd.set_option(_NAME, _OURS)
    try:
        yield
    finally:
        with _lock:
            before = _found.pop()
            if not _found and pd.get_option(_NAME) == _OURS:
                pd.set_option(_NAME, before)
