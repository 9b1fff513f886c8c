"""What each rank copied and set in memory: by direction, how often, how long and how many bytes."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack
from traceanalyzer.analyses.spread import columns_of, spread, with_mean
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace


class MemoryOps(Result):
    """One row for each rank and operation, longest total first within a rank.

    The columns mean what those of `nsys stats --report cuda_gpu_mem_time_sum` and `…_mem_size_sum` mean.
    """

    title: ClassVar[str] = "Copies and memsets"
    keys: ClassVar[tuple[str, ...]] = ("rank", "operation")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "operation": Column.text(
            "Direction of the copies (HtoD, DtoH, DtoD, PtoP, …), or memset.", written=Written.KERNEL
        ),
        "share_pct": Column.share("100 · total time / sum of the durations of all copies and memsets of the rank."),
        "calls": Column.count("Operations.", is_aside=True),
        **columns_of("ns", "the operations' durations on the GPU"),
        **columns_of("bytes", "their sizes"),
        "bandwidth_gb_per_s": Column.rate("Total bytes / total time, decimal GB/s; absent where a size is unknown."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        whole = table.groupby("rank")["total_ns"].transform("sum")
        return with_mean(with_mean(table, "ns"), "bytes").assign(
            share_pct=percent(table["total_ns"], whole),
            bandwidth_gb_per_s=ratio(table["total_bytes"], table["total_ns"]),  # bytes a ns are GB a second
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted copies and memsets; one with an operation of unknown size has no sizes."""
    ops = trace.gpu_ops[trace.counted]
    ops = ops[ops["activity"].isin(("memcpy", "memset"))]
    if ops.empty:
        return pd.DataFrame()
    operation = operations(ops)
    times = spread(ops["end_ns"] - ops["start_ns"], [operation], "ns")
    sizes = spread(ops["bytes"], [operation], "bytes").drop(columns="calls")
    is_whole = ops["bytes"].notna().groupby(operation).all()
    sizes = sizes.where(is_whole.reindex(sizes.index), pd.NA)
    table = times.join(sizes).sort_values("total_ns", ascending=False, kind="stable")
    return table.rename_axis("operation").reset_index()


def across(parts: Mapping[int, pd.DataFrame]) -> MemoryOps:
    """The ranks' rows under each other."""
    return MemoryOps(stack(parts, tuple(MemoryOps.columns)))


def operations(ops: pd.DataFrame) -> pd.Series:
    """Direction of each copy, `memset` for a memset, `unknown` for a copy that does not say."""
    direction = ops["direction"].astype("object")
    return direction.where(ops["activity"] != "memset", "memset").fillna("unknown").rename("operation")
