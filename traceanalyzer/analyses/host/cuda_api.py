"""Which CUDA API calls each rank's host made, how often and how long they took."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.names import CudaApiColumn
from traceanalyzer.analyses.spread import columns_of, counted_calls, spread, with_mean
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, sorted_table
from traceanalyzer.model.tables import column_of


class CudaApi(Result[CudaApiColumn]):
    """One row for each rank and function, longest total first within a rank.

    The columns mean what those of `nsys stats --report cuda_api_sum` mean.
    """

    title: ClassVar[str] = "CUDA API calls"
    keys: ClassVar[tuple[str, ...]] = ("rank", "name")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "name": Column.text("Function, without the CUDA version that nsys adds (`_v7000`).", written=Written.KERNEL),
        "share_pct": Column.share("100 · total / sum of the durations of all API calls of the rank."),
        "calls": Column.count("Calls of the function.", is_aside=True),
        **columns_of("ns", "the calls' durations on the host"),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        whole = table.groupby("rank")["total_ns"].transform("sum")
        return self._with(with_mean(table, "ns"), {"share_pct": percent(table["total_ns"], whole)})


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted API calls by name; with several GPUs in one process they are of all of them."""
    counted = counted_calls(trace)
    if not counted.any():
        return pd.DataFrame()
    names = {"name": column_of(trace.api_calls, "name")[counted]}
    return sorted_table(spread(lengths_of(trace.api_calls)[counted], names, "ns"), "total_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> CudaApi:
    """The ranks' rows under each other."""
    return CudaApi(stack(parts, tuple(CudaApi.columns)))
