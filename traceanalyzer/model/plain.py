"""A table's columns as plain arrays: pandas' own objects around them cost more than what is done with them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.meaning.rows import NONE
from traceanalyzer.model.tables import array_of, column_of, table_of


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
