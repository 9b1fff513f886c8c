"""Stages of a pipeline that have more to do than the others: what they do less of, another stage does more of."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.findings.basis import MOSTLY
from traceanalyzer.findings.late.beside import more_calls
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.model.tables import rows_where

UNEVEN_STAGES = 1.1
"""Compute of the largest stage of a pipeline over the mean; its host's need over the others'."""


def pipeline_name(number: int) -> str:
    """How findings about a pipeline call it."""
    return f"pipeline {number}"


def heavy_stage(rank: int, pipeline: Pipeline, uneven_times: float) -> str | None:
    """The pipeline whose largest stage the rank is, where it computes so many times the mean; else `None`."""
    table = pipeline.table
    own = table[table["rank"] == rank] if len(table) else table
    if own.empty:
        return None
    number = int(own["pipeline"].iloc[0])
    compute = table.loc[table["pipeline"] == number].set_index("rank")["compute_ns"].astype("float64")
    is_heavy = compute.idxmax() == rank and compute[rank] >= uneven_times * compute.mean()
    return pipeline_name(number) if is_heavy else None


def even_changes(stages: pd.DataFrame) -> list[Change]:
    """What makes each stage of these pipelines, its host's work with it, as long as the mean stage of its own."""
    compute = stages["compute_ns"].astype("int64")
    mean = compute.groupby(stages["pipeline"]).transform("mean")
    return [
        Change("rank", float(of / ns), frozenset({int(rank)}))
        for rank, of, ns in zip(stages["rank"], mean, compute, strict=True)
        if ns
    ]


def even_gain(
    row: Mapping[str, Any],
    pipeline: Pipeline,
    operators: Operators,
    replay: Replay,
    *,
    uneven_times: float,
    busy_times: float,
) -> Gain | None:
    """Of a late host what even stages gain, where its stage's size explains why it is late; else `None`.

    So it is where its rank computes longest of its pipeline, and its host makes as many more calls as it needs longer.
    """
    late, own_ns, peers_ns = numbers(row["ranks"]), row["own_host_ns"], row["peers_host_ns"]
    if row["cause"] != HOST.key or not own_ns or not peers_ns:
        return None
    if heavy_stage(late[0], pipeline, uneven_times) is None:
        return None
    busy = more_calls(operators, late[0], busy_times)
    if busy is None or not {*late} <= {*busy.ranks} or busy.times - 1 < MOSTLY * (own_ns / peers_ns - 1):
        return None
    table = pipeline.table
    number = table.loc[table["rank"] == late[0], "pipeline"].iloc[0]
    return gain_of(replay, *even_changes(rows_where(table, table["pipeline"] == number)))
