"""All ranks' times one rank's after the other's on one axis, so that intervals of all are worked out in one go."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from traceanalyzer.model.tables import array_of, columns_of, picked, under_each_other, with_columns

_LONGEST_AXIS = 2**62


def side_by_side(work: Callable[..., pd.DataFrame], *tables: pd.DataFrame) -> pd.DataFrame:
    """What `work` makes of tables of all ranks, with `rank`, `start_ns` and `end_ns`: on no axis do ranks share time.

    Args:
        work: takes the tables and gives one likewise; it sees, and gives, times of the axis.
        tables: in order of rank. Where clocks are centuries apart, as damaged ones are, `work` is called several times.

    Returns:
        What it gave, on the ranks' own time.
    """
    made = []
    for ranks, shifts in _axes(tables):
        given = [_shifted(_of_ranks(table, ranks), ranks, shifts) for table in tables]
        made.append(_shifted(work(*given), ranks, -shifts))
    return under_each_other(made)


def _axes(tables: tuple[pd.DataFrame, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ranks, and by how much their times are later on the axis; almost always there is one axis for all."""
    columns = [columns_of(table) for table in tables]
    every = np.concatenate([own["rank"] for own in columns]).astype(np.int64)
    ranks, place = np.unique(every, return_inverse=True)
    low, high = np.full(len(ranks), np.iinfo(np.int64).max), np.full(len(ranks), np.iinfo(np.int64).min)
    for name in ("start_ns", "end_ns"):
        times = np.concatenate([own[name] for own in columns]).astype(np.int64)
        np.minimum.at(low, place, times)
        np.maximum.at(high, place, times)
    first = reach = 0
    shifts = np.zeros(len(ranks), dtype=np.int64)
    for number, (begin, end) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if number == first:  # whose times stay as they are
            reach = end
        elif reach + 1 + end - begin < _LONGEST_AXIS and abs(reach + 1 - begin) < _LONGEST_AXIS:
            shifts[number] = reach + 1 - begin
            reach += 1 + end - begin
        else:
            yield ranks[first:number], shifts[first:number]
            first, reach = number, end
    yield ranks[first:], shifts[first:]


def _of_ranks(table: pd.DataFrame, ranks: np.ndarray) -> pd.DataFrame:
    held = np.isin(array_of(table, "rank"), ranks)
    return table if held.all() else picked(table, held)


def _shifted(table: pd.DataFrame, ranks: np.ndarray, shifts: np.ndarray) -> pd.DataFrame:
    if not len(table):
        return table
    by = shifts[np.searchsorted(ranks, table["rank"].to_numpy(dtype=np.int64))]
    return with_columns(table, **{name: table[name].to_numpy(dtype=np.int64) + by for name in ("start_ns", "end_ns")})
