"""Each pipeline as a whole: how even its stages are, and which one the others wait for."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio
from traceanalyzer.analyses.names import PipelinesColumn
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.model.tables import without_rows


class Pipelines(Result[PipelinesColumn]):
    """One row for each pipeline."""

    title: ClassVar[str] = "Pipelines"
    keys: ClassVar[tuple[str, ...]] = ("pipeline",)
    columns: ClassVar[Mapping[str, Column]] = {
        "pipeline": Column.ident("Number."),
        "ranks": Column.text("Its ranks in order of stage, as far as they have a trace."),
        "absent_ranks": Column.text(
            "Its ranks that have no trace, by what the others send and receive; absent where all have one."
        ),
        "schedule": Column.text(
            "Its schedule, as the order of its passes and messages shows; absent where they fit none."
        ),
        "stages": Column.count(
            "Stages of the model: ranks, with a trace or without, × stages a rank; ranks, where those are not known.",
            adds=Adds.NONE,
        ),
        "stages_per_rank": Column.count("Stages of the model on each rank.", adds=Adds.NONE),
        "microbatches": Column.count("Microbatches of a step.", adds=Adds.NONE),
        "basis": Column.text("Window of the figures.", is_secondary=True),
        "bubble_pct": Column.share(
            "100 · sum of the stages' bubbles / sum of their windows; absent without waits.", better=Better.LESS
        ),
        "collective_wait_pct": Column.share(
            "100 · sum of the stages' exposed waits in collectives among several of them / sum of their windows: what "
            "the expected figure holds beside the bubble; absent without waits.",
            better=Better.LESS,
        ),
        "expected_bubble_pct": Column.share(
            "Expected, not measured: 100 · (S−1)/(vM+S−1) for S ranks, v stages a rank, M "
            "microbatches, or that of the order of passes (see `pipeline`); absent where neither is known."
        ),
        "why_unknown": Column.text("Why the schedule is not known."),
        "compute_cv": Column.number(
            "Coefficient of variation of the stages' compute (population, ddof = 0).", label="compute std / mean"
        ),
        "compute_max_over_mean": Column.number("Largest compute of a stage / mean.", label="compute max / mean"),
        "bottleneck_stage": Column.ident("The stage with the most compute."),
        "bottleneck_rank": Column.ident("Its rank."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(
            table,
            {
                "bubble_pct": percent(table["bubble_ns"], table["window_ns"]),
                "collective_wait_pct": percent(table["collective_wait_ns"], table["window_ns"]),
                "compute_cv": ratio(table["compute_std_ns"], table["compute_mean_ns"]),
                "compute_max_over_mean": ratio(table["compute_max_ns"], table["compute_mean_ns"]),
            },
        )


_STORED = ("bubble_ns", "collective_wait_ns", "window_ns", "compute_std_ns", "compute_mean_ns", "compute_max_ns")


def across(_parts: Mapping[int, pd.DataFrame], pipeline: Pipeline) -> Pipelines:
    """Summarise the stages of each pipeline."""
    if not len(pipeline):
        return Pipelines(without_rows([*Pipelines.columns, *_STORED]))
    frame = pipeline.to_frame()
    return Pipelines(pd.DataFrame([_row(int(number), own) for number, own in frame.groupby("pipeline")]))


def _row(number: int, stages: pd.DataFrame) -> dict[str, object]:
    compute = stages["compute_ns"].astype("int64")
    per_rank = stages["stages_per_rank"].iloc[0]
    slowest = stages.loc[compute.idxmax()]
    return {
        "pipeline": number,
        "ranks": ",".join(map(str, stages["rank"])),
        "stages": int(stages["ranks"].iloc[0]) * (1 if pd.isna(per_rank) else int(per_rank)),
        **{
            name: stages[name].iloc[0]
            for name in ("absent_ranks", "schedule", "stages_per_rank", "microbatches", "why_unknown")
        },
        "basis": stages["basis"].iloc[0],
        "expected_bubble_pct": stages["expected_bubble_pct"].iloc[0],
        "bottleneck_stage": int(slowest["stage"]),
        "bottleneck_rank": int(slowest["rank"]),
        **{
            name: stages[name].sum() if stages[name].notna().all() else pd.NA
            for name in ("bubble_ns", "collective_wait_ns")
        },
        "window_ns": int(stages["window_ns"].sum()),
        "compute_std_ns": float(compute.std(ddof=0)),
        "compute_mean_ns": float(compute.mean()),
        "compute_max_ns": int(compute.max()),
    }
