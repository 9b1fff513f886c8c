"""How each operator's launches go: the host's time in them, the delay until the GPU begins, full queues."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack, typed
from traceanalyzer.analyses.host.full_queue import into_full_queue
from traceanalyzer.analyses.operators.operator_tree import NO_OPERATOR, OperatorTree
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE


class OperatorLaunches(Result):
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
    held = trace.counted & (trace.gpu_ops["launch"] != NONE).to_numpy()
    if not held.any():
        return pd.DataFrame()
    ops, calls = trace.gpu_ops[held], trace.api_calls
    launch = ops["launch"].to_numpy()
    lengths = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    call_ns = (calls["end_ns"] - calls["start_ns"]).to_numpy()
    names = np.append(trace.host_ops["name"].astype(str).to_numpy(), NO_OPERATOR)
    owner = _around_call(trace, tree, held)
    operator = names[np.where(owner >= 0, owner, len(names) - 1)]
    table = pd.DataFrame(
        {
            "operator": operator,
            "launch": launch,
            "delay_ns": ops["start_ns"].to_numpy() - calls["start_ns"].to_numpy()[launch],
            "gpu_ns": lengths,
            "shorter_than_launch": lengths < call_ns[launch],
        }
    )
    of_calls = table.drop_duplicates("launch").assign(
        launch_ns=lambda own: call_ns[own["launch"]], is_full=lambda own: into_full_queue(trace)[own["launch"]]
    )
    of_calls["full_queue_ns"] = of_calls["launch_ns"].where(of_calls["is_full"], 0)
    by_op, by_call = table.groupby("operator"), of_calls.groupby("operator")
    made = pd.DataFrame(
        {
            "launches": by_call.size(),
            "gpu_ops": by_op.size(),
            "launch_ns": by_call["launch_ns"].sum(),
            "launch_median_ns": by_call["launch_ns"].median().round(),
            "delay_median_ns": by_op["delay_ns"].median().round(),
            "delay_max_ns": by_op["delay_ns"].max(),
            "gpu_ns": by_op["gpu_ns"].sum(),
            "shorter_than_launch": by_op["shorter_than_launch"].sum(),
            "full_queue_calls": by_call["is_full"].sum(),
            "full_queue_ns": by_call["full_queue_ns"].sum(),
        }
    )
    made = typed(made, dict.fromkeys(made, "int64")).reset_index()
    return made.sort_values(["launches", "operator"], ascending=[False, True], kind="stable", ignore_index=True)


def _around_call(trace: RankTrace, tree: OperatorTree, held: np.ndarray) -> np.ndarray:
    """Row of the operator around the call: that of a replayed graph is not what captured its operations."""
    ops = trace.gpu_ops
    rows = np.flatnonzero(held & ops["captured_ns"].notna().to_numpy())
    calls = trace.api_calls.iloc[ops["launch"].to_numpy()[rows]]
    owner = tree.owner.copy()
    owner[rows] = tree.nesting.innermost_at(calls["start_ns"].to_numpy(), calls["thread"].to_numpy())
    found: np.ndarray = owner[held]
    return found


def across(parts: Mapping[int, pd.DataFrame]) -> OperatorLaunches:
    """The ranks' rows under each other."""
    return OperatorLaunches(stack(parts, tuple(OperatorLaunches.columns)))
