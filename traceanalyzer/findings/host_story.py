"""Which finding tells of a late host: its rank's lateness, its pipeline's uneven stages, or all hosts."""

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.findings.lateness import late_by
from traceanalyzer.vocabulary import HOST

HOSTS = "hosts"
"""How findings about all hosts are called by what is part of them."""

UNEVEN_STAGES = 1.1
"""Compute of the largest stage of a pipeline over the mean."""


def pipeline_name(number: int) -> str:
    """How findings about a pipeline call it."""
    return f"pipeline {number}"


def story_of_host(rank: int, episodes: Episodes, pipeline: Pipeline) -> str:
    """What a finding about this rank's host is part of."""
    return late_by(episodes, rank, HOST.key) or heavy_stage(rank, pipeline) or HOSTS


def heavy_stage(rank: int, pipeline: Pipeline) -> str | None:
    """The pipeline whose largest stage the rank is, where it computes a tenth more than the mean; else `None`."""
    table = pipeline.table
    own = table[table["rank"] == rank] if len(table) else table
    if own.empty:
        return None
    number = int(own["pipeline"].iloc[0])
    compute = table.loc[table["pipeline"] == number].set_index("rank")["compute_ns"].astype("float64")
    is_heavy = compute.idxmax() == rank and compute[rank] >= UNEVEN_STAGES * compute.mean()
    return pipeline_name(number) if is_heavy else None
