"""Uneven pipeline stages: the others wait for the one that computes most."""

from collections.abc import Iterator

from traceanalyzer.analyses.pipelines.pipeline import Pipeline, Pipelines
from traceanalyzer.analyses.replay.changes import EVEN, Change
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text


def pipeline_stages(run: Run, pipelines: Pipelines, pipeline: Pipeline) -> Iterator[Finding]:
    """A stage computes more than its pipeline's other stages.

    The change is as much work in all stages, CPU time included. Of several pipelines the most uneven one speaks.
    """
    rows = [row for row in pipelines.rows() if row["compute_max_over_mean"] is not None]
    if not rows:
        return
    row = max(rows, key=lambda row: row["compute_max_over_mean"])
    stages = pipeline.table[pipeline.table["pipeline"] == row["pipeline"]]
    compute = stages.set_index("rank")["compute_ns"].astype("float64") / run.count
    rank = int(row["bottleneck_rank"])
    others = compute.drop(rank)
    if not len(others) or not run.is_worth(compute[rank] - compute.mean()):
        return
    several = (row["stages_per_rank"] or 1) > 1
    stage = f"rank {rank}'s stages" if several else f"stage {row['bottleneck_stage']}"
    yield Finding(
        headline=f"Uneven pipeline stages: {stage} compute{'' if several else 's'} "
        f"{compute[rank] / others.mean():.3g}× the others.",
        why=f"Rank {rank} computes {time_text(round(compute[rank]))}{run.each}, the other stages "
        f"{time_text(round(others.mean()))} on average, and they wait for it.",
        fix=f"Move layers from {stage} to the others; embedding, head and loss count as layers.",
        changes=(Change("stage", EVEN),),
        named=(rank,),
        evidence=tuple({"rank": int(one), "compute_ns": round(ns)} for one, ns in compute.items()),
        table="pipeline",
    )
