"""When each stage of a pipeline computes which microbatch, forward and backward."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, is_any, stack
from traceanalyzer.analyses.names import PipelineScheduleColumn
from traceanalyzer.analyses.phases.op_phases import NAMES
from traceanalyzer.analyses.pipelines.pipeline_messages import in_launch_order
from traceanalyzer.analyses.pipelines.stage_ranges import BACKWARD, FORWARD, action_at, actions
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, only, rows_where


class PipelineSchedule(Result[PipelineScheduleColumn]):
    """One row for each rank and stretch of forward or backward compute of one microbatch, in order of launch."""

    title: ClassVar[str] = "Pipeline schedule"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "slot")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "slot": Column.ident("Position among the rank's stretches."),
        "step": Column.ident("Step that launched it; absent for none."),
        "phase": Column.text(
            "forward or backward; where the schedule's ranges tell, backward of inputs and backward of weights."
        ),
        "virtual_stage": Column.ident(
            "Stage of the model, as the schedule's ranges number it; absent without such ranges."
        ),
        "microbatch": Column.ident(
            "The microbatch's number, as the schedule's ranges have it; else how many stretches of that "
            "phase the step had before: its number when each is computed once, in order."
        ),
        "is_beside": Column.flag("Whether the schedule runs it in one action with a pass of the other direction."),
        "start_ns": Column.moment("Start of its first compute kernel."),
        "end_ns": Column.moment("End of its last one."),
        "compute_ns": Column.time("Sum of its kernels' durations.", better=Better.LESS),
        "operations": Column.count("Its compute kernels."),
    }


def per_rank(trace: RankTrace, pipeline_messages: pd.DataFrame, phase_of_op: np.ndarray) -> pd.DataFrame:
    """Cut the rank's forward and backward kernels, in order of launch, into stretches of one microbatch.

    By the schedule's own ranges, else where the phase changes or the rank sends or receives. Only for ranks with send
    and receive calls that name their peers; operations without a launch are left out.
    """
    if pipeline_messages.empty:
        return pd.DataFrame()
    ops = in_launch_order(trace, array_of(pipeline_messages, "gpu_op"))
    found = actions(trace)
    has_ranges = bool(found["is_compute"].any())
    marked = _by_ranges(trace, ops, found, phase_of_op) if has_ranges else _by_phase(ops, phase_of_op)
    if marked.empty:
        return pd.DataFrame()
    slot = _slots(marked, are_runs=not has_ranges)
    groups = marked.assign(length=marked["end_ns"] - marked["start_ns"]).groupby(slot)
    table = groups[["phase", "step_row", "virtual_stage", "microbatch", "is_beside"]].first()
    table = table.assign(start_ns=groups["start_ns"].min(), end_ns=groups["end_ns"].max(),
                         compute_ns=groups["length"].sum(), operations=groups.size())  # fmt: skip
    ordinal = table.groupby(["step_row", "phase"]).cumcount()
    table["microbatch"] = table["microbatch"].fillna(ordinal.astype("Int64"))
    steps = np.append(trace.steps["step"].to_numpy(np.int64), 0)
    table["step"] = pd.arrays.IntegerArray(steps[table["step_row"]], (table["step_row"] == NONE).to_numpy())
    return table.drop(columns="step_row").rename_axis("slot").reset_index()


def across(parts: Mapping[int, pd.DataFrame]) -> PipelineSchedule:
    """The ranks' stretches under each other."""
    return PipelineSchedule(stack(parts, tuple(PipelineSchedule.columns)))


def _slots(marked: pd.DataFrame, *, are_runs: bool) -> np.ndarray:
    """The stretch of each kernel: a run of equal marks, or all that have the same, as kernels of two passes may mix."""
    marks = only(marked, ["phase", "step_row", "cut"])
    if are_runs:
        runs: np.ndarray = (marks != marks.shift()).any(axis=1).cumsum().to_numpy() - 1
        return runs
    codes: np.ndarray = pd.factorize(pd.MultiIndex.from_frame(marks))[0]
    return codes


def _by_phase(ops: pd.DataFrame, phase_of_op: np.ndarray) -> pd.DataFrame:
    """Forward and backward kernels; a send or receive between two of them cuts."""
    phase = np.array(NAMES, dtype=object)[phase_of_op[ops["gpu_op"]]]
    is_step = np.isin(phase, [FORWARD, BACKWARD]) & is_any(ops["kind"], "compute")
    absent = pd.array([pd.NA] * int(is_step.sum()), dtype="Int64")
    cut = np.cumsum(array_of(ops, "is_transfer"))[is_step]
    return rows_where(ops, is_step).assign(phase=phase[is_step], cut=cut, virtual_stage=absent, microbatch=absent,
                               is_beside=False)  # fmt: skip


def _by_ranges(trace: RankTrace, ops: pd.DataFrame, found: pd.DataFrame, phase_of_op: np.ndarray) -> pd.DataFrame:
    """Kernels launched inside an action of the schedule; each action is a stretch, or one a pass where it has two."""
    found = found[found["is_compute"]].reset_index(drop=True)
    row = action_at(found, array_of(trace.api_calls, "start_ns")[ops["launch"]])
    is_held = (row >= 0) & is_any(ops["kind"], "compute")
    held, own = ops[is_held], found.iloc[row[is_held]]
    is_beside = ~column_of(own, "back").isna()
    is_back = is_beside & (np.array(NAMES, dtype=object)[phase_of_op[held["gpu_op"]]] == BACKWARD)
    return held.assign(
        phase=own["what"].where(~is_back, own["back"]).array,
        cut=2 * row[is_held] + is_back,
        virtual_stage=own["stage"].astype("Int64").where(~is_back, own["back_stage"]).array,
        microbatch=own["microbatch"].astype("Int64").where(~is_back, own["back_microbatch"]).array,
        is_beside=is_beside,
    )
