"""How durations or sizes spread within each group: the columns that every summary of many calls has."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import ratio
from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of
from traceanalyzer.selection import step_at

_TO_DEVIATION = 1.4826
"""Of a median distance from the median, of normal values."""

STATISTICS = ("total", "median", "min", "max", "std")


def columns_of(unit: str, what: str) -> Mapping[str, Column]:
    """Columns of `spread` and `with_mean` of times (`ns`) or sizes (`bytes`); runs are compared by the total time."""
    column = {"ns": Column.time, "bytes": Column.size}[unit]
    std = "Sample standard deviation (divides by calls − 1); absent for a single call."
    return {
        f"total_{unit}": column(f"Sum of {what}.", leads=unit == "ns"),
        f"mean_{unit}": column("Total / calls.", adds=Adds.DERIVED),
        f"median_{unit}": column(f"Median of {what}.", adds=Adds.DERIVED, is_secondary=True),
        f"min_{unit}": column("Smallest.", adds=Adds.EXTREME),
        f"max_{unit}": column("Largest.", adds=Adds.EXTREME),
        f"std_{unit}": column(std, adds=Adds.DERIVED, is_secondary=True),
    }


def spread(values: Any, keys: Mapping[str, Any], unit: str) -> dict[str, Any]:
    """For each distinct row of keys: these, `calls`, and total, median, min, max and sample standard deviation.

    Values and keys are arrays, as are the columns that are returned, and integers may be absent.
    Of a group with an absent value all but `calls` are absent.
    """
    groups = Groups.of(keys, list(keys), with_absent=True)
    plain, is_absent = values, np.zeros(len(groups), dtype=bool)
    if not isinstance(values, np.ndarray):
        plain, is_absent = values.to_numpy(dtype=np.int64, na_value=0), groups.any(values.isna())
    std = pd.Series(plain).groupby(groups.of_row).std().to_numpy()
    sums = {"total": groups.sums(plain), "min": groups.smallest(plain), "max": groups.largest(plain)}
    columns: dict[str, Any] = {name: pd.arrays.IntegerArray(own, is_absent) for name, own in sums.items()}
    columns["median"] = pd.arrays.FloatingArray(groups.medians(plain), is_absent)
    columns["std"] = pd.arrays.FloatingArray(np.nan_to_num(std, nan=1.0), is_absent | np.isnan(std))
    if plain is values:
        columns |= sums
    return {**groups.keys, "calls": groups.counts(), **{f"{name}_{unit}": columns[name] for name in STATISTICS}}


def with_mean(table: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Add the mean that follows from total and calls."""
    return table.assign(**{f"mean_{unit}": ratio(table[f"total_{unit}"], table["calls"])})


def counted_calls(trace: RankTrace) -> np.ndarray:
    """Mask of the API calls that are counted: all, or those that begin in the selected steps on the host."""
    starts = array_of(trace.api_calls, "start_ns")
    if trace.window.steps is None:
        return np.ones(len(starts), dtype=bool)
    chosen = trace.steps[trace.steps["step"].isin(trace.window.steps)].sort_values("host_start_ns")
    inside = step_at(array_of(chosen, "host_start_ns"), array_of(chosen, "host_end_ns"), starts)
    return inside != NONE


def median_of_others(values: np.ndarray) -> np.ndarray:
    """Medians of each column without one row, for every row, by the two places next to the middle; of one its own."""
    count = len(values)
    if count < 2:
        return values
    order = np.argsort(values, axis=0, kind="stable")
    ranked = np.take_along_axis(values, order, axis=0)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(count)[:, None] + np.zeros_like(order), axis=0)
    low, high = (count - 2) // 2, (count - 1) // 2
    picked = [
        np.take_along_axis(ranked, np.where(place <= middle, middle + 1, middle), axis=0) for middle in (low, high)
    ]
    return (picked[0] + picked[1]) / 2


def medians(values: np.ndarray) -> np.ndarray:
    """The median of each column's known values, for every row; NaN where none is known."""
    ordered = np.sort(values, axis=0)  # what is not known comes last
    count, column = (~np.isnan(values)).sum(axis=0), np.arange(values.shape[1])
    low, high = (ordered[np.maximum(place, 0), column] for place in ((count - 1) // 2, count // 2))
    return np.broadcast_to(np.where(count > 0, (low + high) / 2, np.nan), values.shape)


def of_each(values: np.ndarray, group: np.ndarray, figure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What `figure` gives of each group's rows, in their places; of floats in two dimensions."""
    made = np.empty_like(values)
    for rows in rows_of_each(group):
        made[rows] = figure(values[rows])
    return made
