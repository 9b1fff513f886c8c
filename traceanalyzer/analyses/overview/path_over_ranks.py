"""How much of the critical path lies on each rank."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.names import PathOverRanksColumn
from traceanalyzer.analyses.replay.path import CriticalPath
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model.tables import sorted_by, without_rows


class PathOverRanks(Result[PathOverRanksColumn]):
    """One row for each rank on the critical path, most first; they add up to it."""

    title: ClassVar[str] = "Critical path over ranks"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank that it runs on."),
        "path_ns": Column.time("Length of the path's stretches on it."),
        "path_pct": Column.share("100 · path / all of it."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        path = table["path_ns"]
        return self._with(table, {"path_pct": percent(path, pd.Series(path.sum(), path.index))})


def across(_parts: Mapping[int, pd.DataFrame], critical_path: CriticalPath) -> PathOverRanks:
    """Sum its rows."""
    if not len(critical_path):
        return PathOverRanks(without_rows(PathOverRanks.columns))
    table = critical_path.table.groupby("rank", sort=False)["path_ns"].sum().astype("int64").reset_index()
    return PathOverRanks(sorted_by(table, "path_ns"))
