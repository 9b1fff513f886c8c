"""Operators, all ranks in one row: what a mean rank does of each."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, of_a_mean_rank, typed
from traceanalyzer.analyses.names import OperatorsOverRanksColumn
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model.tables import without_rows

_STORED = ("all_calls", "all_ns", "ranks")


class OperatorsOverRanks(Result[OperatorsOverRanksColumn]):
    """One row for each operator and autograd pass that launches GPU work itself, longest first."""

    title: ClassVar[str] = "Operators over ranks"
    keys: ClassVar[tuple[str, ...]] = ("operator", "autograd")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "operator": Operators.columns["operator"],
        "autograd": Operators.columns["autograd"],
        "share_pct": Column.share("100 · own GPU time / that of all operators, all ranks together."),
        "total_ns": Column.time("Time of the GPU operations that it launches itself: mean over ranks."),
        "calls": Column.count("Calls on one rank: mean over ranks.", is_aside=True),
        "mean_ns": Column.time("GPU time of its own of a call, all ranks together.", adds=Adds.DERIVED),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, dict(of_a_mean_rank(table)))


def across(_parts: Mapping[int, pd.DataFrame], operators: Operators) -> OperatorsOverRanks:
    """Sum the ranks' rows of each operator."""
    rows = operators.table
    if rows.empty or not rows["gpu_own_ns"].any():
        return OperatorsOverRanks(without_rows([*OperatorsOverRanks.columns, *_STORED]))
    ranks = rows["rank"].nunique()
    groups = rows.groupby(["operator", "autograd"], dropna=False, observed=True)
    sums = groups[["calls", "gpu_own_ns"]].sum().reset_index()
    table = sums.rename(columns={"calls": "all_calls", "gpu_own_ns": "all_ns"}).assign(ranks=ranks)
    table = typed(table[table["all_ns"] > 0], {"all_calls": "Int64", "all_ns": "Int64"})
    return OperatorsOverRanks(table.sort_values("all_ns", ascending=False, kind="stable", ignore_index=True))
