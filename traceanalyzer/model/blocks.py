"""What pandas' tables hold inside: blocks, which are columns of one type as the rows of two dimensions, or one column.

Tables are made of them by pandas' public `create_dataframe_from_blocks`; to read them it has no public way. To select a
column pandas makes an object around it: 6.4 µs, the selection 0.8. Of twenty columns and a hundred rows, all columns
take 115 to 165 µs and half of the rows 105 to 130, read from the blocks 10 and 29 (pandas 3.1.1). An analysis has
thousands of small tables: all analyses of two ranks of ddp take 0.50 to 0.52 s of a processor without, 0.39 with it. A
pandas that holds its tables otherwise is read the public way.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.internals import create_dataframe_from_blocks

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
