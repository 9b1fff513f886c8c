"""Decoded columns as tables."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.decoding.columns import ABSENT, Coded
from traceanalyzer.decoding.tables import TableBuilder
from traceanalyzer.model.tables import table_of


def frame_of(builder: TableBuilder, name: str) -> pd.DataFrame:
    """What has been collected for a table; it is handed over, so that no event is held twice: ask for it once."""
    collected = builder.taken(name)
    columns = {column: _array(values) for column, values in collected.taken(builder.base_ns)}
    return table_of(columns, pd.RangeIndex(collected.rows))


def _array(values: np.ndarray | Coded) -> Any:
    if isinstance(values, Coded):
        return pd.Categorical.from_codes(values.codes, dtype=names_of(values.texts))
    absent = values == ABSENT
    if not absent.any():
        return values
    values[absent] = 1
    return pd.arrays.IntegerArray(values, absent)


def names_of(texts: Sequence[str]) -> pd.CategoricalDtype:
    """Categories of these texts; of few ones they are shared by all columns and ranks that have the same."""
    return _shared_names(tuple(texts), pd.get_option("mode.string_storage")) if len(texts) <= _FEW else _names(texts)


_FEW, _MOST_SHARED = 256, 1024
"""Texts of a column that are compared with those of others, and columns whose categories are kept."""


@lru_cache(_MOST_SHARED)
def _shared_names(texts: tuple[str, ...], _storage: str) -> pd.CategoricalDtype:
    return _names(texts)


def _names(texts: Sequence[str]) -> pd.CategoricalDtype:
    return pd.CategoricalDtype(pd.Index(list(texts), dtype="str"))
