"""How each operator's launches go: the host's time in them, the delay until the GPU begins, full queues."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.full_queue import into_full_queue
from traceanalyzer.analyses.names import OperatorLaunchesColumn
from traceanalyzer.analyses.operators.operator_tree import NO_OPERATOR, OperatorTree
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, table_of


class OperatorLaunches(Result[OperatorLaunchesColumn]):
    """One row for each rank and operator that launched GPU operations itself, most launches first."""

    title: ClassVar[str] = "Launches by operator"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "operator")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "operator": Column.text("Innermost operator around the launching call; in brackets where there is none."),
        "launches": Column.count("Calls that launched a GPU operation, or several as a graph."),
        "gpu_ops": Column.count("GPU operations that they launched."),
        "launch_ns": Column.time("Host time inside those calls."),
        "launch_median_ns": Column.time("Median of it.", adds=Adds.DERIVED),
        "delay_median_ns": Column.time(
            "Median time from the launching call's start to the operation's start.", adds=Adds.DERIVED
        ),
        "delay_max_ns": Column.time("Longest.", adds=Adds.EXTREME),
        "gpu_ns": Column.time("Sum of the operations' durations."),
        "shorter_than_launch": Column.count("Operations that take the GPU less time than their call the host."),
        "full_queue_calls": Column.count(
            "Calls that took over 30 µs while 900 operations or more were queued: they wait for room in the queue."
        ),
        "full_queue_ns": Column.time("Host time inside those."),
    }


def per_rank(trace: RankTrace, tree: OperatorTree) -> pd.DataFrame:
    """The rank's counted operations whose launch is in the capture."""
    held = trace.counted & (array_of(trace.gpu_ops, "launch") != NONE)
    if not held.any():
        return pd.DataFrame()
    launch, starts, ends = (array_of(trace.gpu_ops, name)[held] for name in ("launch", "start_ns", "end_ns"))
    begun, done = (array_of(trace.api_calls, name) for name in ("start_ns", "end_ns"))
    call_ns, lengths, delay = done - begun, ends - starts, starts - begun[launch]
    operators: Any = column_of(trace.host_ops, "name")
    owner = np.maximum(_around_call(trace, tree, held), NONE)
    name_of = np.append(operators.codes.astype(np.int64), NONE)[owner]
    by_op = Groups.of_numbers(name_of)
    # Of an operation of several operators' calls the first one's counts.
    calls, first = np.unique(launch, return_index=True)
    by_call = Groups.of_numbers(by_op.of_row[first])
    is_full = into_full_queue(trace)[calls]
    names = np.array([*operators.categories.tolist(), NO_OPERATOR], dtype=object)[name_of[by_op.first]]
    with_calls = by_op.of_row[first][by_call.first]
    made = table_of(
        {
            "operator": names[with_calls],
            "launches": by_call.counts(),
            "gpu_ops": by_op.counts()[with_calls],
            "launch_ns": by_call.sums(call_ns[calls]),
            "launch_median_ns": np.round(by_call.medians(call_ns[calls])).astype(np.int64),
            "delay_median_ns": np.round(by_op.medians(delay)).astype(np.int64)[with_calls],
            "delay_max_ns": by_op.largest(delay)[with_calls],
            "gpu_ns": by_op.sums(lengths)[with_calls],
            "shorter_than_launch": by_op.sums((lengths < call_ns[launch]).astype(np.int64))[with_calls],
            "full_queue_calls": by_call.sums(is_full.astype(np.int64)),
            "full_queue_ns": by_call.sums(np.where(is_full, call_ns[calls], 0)),
        },
    )
    by_letters = np.unique(names[with_calls], return_inverse=True)[1]
    return picked(made, np.lexsort((by_letters, -by_call.counts())))


def _around_call(trace: RankTrace, tree: OperatorTree, held: np.ndarray) -> np.ndarray:
    """Row of the operator around the call: that of a replayed graph is not what captured its operations."""
    ops = trace.gpu_ops
    rows = np.flatnonzero(held & ~column_of(ops, "captured_ns").isna())
    owner = tree.owner.copy()
    if len(rows):
        launch = array_of(ops, "launch")[rows]
        starts, threads = (array_of(trace.api_calls, name)[launch] for name in ("start_ns", "thread"))
        owner[rows] = tree.nesting.innermost_at(starts, threads)
    found: np.ndarray = owner[held]
    return found


def across(parts: Mapping[int, pd.DataFrame]) -> OperatorLaunches:
    """The ranks' rows under each other."""
    return OperatorLaunches(stack(parts, tuple(OperatorLaunches.columns)))
