"""Kernels and copies by name, per rank and over ranks; compiler fusions."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import KIND, NAME, OF_A_MEAN_RANK, RANK, STORED_OF_A_MEAN_RANK, Result, ratio
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.meaning.columns import Adds, Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    lengths_of,
    sorted_by,
    table_of,
    text_array,
)

# Which kernels and copies ran on each rank, how often and how long.


class Kernels(Result):
    """One row for each rank and name, longest total first within a rank."""

    title = "Kernels and copies"
    keys = ("rank", "name", "activity")
    joined_by = ("name", "kind", "activity")
    derived = {"mean_ns": "total_ns / calls", "share_pct": "total_ns / rank"}
    columns = declared(
        rank=RANK,
        name=NAME,
        kind=KIND,
        activity="kernel, memcpy, memset or graph.",
        calls="GPU operations of that name.",
        total_ns=Column.time("Sum of their durations.", leads=True),
        mean_ns="Total / calls.",
        median_ns=Column.time("Median duration.", adds=Adds.DERIVED, is_secondary=True),
        min_ns="Shortest.",
        max_ns="Longest.",
        share_pct="100 · total / sum of the durations of all GPU operations of the rank.",
        streams="Streams that they ran on.",
        registers=Column.text("Registers of a thread, where the profiler records them.", is_secondary=True),
        occupancy_pct=Column.share(
            "Share of a multiprocessor's warps that the launches' registers and shared memory allow, as the profiler "
            "estimates it: mean, weighted by their durations.",
            is_secondary=True,
        ),
        limiting_factors=Column.text("What limits the occupancy, such as `WARPS|REGS`.", is_secondary=True),
        priority=Column.text("Priorities of the streams: the least number goes first.", is_secondary=True),
        channel=Column.text("Hardware channels that they were queued in.", is_secondary=True),
    )


def kernels_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted GPU operations by name; durations are not clipped to the window."""
    if not trace.counted.any():
        return pd.DataFrame()
    rows = np.flatnonzero(trace.counted)
    keys = {name: trace.gpu_ops[name].array[rows] for name in ("name", "kind", "activity")}
    groups = Groups.of(keys)
    durations = lengths_of(trace.gpu_ops)[rows]
    columns = {
        **groups.keys,
        **groups.spread(durations),
        "occupancy_pct": _mean_of(groups, trace.gpu_ops["occupancy_pct"].array[rows], durations),
    }
    for column, name in {"streams": "stream", **{name: name for name in _RECORDED}}.items():
        columns[column] = text_array(groups.of_distinct(trace.gpu_ops[name].array[rows], _listed))
    return sorted_by(table_of(columns), "total_ns")


_RECORDED = ("registers", "limiting_factors", "priority", "channel")


def _listed(values: list[Any]) -> str | None:
    """Values as they are written, shorter numbers first."""
    return ",".join(sorted(map(str, values), key=lambda text: (len(text), text))) or None


def _mean_of(groups: Groups, texts: pd.Categorical, weights: np.ndarray) -> pd.Series:
    """For each group the mean of numbers that are kept as texts; absent where none is known."""
    numbers = np.append(pd.to_numeric(texts.categories.to_numpy(dtype=object)).astype(float), 0.0)[texts.codes]
    known = groups.sums(weights * (texts.codes != NONE))
    sums = groups.sums(np.round(weights * numbers))
    return ratio(pd.Series(sums), pd.Series(known))


# Kernels and copies by name, all ranks in one row: the mean, and who has least and most of it.


_KEYS = ["name", "kind", "activity"]


class KernelsOverRanks(Result):
    """One row for each name, longest total first; a rank that runs none of a name counts as 0."""

    title = "Kernels and copies, mean over ranks"
    keys = ("name", "activity")
    stored = STORED_OF_A_MEAN_RANK
    is_of_one_run = True
    derived = OF_A_MEAN_RANK
    columns = declared(
        **{name: Kernels.columns[name] for name in ("name", "kind", "activity")},
        share_pct="100 · sum of durations / that of all GPU operations, all ranks together.",
        total_ns="Sum of the durations on one rank: mean over ranks.",
        calls="Calls on one rank: mean over ranks.",
        mean_ns="Mean duration of a call, all ranks together.",
        min_ns="Shortest call of all ranks.",
        max_ns="Longest call of all ranks.",
        lowest_total_ns="Least total of a rank; absent with a single rank.",
        lowest_rank="Whose that is.",
        highest_total_ns="Largest total of a rank; absent with a single rank.",
        highest_rank="Whose that is.",
    )


def kernels_over_ranks_across(kernels: Kernels) -> KernelsOverRanks:
    """Sum the ranks' rows of each name; only ranks that have GPU operations count."""
    if not len(kernels):
        return KernelsOverRanks.without_rows()
    sums = kernels.table.groupby(_KEYS, observed=True, sort=False).agg(
        all_calls=("calls", "sum"), all_ns=("total_ns", "sum"), min_ns=("min_ns", "min"), max_ns=("max_ns", "max")
    )
    wide = kernels.table.pivot_table("total_ns", _KEYS, "rank", aggfunc="sum", fill_value=0, observed=True)
    ranks = len(wide.columns)
    ends = {
        "lowest_total_ns": wide.min(axis=1),
        "lowest_rank": wide.idxmin(axis=1),
        "highest_total_ns": wide.max(axis=1),
        "highest_rank": wide.idxmax(axis=1),
    }
    table = sums.assign(**(ends if ranks > 1 else dict.fromkeys(ends, pd.NA))).astype("Int64")
    return KernelsOverRanks(sorted_by(table.assign(ranks=ranks).reset_index(), "all_ns"))
