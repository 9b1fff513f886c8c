"""Each step over all ranks: the mean of its parts, and the shortest and the longest rank's step."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.names import StepsOverRanksColumn
from traceanalyzer.analyses.overview.time_parts import EVERY, StepTimeParts
from traceanalyzer.analyses.time.breakdown import known_only
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.meaning.vocabulary import COMM_PARTS


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
        return StepsOverRanks(pd.DataFrame(columns=list(StepsOverRanks.columns)))
    times = ["window_ns", *(part.column for part in EVERY)]
    rows = step_time_parts.table
    by_step = rows.astype(dict.fromkeys(times, "Float64")).groupby("step")
    known = by_step[times].count().eq(by_step.size(), axis=0)
    windows = rows.astype({"window_ns": "Int64"}).groupby("step")["window_ns"]
    table = by_step[times].mean().where(known).astype("Float64")
    table = table.assign(
        ranks=by_step.size(),
        is_complete=by_step["is_complete"].all().astype(bool),
        shortest_ns=windows.min(),
        longest_ns=windows.max(),
    )
    return StepsOverRanks(table.reset_index().reindex(columns=list(StepsOverRanks.columns)))
