"""How evenly the ranks are loaded: variation of their times over the same steps."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, ratio
from traceanalyzer.analyses.headline import Headline

_FIGURES = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns", "window_ns")


class Balance(Result):
    """One row for each of the headline's times, over all ranks."""

    title: ClassVar[str] = "Balance across ranks"
    keys: ClassVar[tuple[str, ...]] = ("figure",)
    columns: ClassVar[Mapping[str, str]] = {
        "figure": "Column of the headline that is compared.",
        "basis": "What the headline is of.",
        "ranks": "Number of ranks.",
        "mean_ns": "Mean over ranks.",
        "std_ns": "Standard deviation over ranks (population, ddof = 0).",
        "cv": "Coefficient of variation: standard deviation / mean; absent when the mean is 0.",
        "max_ns": "Largest.",
        "max_rank": "Rank that has it (the lowest of several).",
        "min_ns": "Smallest.",
        "min_rank": "Rank that has it (the lowest of several).",
        "max_over_mean": "Largest / mean.",
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(
            cv=ratio(table["std_ns"], table["mean_ns"]), max_over_mean=ratio(table["max_ns"], table["mean_ns"])
        )


def across(parts: Mapping[int, pd.DataFrame], headline: Headline) -> Balance:  # noqa: ARG001
    """Compare the ranks' headline times; no rows with fewer than two ranks."""
    table = headline.table.sort_values("rank") if len(headline) else headline.table
    if len(table) < 2:
        return Balance(pd.DataFrame(columns=list(Balance.columns)))
    return Balance(pd.DataFrame([_row(table, figure) for figure in _FIGURES]))


def _row(table: pd.DataFrame, figure: str) -> dict[str, object]:
    values = table.set_index("rank")[figure].astype("int64")
    return {
        "figure": figure,
        "basis": table["basis"].iloc[0],
        "ranks": len(values),
        "mean_ns": float(values.mean()),
        "std_ns": float(values.std(ddof=0)),
        "max_ns": int(values.max()),
        "max_rank": int(values.idxmax()),
        "min_ns": int(values.min()),
        "min_rank": int(values.idxmin()),
    }
