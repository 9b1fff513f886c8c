"""Every GPU operation of every rank, in order: what a timeline draws."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from traceanalyzer.analyses.base import Result, taken
from traceanalyzer.analyses.names import TimelineColumn
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.operators.scopes import Scopes
from traceanalyzer.analyses.time.steps import step_numbers
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, columns_of, picked, table_of, under_each_other, without_rows

MOST_OPERATIONS = 600_000
"""Beyond this a page would open slowly: reports leave ranks out, those first that are most like the others."""

_NAMES = ("name", "kind", "activity", "launch", "operator", "shapes", "path")


class Timeline(Result[TimelineColumn]):
    """One row for each GPU operation of the selected steps (all operations without a selection), by start."""

    title: ClassVar[str] = "Timeline"
    is_detail: ClassVar[bool] = True
    is_event_copy: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "operation")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "operation": Column.ident("Position among the rank's GPU operations, in order of start."),
        "start_ns": Column.moment("Start on the GPU."),
        "end_ns": Column.moment("End on the GPU."),
        "name": Column.text("Name as the trace has it.", written=Written.KERNEL),
        "kind": Column.text("compute, comm or copy.", written=Written.KIND, is_aside=True),
        "activity": Column.text("kernel, memcpy, memset or graph."),
        "stream": Column.ident("Stream that it ran on."),
        "step": Column.ident("Step that launched it; absent for none."),
        "call": Column.ident(
            "Its position among the rank's communication operations (as in `calls`); absent for other kinds."
        ),
        "size_bytes": Column.size("Bytes of a copy or memset.", is_aside=True),
        "launch": Column.text("Host call that launched it; absent when the capture does not have it."),
        "launch_start_ns": Column.moment("Start of that call on the host."),
        "launch_thread": Column.ident("Thread that made it."),
        "operator": Column.text("Innermost operator around that call; absent for none."),
        "shapes": Column.text("Shapes of its arguments, as recorded; absent when they were not."),
        "path": Column.text("Modules and ranges around the operator, from the outermost down; absent for none."),
    }


def per_rank(trace: RankTrace, tree: OperatorTree, scopes: Scopes) -> pd.DataFrame:
    """The rank's counted operations with their step, communication call, launch and operator, names categorical."""
    if trace.gpu_ops.empty:
        return pd.DataFrame()
    ops, columns = trace.gpu_ops, columns_of(trace.gpu_ops)
    table = table_of(
        {
            **{name: columns[name] for name in ("start_ns", "end_ns", "name", "kind", "activity", "stream")},
            "operation": np.arange(len(ops)),
            "step": step_numbers(trace, np.arange(len(ops))),
            "call": _calls(ops),
            "size_bytes": columns["bytes"],
            "launch": _launch_names(trace),
            "launch_start_ns": _at_launch(trace, array_of(trace.api_calls, "start_ns")),
            "launch_thread": _at_launch(trace, array_of(trace.api_calls, "thread")),
            "operator": taken(column_of(trace.host_ops, "name"), tree.owner),
            "shapes": taken(column_of(trace.host_ops, "shapes"), tree.owner),
            "path": taken(column_of(scopes.calls, "path"), scopes.of_op),
        }
    )
    return table if trace.window.steps is None else picked(table, trace.counted)


def across(parts: Mapping[int, pd.DataFrame]) -> Timeline:
    """The ranks' operations under each other; names stay categorical, so that a million rows stay small."""
    held = {rank: columns_of(part) for rank, part in sorted(parts.items()) if len(part)}
    if not held:
        return Timeline(without_rows(Timeline.columns))
    names = {name: union_categoricals([own[name] for own in held.values()]) for name in _NAMES}
    others = [name for name in Timeline.columns if name not in (*_NAMES, "rank")]
    table = under_each_other([table_of({name: own[name] for name in others}) for own in held.values()])
    ranks = np.repeat(np.array([*held]), [len(own["start_ns"]) for own in held.values()])
    return Timeline(table_of({"rank": ranks, **columns_of(table), **names}))


def _calls(ops: pd.DataFrame) -> pd.arrays.IntegerArray:
    is_comm = rows_named(ops, "kind", "comm")
    return pd.arrays.IntegerArray((np.cumsum(is_comm) - 1).astype(np.int64), ~is_comm)


def _at_launch(trace: RankTrace, values: np.ndarray) -> pd.arrays.IntegerArray:
    """A column of `api_calls` for the operations' launches; absent where there is none."""
    launch = array_of(trace.gpu_ops, "launch")
    if not len(values):
        return pd.arrays.IntegerArray(np.ones(len(launch), dtype=np.int64), np.ones(len(launch), dtype=bool))
    return pd.arrays.IntegerArray(values[np.maximum(launch, 0)].astype(np.int64), launch == NONE)


def _launch_names(trace: RankTrace) -> pd.Categorical:
    return taken(column_of(trace.api_calls, "name"), array_of(trace.gpu_ops, "launch"))
