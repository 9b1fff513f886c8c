"""Which kernels and copies ran on each rank, how often and how long."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack
from traceanalyzer.columns import Adds, Column, Written
from traceanalyzer.model import RankTrace


class Kernels(Result):
    """One row for each rank and name, longest total first within a rank."""

    title: ClassVar[str] = "Kernels and copies"
    keys: ClassVar[tuple[str, ...]] = ("rank", "name", "activity")
    joined_by: ClassVar[tuple[str, ...]] = ("name", "kind", "activity")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "name": Column.text("Name as the trace has it.", written=Written.KERNEL),
        "kind": Column.text("compute, comm or copy.", written=Written.KIND, is_aside=True),
        "activity": Column.text("kernel, memcpy, memset or graph."),
        "calls": Column.count("GPU operations of that name.", is_aside=True),
        "total_ns": Column.time("Sum of their durations.", leads=True),
        "mean_ns": Column.time("Total / calls.", adds=Adds.DERIVED),
        "median_ns": Column.time("Median duration.", adds=Adds.DERIVED, is_secondary=True),
        "min_ns": Column.time("Shortest.", adds=Adds.EXTREME),
        "max_ns": Column.time("Longest.", adds=Adds.EXTREME),
        "share_pct": Column.share("100 · total / sum of the durations of all GPU operations of the rank."),
        "streams": Column.text("Streams that they ran on."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        whole = table.groupby("rank")["total_ns"].transform("sum")
        return table.assign(
            mean_ns=ratio(table["total_ns"], table["calls"]), share_pct=percent(table["total_ns"], whole)
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted GPU operations by name; durations are not clipped to the window."""
    ops = trace.gpu_ops[trace.counted]
    if ops.empty:
        return pd.DataFrame()
    ops = ops[["name", "kind", "activity", "stream"]].assign(duration=ops["end_ns"] - ops["start_ns"])
    groups = ops.groupby(["name", "kind", "activity"], observed=True)
    table = groups["duration"].agg(calls="size", total_ns="sum", median_ns="median", min_ns="min", max_ns="max")
    pairs = ops[["name", "kind", "activity", "stream"]].drop_duplicates().sort_values("stream")
    table["streams"] = (
        pairs.assign(stream=pairs["stream"].astype("str"))
        .groupby(["name", "kind", "activity"], observed=True)["stream"]
        .agg(",".join)
    )
    return table.sort_values("total_ns", ascending=False, kind="stable").reset_index()


def across(parts: Mapping[int, pd.DataFrame]) -> Kernels:
    """The ranks' rows under each other."""
    return Kernels(stack(parts, tuple(Kernels.columns)))
