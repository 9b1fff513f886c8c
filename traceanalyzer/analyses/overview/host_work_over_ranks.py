"""What the hosts are longest in, all ranks in one row."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.host.host_work import HostWork, times_to_compare
from traceanalyzer.analyses.names import HostWorkOverRanksColumn
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model.tables import only, table_of, without_rows

_KEYS = ["role", "what", "name"]


class HostWorkOverRanks(Result[HostWorkOverRanksColumn]):
    """One row for each name, longest first: of a mean step, or of the capture where not all ranks have steps."""

    title: ClassVar[str] = "Work on the CPU over ranks"
    keys: ClassVar[tuple[str, ...]] = ("role", "what", "name")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        **{name: HostWork.columns[name] for name in ("role", "what", "name")},
        "is_of_steps": Column.flag("Times are of a mean step; else of the capture.", is_secondary=True),
        "ranks": Column.count("Ranks that do it.", is_compared=False),
        "mean_ns": Column.time("Time in it: mean over these ranks.", adds=Adds.DERIVED),
        "least_ns": Column.time("Least of them.", adds=Adds.EXTREME),
        "most_ns": Column.time("Most of them.", adds=Adds.EXTREME),
    }


def across(_parts: Mapping[int, pd.DataFrame], host_work: HostWork) -> HostWorkOverRanks:
    """Compare the ranks that do the same."""
    if not len(host_work):
        return HostWorkOverRanks(without_rows(HostWorkOverRanks.columns))
    rows, is_of_steps = times_to_compare(host_work)
    times = rows.groupby(_KEYS, sort=False, observed=True)["time_ns"]
    table = table_of(
        {
            "is_of_steps": is_of_steps,
            "ranks": times.size(),
            "mean_ns": times.mean(),
            "least_ns": times.min(),
            "most_ns": times.max(),
        }
    ).reset_index()
    return HostWorkOverRanks(
        only(table.sort_values("mean_ns", ascending=False, ignore_index=True), list(HostWorkOverRanks.columns))
    )
