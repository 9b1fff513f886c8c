"""What each rank copied and set in memory: by direction, how often, how long and how many bytes."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack
from traceanalyzer.analyses.names import MemoryOpsColumn
from traceanalyzer.analyses.spread import columns_of, spread, with_mean
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, rows_named, sorted_table
from traceanalyzer.model.tables import column_of


class MemoryOps(Result[MemoryOpsColumn]):
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
        return self._with(
            with_mean(with_mean(table, "ns"), "bytes"),
            {
                "share_pct": percent(table["total_ns"], whole),
                "bandwidth_gb_per_s": ratio(table["total_bytes"], table["total_ns"]),
            },
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted copies and memsets; one with an operation of unknown size has no sizes."""
    held = trace.counted & is_copy(trace.gpu_ops)
    if not held.any():
        return pd.DataFrame()
    ops = trace.gpu_ops
    operation = {"operation": operations(ops)[held]}
    times = spread(lengths_of(ops)[held], operation, "ns")
    sizes = spread(column_of(ops, "bytes")[held], operation, "bytes")
    return sorted_table(times | sizes, "total_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> MemoryOps:
    """The ranks' rows under each other."""
    return MemoryOps(stack(parts, tuple(MemoryOps.columns)))


def is_copy(ops: pd.DataFrame) -> np.ndarray:
    """Mask of copies and memsets."""
    return rows_named(ops, "activity", "memcpy", "memset")


def operations(ops: pd.DataFrame) -> np.ndarray:
    """Direction of each copy, `memset` for a memset, `unknown` for a copy that does not say."""
    direction: Any = column_of(ops, "direction")
    names: np.ndarray = np.array([*direction.categories.tolist(), "unknown"], dtype=object)[direction.codes]
    names[rows_named(ops, "activity", "memset")] = "memset"
    return names
