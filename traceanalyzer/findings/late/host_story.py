"""Which finding tells of a late host: its rank's lateness, its pipeline's uneven stages, or all hosts."""

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.findings.late.heavy_stages import heavy_stage
from traceanalyzer.findings.late.lateness import late_by
from traceanalyzer.meaning.vocabulary import HOST

HOSTS = "hosts"
"""How findings about all hosts are called by what is part of them."""


def story_of_host(
    rank: int, episodes: Episodes, pipeline: Pipeline, uneven_times: float, needed_ns: pd.Series | None = None
) -> str:
    """What a finding about this rank's host is part of; `needed_ns` is what each host needs for a step.

    Where the other stages' hosts need about as long, it is not the size of its stage that makes this one late.
    """
    late = late_by(episodes, rank, HOST.key)
    if late is not None or (needed_ns is not None and not _needs_more(rank, needed_ns, uneven_times)):
        return lateness_or_hosts(rank, episodes)
    return heavy_stage(rank, pipeline, uneven_times) or HOSTS


def lateness_or_hosts(rank: int, episodes: Episodes, cause: str = HOST.key) -> str:
    """What a finding about what this rank's host does is part of: its lateness by that cause, else all hosts."""
    return late_by(episodes, rank, cause) or HOSTS


def _needs_more(rank: int, needed_ns: pd.Series, times: float) -> bool:
    others = needed_ns.drop(rank, errors="ignore")
    return rank in needed_ns and len(others) > 0 and bool(needed_ns[rank] >= times * others.median())
