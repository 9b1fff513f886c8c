"""Communication of each rank by process group, collective and dtype: calls, bytes, time, how much is exposed."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack, typed
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.time.intervals import Intervals, union
from traceanalyzer.model import RankTrace, whole_capture

KEYS = ("group", "collective", "dtype")


class Nccl(Result):
    """One row for each rank, process group, collective and dtype; longest total first within a rank."""

    title: ClassVar[str] = "Communication"
    keys: ClassVar[tuple[str, ...]] = ("rank", *KEYS)
    columns: ClassVar[Mapping[str, str]] = {
        "rank": "Global rank.",
        "group": "Process group; absent when the trace does not say.",
        "group_label": "What the group is for and its ranks, as `groups` has it.",
        "group_description": "What the group is for.",
        "group_size": "Ranks in the group.",
        "collective": "Collective or point-to-point operation.",
        "dtype": "Element type; absent when the trace does not say.",
        "calls": "Communication operations on the GPU.",
        "size_bytes": "Sum of their sizes (full arrays); n/a as long as the size of one is unknown.",
        "calls_of_unknown_size": "Calls for which the trace has no sizes.",
        "known_size_bytes": "Sum of the sizes that are known.",
        "total_ns": "Sum of the calls' durations, waiting for other ranks included.",
        "mean_ns": "Total / calls.",
        "min_ns": "Shortest.",
        "max_ns": "Longest.",
        "comm_ns": "Time in which at least one of the calls runs.",
        "exposed_comm_ns": "Part of it in which no compute runs.",
        "overlap_pct": "100 · (comm − exposed) / comm.",
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(
            mean_ns=ratio(table["total_ns"], table["calls"]),
            size_bytes=table["known_size_bytes"].where(table["calls_of_unknown_size"] == 0),
            overlap_pct=percent(table["comm_ns"] - table["exposed_comm_ns"], table["comm_ns"]),
        )


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """Group the rank's calls; exposed time is |∪calls of the row − ∪compute|, calls at their full length."""
    if calls.empty:
        return pd.DataFrame()
    compute = union(trace, "compute", whole_capture(trace.gpu_ops))
    rows = [_row(key, group, compute) for key, group in calls.groupby(list(KEYS), dropna=False, observed=True)]
    integers = ("group_size", "known_size_bytes")
    table = typed(pd.DataFrame(rows), dict.fromkeys(integers, "Int64"))
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def across(parts: Mapping[int, pd.DataFrame], groups: Groups) -> Nccl:
    """The ranks' rows under each other."""
    table = stack(parts, tuple(Nccl.columns))
    return Nccl(table.assign(group_label=labels(groups, table)))


def _row(key: tuple[object, ...], calls: pd.DataFrame, compute: Intervals) -> dict[str, object]:
    durations = calls["end_ns"] - calls["start_ns"]
    busy = Intervals.of(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
    return {
        **{name: None if pd.isna(value) else value for name, value in zip(KEYS, key, strict=True)},
        "group_description": _only(calls["group_description"]),
        "group_size": _only(calls["group_size"]),
        "calls": len(calls),
        "calls_of_unknown_size": int(calls["size_bytes"].isna().sum()),
        "known_size_bytes": calls["size_bytes"].sum(min_count=1),
        "total_ns": int(durations.sum()),
        "min_ns": int(durations.min()),
        "max_ns": int(durations.max()),
        "comm_ns": busy.total_ns,
        "exposed_comm_ns": (busy - compute).total_ns,
    }


def _only(values: pd.Series) -> object:
    """The one value of the column; `None` when there is none, or several."""
    distinct = values.dropna().unique()
    return distinct[0] if len(distinct) == 1 else None
