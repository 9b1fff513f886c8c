"""What the GPUs' own counters said on average: SM activity, memory and link bandwidth, network."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.names import GpuMetricsColumn
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of

# Kineto's memory events: levels that change with each allocation, of which a mean over samples says nothing.
_LEVELS = ("memory_allocated_bytes", "memory_reserved_bytes")


class GpuMetrics(Result[GpuMetricsColumn]):
    """One row for each rank and counter, in order of name."""

    title: ClassVar[str] = "GPU and network metrics"
    keys: ClassVar[tuple[str, ...]] = ("rank", "counter")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "counter": Column.text("Name as the profiler has it, with its unit in brackets; clocks in MHz."),
        "samples": Column.count("Samples in the window.", is_compared=False),
        "mean": Column.number("Mean over them."),
        "min": Column.number("Smallest."),
        "max": Column.number("Largest."),
    }


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Mean of each sampled counter inside the rank's window; samples are equally far apart."""
    counters = trace.counters
    inside = trace.window.holds(array_of(counters, "time_ns")) & counters["value"].notna()
    chosen = counters[inside & ~counters["name"].isin(_LEVELS)]
    if chosen.empty:
        return pd.DataFrame()
    table = chosen.groupby("name", observed=True)["value"].agg(samples="size", mean="mean", min="min", max="max")
    return table.sort_index().rename_axis("counter").reset_index().astype({"counter": "str"})


def across(parts: Mapping[int, pd.DataFrame]) -> GpuMetrics:
    """The ranks' rows under each other."""
    return GpuMetrics(stack(parts, tuple(GpuMetrics.columns)))
