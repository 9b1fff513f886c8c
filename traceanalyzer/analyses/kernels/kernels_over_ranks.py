"""Kernels and copies by name, all ranks in one row: the mean, and who has least and most of it."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, of_a_mean_rank, typed
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.names import KernelsOverRanksColumn
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model.tables import sorted_by, table_of, without_rows

_KEYS = ["name", "kind", "activity"]


class KernelsOverRanks(Result[KernelsOverRanksColumn]):
    """One row for each name, longest total first; a rank that runs none of a name counts as 0."""

    title: ClassVar[str] = "Kernels and copies over ranks"
    keys: ClassVar[tuple[str, ...]] = ("name", "activity")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "name": Column.text("Name as the trace has it.", written=Written.KERNEL),
        "kind": Column.text("compute, comm or copy.", written=Written.KIND, is_aside=True),
        "activity": Column.text("kernel, memcpy, memset or graph."),
        "share_pct": Column.share("100 · sum of durations / that of all GPU operations, all ranks together."),
        "total_ns": Column.time("Sum of the durations on one rank: mean over ranks."),
        "calls": Column.count("Calls on one rank: mean over ranks.", is_aside=True),
        "mean_ns": Column.time("Mean duration of a call, all ranks together.", adds=Adds.DERIVED),
        "min_ns": Column.time("Shortest call of all ranks.", adds=Adds.EXTREME),
        "max_ns": Column.time("Longest call of all ranks.", adds=Adds.EXTREME),
        "lowest_total_ns": Column.time("Least total of a rank; absent with a single rank.", adds=Adds.EXTREME),
        "lowest_rank": Column.ident("Whose that is."),
        "highest_total_ns": Column.time("Largest total of a rank; absent with a single rank.", adds=Adds.EXTREME),
        "highest_rank": Column.ident("Whose that is."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, dict(of_a_mean_rank(table)))


def across(_parts: Mapping[int, pd.DataFrame], kernels: Kernels) -> KernelsOverRanks:
    """Sum the ranks' rows of each name; only ranks that have GPU operations count."""
    if not len(kernels):
        return KernelsOverRanks(without_rows([*KernelsOverRanks.columns, "all_calls", "all_ns", "ranks"]))
    frame = _of_every_rank(kernels.table)
    groups = frame.groupby(_KEYS, observed=True, sort=False)
    ranks = frame["rank"].nunique()
    table = table_of(
        {
            "all_calls": groups["calls"].sum(),
            "all_ns": groups["total_ns"].sum(),
            "ranks": ranks,
            "min_ns": groups["min_ns"].min(),
            "max_ns": groups["max_ns"].max(),
            **_extreme("lowest", frame, groups["total_ns"].idxmin()),
            **_extreme("highest", frame, groups["total_ns"].idxmax()),
        }
    ).reset_index()
    spread = ("lowest_total_ns", "lowest_rank", "highest_total_ns", "highest_rank")
    if ranks < 2:
        table = table.assign(**dict.fromkeys(spread, pd.NA))
    table = typed(table, dict.fromkeys((*spread, "all_calls", "all_ns", "min_ns", "max_ns"), "Int64"))
    return KernelsOverRanks(sorted_by(table, "all_ns"))


def _of_every_rank(table: pd.DataFrame) -> pd.DataFrame:
    """The rows, and one for each rank that lacks a name, with sums of 0."""
    every = table[_KEYS].drop_duplicates().merge(table[["rank"]].drop_duplicates(), how="cross")
    return every.merge(table, on=[*_KEYS, "rank"], how="left").fillna({"calls": 0, "total_ns": 0})


def _extreme(which: str, frame: pd.DataFrame, rows: pd.Series) -> dict[str, pd.Series]:
    """The total and the rank in the row that is told for each name."""
    chosen = frame.loc[rows.to_numpy()]
    named = {f"{which}_total_ns": chosen["total_ns"], f"{which}_rank": chosen["rank"]}
    return {name: values.set_axis(rows.index) for name, values in named.items()}
