"""Where one table has the keys of another's rows, on arrays: pandas' joins take milliseconds for the smallest."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of, table_of, under_each_other

Columns = pd.DataFrame | Mapping[str, Any]


def places_of(wanted: Columns, known: Columns, by: Sequence[str]) -> np.ndarray:
    """For each wanted row the position of the first known one with its keys; -1 for none. Absent keys are alike."""
    parts = [_of_keys(columns, by) for columns in (known, wanted)]
    count = len(parts[0])
    groups = Groups.of(under_each_other(parts), by, with_absent=True)
    place = groups.first[groups.of_row[count:]]
    return np.where(place < count, place, NONE)


def at_places(values: Any, places: np.ndarray, absent: Any = np.nan) -> np.ndarray:
    """Values at these positions as objects, what is absent at -1."""
    objects = np.append(np.asarray(values, dtype=object), np.array([absent], dtype=object))
    found: np.ndarray = objects[places]
    return found


def _of_keys(columns: Columns, by: Sequence[str]) -> pd.DataFrame:
    held = columns_of(columns) if isinstance(columns, pd.DataFrame) else columns
    return table_of({name: held[name] for name in by})
