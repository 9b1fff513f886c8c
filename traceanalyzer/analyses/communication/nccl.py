"""Communication of each rank by process group, collective and dtype: calls, bytes, time, how much is exposed."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses import grouping
from traceanalyzer.analyses.base import Result, ratio, stack
from traceanalyzer.analyses.communication.call_lists import SIZES_FROM, sizes_from
from traceanalyzer.analyses.communication.call_waits import CallWaits, looked_at
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.grouping import rows_of_each
from traceanalyzer.analyses.names import NcclColumn
from traceanalyzer.analyses.same_keys import at_places, places_of
from traceanalyzer.analyses.time.breakdown import OVERLAP, overlap_of
from traceanalyzer.analyses.time.intervals import Intervals, union
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model import RankTrace, whole_capture
from traceanalyzer.model.plain import plain_texts, sorted_table
from traceanalyzer.model.tables import column_of, columns_of, with_columns

KEYS = ("group", "collective", "dtype")


class Nccl(Result[NcclColumn]):
    """One row for each rank, process group, collective and dtype; longest total first within a rank."""

    title: ClassVar[str] = "Communication"
    keys: ClassVar[tuple[str, ...]] = ("rank", *KEYS)
    joined_by: ClassVar[tuple[str, ...]] = ("collective", "dtype")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "group_description": Column.text("What the group is for.", is_secondary=True, replaced_by="group_label"),
        "group_size": Column.number(
            "Ranks in the group; where the trace does not say, those that use it.", is_aside=True
        ),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
        "dtype": Column.text("Element type; absent when the trace does not say.", written=Written.DTYPE, is_aside=True),
        "reduction": Column.text(
            "What the collective reduces by, several separated by commas; absent when the trace does not say.",
            is_aside=True,
        ),
        "calls": Column.count("Communication operations on the GPU.", is_aside=True),
        "size_bytes": Column.size(
            "Sum of their sizes (full arrays); n/a as long as the size of one is unknown.", is_aside=True
        ),
        "sizes_from": Column.text(SIZES_FROM, is_aside=True),
        "calls_of_unknown_size": Column.count("Calls for which the trace has no sizes.", is_secondary=True),
        "known_size_bytes": Column.size("Sum of the sizes that are known.", is_secondary=True),
        "total_ns": Column.time("Sum of the calls' durations, waiting for other ranks included.", leads=True),
        "mean_ns": Column.time("Total / calls.", adds=Adds.DERIVED),
        "min_ns": Column.time("Shortest.", adds=Adds.EXTREME),
        "max_ns": Column.time("Longest.", adds=Adds.EXTREME),
        "comm_ns": Column.time("Time in which at least one of the calls runs.", is_secondary=True, better=Better.LESS),
        "exposed_comm_ns": Column.time("Part of it in which no compute runs.", better=Better.LESS),
        "overlap_pct": OVERLAP,
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(
            table,
            {
                "mean_ns": ratio(table["total_ns"], table["calls"]),
                "size_bytes": table["known_size_bytes"].where(table["calls_of_unknown_size"] == 0),
                "overlap_pct": overlap_of(table["comm_ns"] - table["exposed_comm_ns"], table["comm_ns"]),
            },
        )


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """Group the rank's calls; exposed time is |∪calls of the row − ∪compute|, calls at their full length."""
    if calls.empty:
        return pd.DataFrame()
    compute = union(trace, "compute", whole_capture(trace.gpu_ops))
    columns = columns_of(calls)
    starts, ends, sizes = (columns[name] for name in ("start_ns", "end_ns", "size_bytes"))
    groups = grouping.Groups.of(columns, KEYS, with_absent=True)
    of_each = rows_of_each(groups.of_row)
    busy = [Intervals.of(starts[rows], ends[rows]) for rows in of_each]
    description, reduction, arguments = (
        [_known(columns[name][rows]) for rows in of_each] for name in ("group_description", "reduction", "arguments")
    )
    told = {
        "group_description": [_one(own) for own in description],
        "reduction": [", ".join(sorted(own)) or None for own in reduction],
        "sizes_from": [sizes_from(own) for own in arguments],
    }
    texts = {name: np.array(own, dtype=object) for name, own in told.items()}
    return sorted_table(
        {
            **{name: plain_texts(own) for name, own in groups.keys.items()},
            "group_description": texts["group_description"],
            "reduction": texts["reduction"],
            "calls": groups.counts(),
            "sizes_from": texts["sizes_from"],
            "calls_of_unknown_size": groups.sums(sizes.isna().astype(np.int64)),
            "known_size_bytes": groups.total(sizes),
            "total_ns": groups.sums(ends - starts),
            "min_ns": groups.smallest(ends - starts),
            "max_ns": groups.largest(ends - starts),
            "comm_ns": np.array([own.total_ns for own in busy]),
            "exposed_comm_ns": np.array([(own - compute).total_ns for own in busy]),
        },
        "total_ns",
    )


def across(parts: Mapping[int, pd.DataFrame], groups: Groups, call_waits: CallWaits, calls: Calls) -> Nccl:
    """The ranks' rows under each other, with the groups' sizes as matching found them."""
    table = stack(parts, tuple(Nccl.columns))
    sizes = _sizes(table, looked_at(call_waits, calls))
    return Nccl(with_columns(table, group_label=labels(groups, table), group_size=sizes))


def _sizes(table: pd.DataFrame, calls: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """Ranks of each row's group; absent where its calls do not agree, or nothing tells."""
    if table.empty or calls.empty:
        return pd.array([None] * len(table), dtype="Int64")
    of_calls = grouping.Groups.of(calls, ["rank", *KEYS], with_absent=True)
    sizes = of_calls.told(column_of(calls, "group_size"), _one)
    found = at_places(sizes, places_of(table, of_calls.keys, ["rank", *KEYS]), absent=None)
    return pd.array(found.tolist(), dtype="Int64")


def _one(values: list[object]) -> object:
    """The value, where there is one."""
    return values[0] if len(values) == 1 else None


def _known(values: Any) -> list[Any]:
    """The distinct values that are not absent."""
    return [value for value in dict.fromkeys(values.tolist()) if not pd.isna(value)]
