"""Decoded columns as tables."""

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
        return pd.Categorical.from_codes(values.codes, categories=pd.Index(values.texts, dtype="str"))
    absent = values == ABSENT
    if not absent.any():
        return values
    values[absent] = 1
    return pd.arrays.IntegerArray(values, absent)
