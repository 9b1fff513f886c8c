"""How long each stage waits: the bubble as measured, and how even the stages are."""

import pandas as pd

from traceanalyzer.analyses.base import RANK, Result
from traceanalyzer.analyses.breakdown import Breakdown, Steps, complete_steps, shared_steps
from traceanalyzer.analyses.phases import ExposedCalls
from traceanalyzer.analyses.pipelines import shape
from traceanalyzer.analyses.pipelines.pipeline_schedule import PipelineSchedule, expected_pct, schedule_of
from traceanalyzer.analyses.pipelines.shape import PipelineMessages
from traceanalyzer.meaning.columns import Adds, Better, Column, declared
from traceanalyzer.model.tables import rows_where, table_of


class Pipeline(Result):
    """One row for each rank that is a stage of a pipeline; none without send and receive calls that name peers."""

    title = "Pipeline stages"
    keys = ("rank",)
    derived = {"bubble_ns": "idle_ns + p2p_wait_ns", "bubble_pct": "bubble_ns / window_ns"}
    columns = declared(
        rank=RANK,
        pipeline="Ranks that send to each other, directly or not, form one pipeline.",
        stage="Position in it, in the order in which activations go; with several stages a rank, of its first one.",
        ranks=Column.count("Ranks of the pipeline.", adds=Adds.NONE, is_secondary=True),
        absent_ranks=(
            "Those of them that have no trace, by what the others send and receive; absent where all have one."
        ),
        basis="What the row is of: complete steps that all ranks share, or the whole capture.",
        steps="Number of those steps; absent for a whole capture.",
        window_ns="Length of that window.",
        compute_ns="Time in which at least one compute kernel runs.",
        idle_ns="Time in which nothing runs on the GPU.",
        p2p_wait_ns=(
            "Exposed communication of sends and receives in which they wait for a peer; absent where some could "
            "not be matched."
        ),
        bubble_ns=Column.spent("Idle + wait of point-to-point calls."),
        bubble_pct=Column.share("100 · bubble / window.", better=Better.LESS),
        schedule="Its schedule, as the order of its passes and messages shows; absent where they fit none.",
        stages_per_rank=Column.count(
            "Stages of the model on each rank; absent where that is not known.", adds=Adds.NONE
        ),
        microbatches=Column.count("Microbatches of a step; absent where that is not known.", adds=Adds.NONE),
        expected_bubble_pct=(
            "Expected, not measured: 100 · (S−1)/(vM+S−1) for S ranks, v stages a rank, M microbatches, of GPipe, "
            "1F1B and their interleaved forms. Of schedules whose bubble depends on the lengths of their passes "
            "(zero-bubble, V-shaped): the idle share of their order of passes, each as long as the mean of its "
            "kind, transfers free. Of pipelines of two ways whose passes the trace does not number: DualPipe's "
            "(S/2 − 1)(F&B + B − 3W), F&B being F + B and W half of B. Absent where neither is known."
        ),
        why_unknown="Why the schedule is not known.",
    )


def pipeline_across(
    pipeline_messages: PipelineMessages,
    pipeline_schedule: PipelineSchedule,
    exposed_calls: ExposedCalls,
    steps: Steps,
    breakdown: Breakdown,
) -> Pipeline:
    """Order the stages, and measure each over the complete steps that they share (else the whole window)."""
    here = sorted(breakdown.table["rank"])
    moves = shape.with_absent(pipeline_messages.table, here)
    every = shape.stages(moves)
    table = rows_where(every, every["rank"].isin(here))
    if table.empty:
        return Pipeline(table_of({name: pd.Series(dtype="Int64") for name in Pipeline.columns}))
    complete = complete_steps(steps.table)
    shared = shared_steps(
        complete[complete["rank"].isin(table["rank"])] if len(steps) else complete, set(table["rank"])
    )
    table = table.merge(_windows(steps.table, breakdown.table, shared), on="rank")
    stretches = exposed_calls.table
    stretches = stretches[stretches["step"].isin(shared)] if shared else stretches
    table["p2p_wait_ns"] = _waits(table, moves[["rank", "call"]].drop_duplicates(), stretches)
    table = table.sort_values(["pipeline", "stage"], ignore_index=True)
    return Pipeline(table.join(_schedules(every, here, moves, pipeline_schedule.table, shared), on="pipeline"))


def has_known_stages(table: pd.DataFrame) -> pd.Series:
    """Rows of `Pipeline` whose stage is known: no rank lacks a trace, or there are as many as in the longest pipeline.

    Of neighbours that both have no trace nobody tells that they send to each other: a pipeline falls in two there.
    """
    return table["absent_ranks"].isna() | (table["ranks"] == table["ranks"].max())


def _windows(steps: pd.DataFrame, breakdown: pd.DataFrame, shared: list[int]) -> pd.DataFrame:
    figures = ["window_ns", "compute_ns", "idle_ns"]
    if not shared:
        return breakdown[["rank", *figures]].assign(basis="whole capture", steps=pd.NA).astype({"steps": "Int64"})
    chosen = rows_where(steps, steps["step"].isin(shared))
    table = chosen.groupby("rank")[figures].sum().astype("Int64").reset_index()
    return table.assign(basis="steps " + ", ".join(map(str, shared)), steps=len(shared)).astype({"steps": "Int64"})


def _waits(table: pd.DataFrame, calls: pd.DataFrame, stretches: pd.DataFrame) -> pd.api.extensions.ExtensionArray:
    """Exposed wait of each row's rank in these of its calls; absent where some could not be matched."""
    sums = stretches.merge(calls, on=["rank", "call"]).groupby("rank")[["wait_ns", "unmatched_ns"]].sum()
    sums = sums.reindex(table["rank"], fill_value=0)
    return sums["wait_ns"].astype("Int64").where(sums["unmatched_ns"] == 0).array


def _schedules(
    every: pd.DataFrame, here: list[int], moves: pd.DataFrame, stretches: pd.DataFrame, shared: list[int]
) -> pd.DataFrame:
    """What is known of each pipeline's schedule, by pipeline."""
    rows = {}
    for number, own in every.groupby("pipeline"):
        order = own.sort_values("stage")["rank"].tolist()
        absent = [rank for rank in order if rank not in here]
        schedule = schedule_of(moves, stretches, order, shared, absent)
        rows[number] = {
            "ranks": len(order),
            "absent_ranks": ",".join(map(str, absent)) or None,
            "schedule": schedule.name,
            "stages_per_rank": schedule.stages_per_rank,
            "microbatches": schedule.microbatches,
            "expected_bubble_pct": expected_pct(schedule, len(order)),
            "why_unknown": schedule.why_unknown,
        }
    types = {"ranks": "Int64", "stages_per_rank": "Int64", "microbatches": "Int64", "expected_bubble_pct": "Float64"}
    return pd.DataFrame.from_dict(rows, orient="index").astype(types)


_OF_SCHEDULE = ("schedule", "stages_per_rank", "microbatches", "basis", "expected_bubble_pct", "why_unknown")
"""Columns that all stages of a pipeline have alike."""


class Pipelines(Result):
    """One row for each pipeline."""

    title = "Pipelines"
    keys = ("pipeline",)
    stored = ("bubble_ns", "window_ns", "compute_std_ns", "compute_mean_ns")
    derived = {"bubble_pct": "bubble_ns / window_ns", "compute_cv": "compute_std_ns / compute_mean_ns"}
    columns = declared(
        pipeline="Number.",
        ranks=Column.text("Its ranks in order of stage, as far as they have a trace."),
        stages=Column.count(
            "Stages of the model: ranks, with a trace or without, × stages a rank; ranks, where those are not known.",
            adds=Adds.NONE,
        ),
        **{name: Pipeline.columns[name] for name in _OF_SCHEDULE},
        bubble_pct=Column.share(
            "100 · sum of the stages' bubbles / sum of their windows; absent without waits.", better=Better.LESS
        ),
        compute_cv=Column.number(
            "Coefficient of variation of the stages' compute (population, ddof = 0).", label="compute std / mean"
        ),
    )


def pipelines_across(pipeline: Pipeline) -> Pipelines:
    """Summarise the stages of each pipeline."""
    if not len(pipeline):
        return Pipelines.without_rows()
    frame = pipeline.to_frame()
    stages = frame.groupby("pipeline")
    compute = frame["compute_ns"].astype("int64").groupby(frame["pipeline"])
    table = stages[[*_OF_SCHEDULE]].first().assign(
        ranks=stages["rank"].agg(lambda own: ",".join(map(str, own))),
        stages=stages["ranks"].first() * stages["stages_per_rank"].first().fillna(1),
        window_ns=stages["window_ns"].sum(),
        compute_std_ns=compute.std(ddof=0),
        compute_mean_ns=compute.mean(),
        bubble_ns=stages["bubble_ns"].agg(lambda own: own.sum(skipna=False)),
    )  # fmt: skip
    return Pipelines(table.reset_index())
