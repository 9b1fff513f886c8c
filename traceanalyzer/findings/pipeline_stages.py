"""Uneven pipeline stages: the others wait for the one that computes most.

One stage computes longer than the others; every other stage waits for it in send/recv.

**Why.** The embedding, the head and the loss weigh as much as several layers, or layers were dealt by count.

**Fix.** Move layers from the longest stage to the shortest. torchtitan:
`--parallelism.pipeline_parallel_first_stage_less_layers` and `..._last_stage_less_layers`; elsewhere choose split
points by time.

**Measured.** 1F1B with 9 and 3 blocks made 6 and 6: 201 → 132 ms/step.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.changes import EVEN, Change
from traceanalyzer.analyses.statistics import PERCENT, low_median
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import numbered

PLACE = "Uneven ranks", 3


def pipeline_stages(run: Run, pipeline: Pipeline) -> Iterator[Finding]:
    """A stage computes more than its pipeline's other stages, in most replicas: in one alone a rank is slower.

    The change is as much work in all stages, CPU time included. Of pipelines of unlike lengths the most uneven speaks.
    """
    table = pipeline.table[pipeline.table["compute_ns"].notna()] if len(pipeline) else pipeline.table
    lengths = [own.groupby("stage")["compute_ns"] for _, own in table.groupby("ranks")]
    stages = [own.agg(low_median).astype("float64") / run.count for own in lengths]
    if not stages:
        return
    compute = max(stages, key=lambda each: each.max() / max(each.mean(), 1))
    stage = int(compute.idxmax())
    others = compute.drop(stage)
    if not len(others) or 100 * (compute[stage] - compute.mean()) < PERCENT * run.step_ns:
        return
    own = table[(table["stage"] == stage) & (table["ranks"] == len(compute))]
    ranks = tuple(map(int, own["rank"]))
    several = (own["stages_per_rank"].fillna(1) > 1).any()
    name = f"{numbered('rank', ranks)}'s stages" if several else f"stage {stage}"
    yield Finding(
        headline=f"Uneven pipeline stages: {name} compute{'' if several else 's'} "
        f"{compute[stage] / others.mean():.3g}× the others.",
        why=f"{numbered('rank', ranks).capitalize()} compute{'s' if len(ranks) == 1 else ''} "
        f"{time_text(round(compute[stage]))}{run.each}, the other stages {time_text(round(others.mean()))} on average, "
        "and they wait for it.",
        fix=f"Move layers from {name} to the others; embedding, head and loss count as layers.",
        changes=(Change("stage", EVEN),),
        named=ranks,
        evidence=tuple({"stage": int(one), "compute_ns": round(ns)} for one, ns in compute.items()),
        table="pipeline",
    )
