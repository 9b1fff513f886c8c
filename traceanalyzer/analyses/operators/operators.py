"""What runs: each operator's calls, host time, and the GPU time that it launched, by itself and in all."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.names import OperatorsColumn
from traceanalyzer.analyses.operators.operator_shapes import COSTS, OperatorShapes, summed
from traceanalyzer.meaning.columns import Column


class Operators(Result[OperatorsColumn]):
    """One row for each rank, operator and autograd pass; most GPU time of its own first."""

    title: ClassVar[str] = "Operators"
    keys: ClassVar[tuple[str, ...]] = ("rank", "operator", "autograd")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "operator": OperatorShapes.columns["operator"],
        "autograd": OperatorShapes.columns["autograd"],
        **COSTS,
        "gpu_share_pct": Column.share("100 · own GPU time / that of all rows of the rank."),
        "host_share_pct": Column.share("100 · own host time / that of all rows of the rank."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        by_rank = table.groupby("rank")
        return self._with(
            table,
            {
                "gpu_share_pct": percent(table["gpu_own_ns"], by_rank["gpu_own_ns"].transform("sum")),
                "host_share_pct": percent(table["host_self_ns"], by_rank["host_self_ns"].transform("sum")),
            },
        )


def per_rank(_trace: object, operator_shapes: pd.DataFrame) -> pd.DataFrame:
    """Add up over shapes."""
    return summed(operator_shapes, ["operator", "autograd"]) if len(operator_shapes) else operator_shapes


def across(parts: Mapping[int, pd.DataFrame]) -> Operators:
    """The ranks' rows under each other."""
    return Operators(stack(parts, tuple(Operators.columns)))
