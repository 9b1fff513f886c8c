"""When each stage of a pipeline computes which microbatch, forward and backward."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.phases.op_phases import NAMES
from traceanalyzer.analyses.pipelines import pipeline_shape
from traceanalyzer.columns import Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.schema import NONE


class PipelineSchedule(Result):
    """One row for each rank and stretch of forward or backward compute of one microbatch, in order of launch."""

    title: ClassVar[str] = "Pipeline schedule"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "slot")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "slot": Column.ident("Position among the rank's stretches."),
        "step": Column.ident("Step that launched it; absent for none."),
        "phase": Column.text("forward or backward."),
        "microbatch": Column.ident(
            "How many stretches of that phase the step had before: the microbatch's number when each is "
            "computed once, in order."
        ),
        "start_ns": Column.moment("Start of its first compute kernel."),
        "end_ns": Column.moment("End of its last one."),
        "compute_ns": Column.time("Sum of its kernels' durations.", better=Better.LESS),
        "operations": Column.count("Its compute kernels."),
    }


def per_rank(trace: RankTrace, calls: pd.DataFrame, phase_of_op: np.ndarray) -> pd.DataFrame:
    """Cut the rank's forward and backward kernels, in order of launch, where the phase changes or it communicates.

    Only for ranks with send and receive calls that name their peers; operations without a launch are left out.
    """
    own = pipeline_shape.point_to_point(calls)
    if own.empty:
        return pd.DataFrame()
    ops = _in_launch_order(trace, own["gpu_op"].to_numpy(), phase_of_op)
    phase = ops["phase"].to_numpy()
    is_step = np.isin(phase, [NAMES.index("forward"), NAMES.index("backward")]) & (ops["kind"] == "compute").to_numpy()
    transfers_before = np.cumsum(ops["is_transfer"].to_numpy())[is_step]
    ops = ops[is_step].assign(transfers=transfers_before)
    if ops.empty:
        return pd.DataFrame()
    marks = ops[["phase", "step_row", "transfers"]]
    slot = (marks != marks.shift()).any(axis=1).cumsum().to_numpy() - 1
    groups = ops.assign(length=ops["end_ns"] - ops["start_ns"]).groupby(slot)
    table = groups[["phase", "step_row"]].first()
    table = table.assign(start_ns=groups["start_ns"].min(), end_ns=groups["end_ns"].max(),
                         compute_ns=groups["length"].sum(), operations=groups.size())  # fmt: skip
    table["microbatch"] = table.groupby(["step_row", "phase"]).cumcount()
    steps = np.append(trace.steps["step"].to_numpy(np.int64), 0)
    table["step"] = pd.arrays.IntegerArray(steps[table["step_row"]], (table["step_row"] == NONE).to_numpy())
    table["phase"] = np.array(NAMES, dtype=object)[table["phase"]]
    return table.drop(columns="step_row").rename_axis("slot").reset_index()


def across(parts: Mapping[int, pd.DataFrame]) -> PipelineSchedule:
    """The ranks' stretches under each other."""
    return PipelineSchedule(stack(parts, tuple(PipelineSchedule.columns)))


def _in_launch_order(trace: RankTrace, transfers: np.ndarray, phase: np.ndarray) -> pd.DataFrame:
    ops = trace.gpu_ops[["start_ns", "end_ns", "kind", "launch"]].assign(
        phase=phase, step_row=trace.op_step, is_transfer=False
    )
    ops.loc[transfers, "is_transfer"] = True
    held = ops[(ops["launch"] != NONE) & trace.counted]
    return held.sort_values(["launch", "start_ns"], kind="stable", ignore_index=True)
