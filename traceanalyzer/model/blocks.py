"""What pandas' tables hold inside: blocks, which are columns of one type as the rows of two dimensions, or one column.

To select a column pandas makes an object around it, which costs ten times as much as the selection; so does each
question that pandas answers of a column alone.
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


def blocks_of(table: pd.DataFrame) -> list[tuple[Any, Any]]:
    """What the table holds, not to be written to: columns of one type as rows of two dimensions; and their places."""
    held: Any = table
    return [(unwritable(block.values), block.mgr_locs.as_array) for block in held._mgr.blocks]  # noqa: SLF001 - as said above


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
