"""CUDA graphs: each kind of graph launch as a unit, with the kernels that ran inside it."""

import re
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, ratio, stack
from traceanalyzer.analyses.grouping import by_category
from traceanalyzer.analyses.names import GraphsColumn
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.analyses.time.breakdown import DEFINITIONS, known_only, split
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, table_of

_LAUNCH = re.compile(r"GraphLaunch")
_PARTS = ("window_ns", *breakdown.PARTS)


class Graphs(Result[GraphsColumn]):
    """One row for each rank and graph, most time first. Graphs that launch the same operations are one."""

    title: ClassVar[str] = "CUDA graphs"
    keys: ClassVar[tuple[str, ...]] = ("rank", "graph")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "graph": Column.ident("Ordinal, in order of first launch: traces do not name graphs."),
        "launches": Column.count("Times that it was launched."),
        "gpu_ops": Column.count("GPU operations of all its launches.", is_compared=False),
        "operations_per_launch": Column.number("GPU operations / launches."),
        "is_opaque": Column.flag("The trace has one operation for the whole graph: what ran inside is unknown."),
        "gpu_ns": Column.time("Sum of the operations' durations.", leads=True),
        "host_ns": Column.time("Host time in the launching calls."),
        **{name: DEFINITIONS[name] for name in _PARTS},
        "window_ns": Column.time(
            "Sum over launches of the time from the first operation's start to the last one's end. All that "
            "runs in it counts below, whoever launched it.",
            better=Better.LESS,
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(known_only(table), {"operations_per_launch": ratio(table["gpu_ops"], table["launches"])})


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group graph launches by the names of the operations that they ran, in order of start."""
    launches = _launches(trace)
    if launches.empty:
        return pd.DataFrame()
    parts = split(trace, array_of(launches, "start_ns"), array_of(launches, "end_ns"))
    table = launches.assign(**{name: parts[name] for name in _PARTS})
    groups = table.groupby("signature", sort=False)
    sums = groups[["gpu_ops", "gpu_ns", "host_ns", *_PARTS]].sum()
    sums = sums.assign(launches=groups.size(), is_opaque=groups["is_opaque"].first(), graph=np.arange(len(sums)))
    return sums.sort_values("gpu_ns", ascending=False, kind="stable").reset_index(drop=True)


def across(parts: Mapping[int, pd.DataFrame]) -> Graphs:
    """The ranks' rows under each other."""
    return Graphs(stack(parts, tuple(Graphs.columns)))


def _launches(trace: RankTrace) -> pd.DataFrame:
    """A row for each graph launch whose operations are counted, in order."""
    ops, calls = trace.gpu_ops, trace.api_calls
    is_launch = by_category(column_of(calls, "name"), _LAUNCH.search)
    is_graph_call = np.append(is_launch.astype(bool), False)
    launch = array_of(ops, "launch")
    held = trace.counted & is_graph_call[np.where(launch == NONE, len(calls), launch)]
    if not held.any():
        return pd.DataFrame()
    table = table_of(
        {
            "launch": launch[held],
            "start_ns": array_of(ops, "start_ns")[held],
            "end_ns": array_of(ops, "end_ns")[held],
            "code": ops["name"].cat.codes.to_numpy()[held],
            "is_opaque": rows_named(ops, "activity", "graph")[held],
        }
    )
    table["gpu_ns"] = table["end_ns"] - table["start_ns"]
    groups = table.groupby("launch")
    rows = groups.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"), gpu_ops=("code", "size"),
                      gpu_ns=("gpu_ns", "sum"), is_opaque=("is_opaque", "any"))  # fmt: skip
    # Kernels on parallel branches change their order from launch to launch: what ran identifies a graph.
    rows["signature"] = groups["code"].agg(lambda codes: tuple(sorted(codes)))
    own = calls.iloc[rows.index]
    return rows.assign(host_ns=(array_of(own, "end_ns") - array_of(own, "start_ns"))).reset_index(drop=True)
