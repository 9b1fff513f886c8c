"""Each step over all ranks: the mean of its parts, and the shortest and the longest rank's step."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.grouping import extreme_at
from traceanalyzer.analyses.names import StepsOverRanksColumn
from traceanalyzer.analyses.overview.time_parts import EVERY, StepTimeParts
from traceanalyzer.analyses.time.breakdown import known_only
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.meaning.vocabulary import COMM_PARTS
from traceanalyzer.model.tables import columns_of, floats, table_of, without_rows


class StepsOverRanks(Result[StepsOverRanksColumn]):
    """One row for each step that a rank has a window of."""

    title: ClassVar[str] = "Steps over ranks"
    keys: ClassVar[tuple[str, ...]] = ("step",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "step": Column.ident("Step."),
        "ranks": Column.count("Ranks that have it.", is_compared=False),
        "is_complete": Column.flag("It is complete on each of them."),
        "shortest_ns": Column.time("Shortest rank's step.", adds=Adds.EXTREME),
        "longest_ns": Column.time("Longest rank's step.", adds=Adds.EXTREME),
        "window_ns": Column.time("Mean over ranks, of the step's GPU window and of its parts.", adds=Adds.DERIVED),
        **{
            part.column: Column.time(f"Mean over ranks. {StepTimeParts.columns[part.column].definition}", Adds.DERIVED)
            for part in EVERY
        },
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return known_only(table, names=[part.column for part in COMM_PARTS], dtype="Float64")


def across(_parts: Mapping[int, pd.DataFrame], step_time_parts: StepTimeParts) -> StepsOverRanks:
    """Put the ranks' rows of each step together."""
    if not len(step_time_parts):
        return StepsOverRanks(without_rows(StepsOverRanks.columns))
    columns = columns_of(step_time_parts.table)
    steps, of_row = np.unique(columns["step"].to_numpy(dtype=np.int64), return_inverse=True)
    ranks = np.bincount(of_row)
    times = {name: floats(columns[name]) for name in ("window_ns", *(part.column for part in EVERY))}
    means = {name: np.bincount(of_row, values) / ranks for name, values in times.items()}  # absent where one is
    incomplete = np.bincount(of_row, ~columns["is_complete"].to_numpy(dtype=bool))
    windows = times["window_ns"].astype(np.int64)
    ends = {name: extreme_at(of, of_row, windows, len(steps)) for name, of in _ENDS.items()}
    known = {name: pd.arrays.FloatingArray(values, np.isnan(values)) for name, values in means.items()}
    table = table_of({"step": steps, "ranks": ranks, "is_complete": incomplete == 0, **ends, **known})
    return StepsOverRanks(table[list(StepsOverRanks.columns)])


_ENDS = {"shortest_ns": np.minimum, "longest_ns": np.maximum}
