"""Which kernels and copies ran on each rank, how often and how long."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack
from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.analyses.names import KernelsColumn
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, sorted_table, text_array
from traceanalyzer.model.tables import array_of, column_of


class Kernels(Result[KernelsColumn]):
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
        return self._with(
            table, {"mean_ns": ratio(table["total_ns"], table["calls"]), "share_pct": percent(table["total_ns"], whole)}
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted GPU operations by name; durations are not clipped to the window."""
    if not trace.counted.any():
        return pd.DataFrame()
    rows = np.flatnonzero(trace.counted)
    keys = {name: column_of(trace.gpu_ops, name)[rows] for name in ("name", "kind", "activity")}
    groups = Groups.of(keys, [*keys])
    durations = lengths_of(trace.gpu_ops)[rows]
    held = groups.of_row >= 0
    numbers, number = np.unique(array_of(trace.gpu_ops, "stream")[rows][held], return_inverse=True)
    group, number = np.divmod(np.unique(groups.of_row[held] * len(numbers) + number), len(numbers))
    streams = [",".join(map(str, numbers[number[rows]].tolist())) for rows in rows_of_each(group)]
    columns = {
        **groups.keys,
        "calls": groups.counts(),
        "total_ns": groups.sums(durations),
        "median_ns": groups.medians(durations),
        "min_ns": groups.smallest(durations),
        "max_ns": groups.largest(durations),
        "streams": text_array(streams),
    }
    return sorted_table(columns, "total_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> Kernels:
    """The ranks' rows under each other."""
    return Kernels(stack(parts, tuple(Kernels.columns)))
