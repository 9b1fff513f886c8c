"""Rules about pipelines: a bubble larger than its schedule explains, uneven stages."""

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.findings.basis import milliseconds, severity
from traceanalyzer.findings.finding import Finding

BUBBLE_PCT = 10.0
BEYOND_EXPECTED_PCT = 5.0
IMBALANCE = 1.1
"""Largest stage over mean."""


def pipeline_bubble(pipelines: Result, pipeline: Result) -> list[Finding]:
    """A measured bubble over 10 % of the stages' time; says what the schedule alone would cost where that is known."""
    found = []
    for row in pipelines.to_frame().to_dict("records"):
        measured, expected = row["bubble_pct"], row["expected_bubble_pct"]
        if pd.isna(measured) or measured < BUBBLE_PCT:
            continue
        stages = pipeline.to_frame()
        stages = stages[stages["pipeline"] == row["pipeline"]]
        found.append(_bubble(row, stages, float(measured), None if pd.isna(expected) else float(expected)))
    return found


def pipeline_imbalance(pipelines: Result, pipeline: Result) -> list[Finding]:
    """A stage that computes over 10 % more than the mean stage: all others wait for it."""
    found = []
    for row in pipelines.to_frame().to_dict("records"):
        if pd.isna(row["compute_max_over_mean"]) or row["compute_max_over_mean"] < IMBALANCE:
            continue
        stages = pipeline.to_frame()
        stages = stages[stages["pipeline"] == row["pipeline"]]
        steps = stages["steps"].iloc[0]
        compute = stages["compute_ns"].astype("int64")
        cost_ns = (compute.max() - compute.mean()) / (1 if pd.isna(steps) else int(steps))
        excess = 100 * (row["compute_max_over_mean"] - 1)
        found.append(
            Finding(
                rule="pipeline_imbalance",
                severity=severity(excess),
                title=f"Stage {row['bottleneck_stage']} (rank {row['bottleneck_rank']}) computes {excess:.0f} % more "
                f"than the mean stage, {milliseconds(cost_ns)} {_per(steps)}: the others wait for it.",
                evidence=_evidence(stages, ["rank", "stage", "compute_ns", "idle_ns"]),
                recommendation="Move layers from that stage to the others; the first and last stages also carry "
                "embedding, head and loss.",
                caveat=f"Coefficient of variation of compute {row['compute_cv']:.3f} (population, ddof = 0); a stage "
                "may be limited by memory instead.",
                cost_ns=round(cost_ns),
            )
        )
    return found


def _bubble(row: dict[str, object], stages: pd.DataFrame, measured: float, expected: float | None) -> Finding:
    steps = stages["steps"].iloc[0]
    worst = stages.loc[stages["bubble_ns"].astype("int64").idxmax()]
    cost_ns = stages["bubble_ns"].astype("int64").mean() / (1 if pd.isna(steps) else int(steps))
    known = (
        ""
        if expected is None
        else f" ({expected:.0f} % expected of {row['stages']} stages and {row['microbatches']} microbatches)"
    )
    is_more = expected is not None and measured > expected + BEYOND_EXPECTED_PCT
    advice = (
        "More than the schedule costs: look at uneven stages, late hosts and slow transfers first."
        if is_more
        else "More microbatches a step, or an interleaved or zero-bubble schedule, shrink it."
    )
    return Finding(
        rule="pipeline_bubble",
        severity=severity(measured),
        title=f"The pipeline of ranks {row['ranks']} waits {measured:.0f} % of its time{known}, most on rank "
        f"{worst['rank']}: {worst['bubble_pct']:.0f} %.",
        evidence=_evidence(stages, ["rank", "stage", "bubble_ns", "bubble_pct", "idle_ns", "p2p_wait_ns"]),
        recommendation=advice,
        caveat="Idle time counts as bubble whatever its cause; the expected figure assumes even stages and free "
        "transfers.",
        cost_ns=round(cost_ns),
    )


def _per(steps: object) -> str:
    return "in the capture" if pd.isna(steps) else "a step"


def _evidence(stages: pd.DataFrame, names: list[str]) -> tuple[dict[str, object], ...]:
    rows = stages[names].astype("object").to_dict("records")
    return tuple({key: None if pd.isna(value) else value for key, value in row.items()} for row in rows)
