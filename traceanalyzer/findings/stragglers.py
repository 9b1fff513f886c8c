"""Ranks that make the others wait."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.communication.exposed_comm import ExposedComm
from traceanalyzer.analyses.communication.stragglers import Stragglers
from traceanalyzer.analyses.communication.waits import Waits
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.pipelines.pipelines import Pipelines
from traceanalyzer.analyses.time.breakdown import Breakdown
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import about, around, lower, milliseconds, plain, severity
from traceanalyzer.findings.beside import LEAST_OWN_PCT, SlowHost, own_share_pct, own_work, slow_host
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.straggler_words import (
    ADVICE,
    AS_FAST,
    NO_CAUSE_ADVICE,
    OWN_WORK_ADVICE,
    PROFILED,
    SLOW_HOST_ADVICE,
    STAGE_ADVICE,
    caveat,
    is_rare,
    late,
    of_a_stage,
    where_to_look,
    who_waits,
)  # fmt: skip
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.names import short_name
from traceanalyzer.vocabulary import IDLE_CAUSES, UNKNOWN

LEAST_COST_PCT = 2.0
"""Of a step; less is noise."""

TURNS_COST_PCT = 5.0
"""Of a step, all together; GPUs are never quite alike."""

_LEAST_TURNS = 3
_MOST_FINDINGS = 5

_OWN_DOING = ("copies", *(cause.key for cause in IDLE_CAUSES if cause is not UNKNOWN))
"""Causes that a rank of a pipeline has of itself; what else makes stages wait, the schedule and their sizes do."""


def stragglers(
    stragglers: Stragglers,
    exposed_comm: ExposedComm,
    waits: Waits,
    steps: Steps,
    breakdown: Breakdown,
    pipeline: Pipeline,
    pipelines: Pipelines,
    kernels: Kernels,
    operators: Operators,
    efficiency: Efficiency,
) -> list[Finding]:
    """Each rank for which another waits at least 2 % of a step, the five costliest; not those that take turns.

    In a pipeline a rank that computes longer is part of what the pipeline rules say, and waits that are no longer than
    what the schedule costs are not said.
    """
    first_step = _first_complete(steps)
    said = {row["rank"] for rows in turns(stragglers) for row in rows}
    times = times_of(steps if stragglers.table["steps"].notna().any() else breakdown, exposed_comm)
    stages = dict(pipeline.table[["rank", "pipeline"]].itertuples(index=False))
    expected = dict(pipelines.table[["pipeline", "expected_bubble_pct"]].itertuples(index=False))
    found = []
    for row in costly(stragglers):
        if row["rank"] in said or _is_by_schedule(row, stages, expected):
            continue
        slow = slow_host(operators, row["rank"]) if row["cause"] == "host" else None
        advice = SLOW_HOST_ADVICE.format(rank=row["rank"]) if slow else _advice(row, stages, kernels, efficiency)
        found.append(
            replace(
                _finding(row, stages, times, slow),
                recommendation=f"{where_to_look(row, first_step)}{advice}",
                evidence=_evidence(row, times),
                interval_ns=longest_wait(row, waits.table, times),
            )
        )
    return found[:_MOST_FINDINGS]


def costly(stragglers: Stragglers) -> list[dict[str, Any]]:
    """The stragglers that cost enough to speak of, costliest first."""
    return [row for row in stragglers.rows() if (row["cost_pct"] or 0) >= LEAST_COST_PCT]


def turns(stragglers: Stragglers) -> list[list[dict[str, Any]]]:
    """Ranks that are late by one cause, each in some steps only, together for three at least: a list for each cause.

    Together they cost at least 5 % of a step; each of many may cost too little to speak of.
    """
    rare: dict[str, list[dict[str, Any]]] = {}
    for row in stragglers.rows():
        if row["steps"] and row["steps_affected"] and is_rare(row) and row["collective"] not in POINT_TO_POINT:
            rare.setdefault(row["cause"] or "", []).append(row)
    return [
        rows
        for cause, rows in rare.items()
        if cause
        and len(rows) > 1
        and sum(row["steps_affected"] for row in rows) >= _LEAST_TURNS
        and sum(row["cost_pct"] for row in rows) >= TURNS_COST_PCT
    ]


def cause_of(row: Mapping[str, Any], stages: Mapping[int, int]) -> str:
    """What the waits for a straggler come from, as findings call it; `stages` says which pipeline a rank is in."""
    is_stage = row["collective"] in POINT_TO_POINT and row["rank"] in stages
    if is_stage and row["cause"] not in _OWN_DOING:
        return pipeline_name(stages[row["rank"]])
    return about(row["cause"] or "lateness", row["rank"])


def pipeline_name(number: int) -> str:
    """How findings about a pipeline call it."""
    return f"pipeline {number}"


def _first_complete(steps: Steps) -> int | None:
    complete = steps.table[steps.table["is_complete"].fillna(value=False).astype(bool)] if len(steps) else steps.table
    return None if complete.empty else int(complete["step"].min())


def _finding(row: Mapping[str, Any], stages: Mapping[int, int], times: pd.DataFrame, slow: SlowHost | None) -> Finding:
    cause = cause_of(row, stages)
    is_of_pipeline = _is_of_pipeline(row, stages)
    return Finding(
        rule="straggler",
        severity=lower(severity(row["cost_pct"])) if is_rare(row) else severity(row["cost_pct"]),
        title=of_a_stage(row) if is_of_pipeline else f"{late(row, times)}: {who_waits(row)}.",
        caveat=f"{AS_FAST} {PROFILED}" if slow else caveat(row),
        gain_ns=_gain_ns(row, slow),
        ranks=(row["rank"],),
        cause=row["cause"],
        table="stragglers",
        about=None if is_of_pipeline else cause,
        part_of=cause if is_of_pipeline else None,
    )


def _gain_ns(row: Mapping[str, Any], slow: SlowHost | None) -> int:
    """The wait, or what is left of it where a slow host, as fast as the others', shortens the step no further."""
    cost_ns = int(row["cost_max_ns"])
    if slow is None:
        return cost_ns
    return min(cost_ns, round((1 - 1 / slow.times) * int(row["window_ns"])))


def _is_of_pipeline(row: Mapping[str, Any], stages: Mapping[int, int]) -> bool:
    return row["rank"] in stages and cause_of(row, stages) == pipeline_name(stages[row["rank"]])


def _is_by_schedule(row: Mapping[str, Any], stages: Mapping[int, int], expected: Mapping[int, Any]) -> bool:
    if not _is_of_pipeline(row, stages):
        return False
    bubble_pct = expected.get(stages[row["rank"]])
    return not pd.isna(bubble_pct) and row["cost_pct"] <= bubble_pct


def _advice(row: Mapping[str, Any], stages: Mapping[int, int], kernels: Kernels, efficiency: Efficiency) -> str:
    if _is_of_pipeline(row, stages):
        return STAGE_ADVICE
    advice = ADVICE.get(row["cause"] or "", NO_CAUSE_ADVICE)
    if row["cause"] == "compute" and _has_own_work(row["rank"], kernels, efficiency):
        advice = OWN_WORK_ADVICE
    if not row["operation"]:
        return advice
    longer = f"{milliseconds(row['operation_ns'])}{' a step' if row['steps'] else ''}"
    return f"{advice} Longest beyond the other ranks: {short_name(row['operation'])}, {longer}."


def _has_own_work(rank: int, kernels: Kernels, efficiency: Efficiency) -> bool:
    work = own_work(efficiency, rank, set(kernels.table["rank"]) - {rank})
    return own_share_pct(work, kernels, rank) >= LEAST_OWN_PCT


def times_of(windows: Steps | Breakdown, exposed_comm: ExposedComm) -> pd.DataFrame:
    """How each complete step of each rank splits, or its whole capture."""
    frame = windows.to_frame()
    frame = (
        frame[frame["is_complete"].fillna(value=False).astype(bool)] if "step" in frame else frame.assign(step=pd.NA)
    )
    split = exposed_comm.to_frame()[["rank", "step", "exposed_transfer_ns", "exposed_wait_ns"]]
    return frame.astype({"step": "Int64"}).merge(split.astype({"step": "Int64"}), on=["rank", "step"], how="left")


def _evidence(row: Mapping[str, Any], times: pd.DataFrame) -> tuple[dict[str, Any], ...]:
    """Step by step the straggler beside the rank that waits most for it."""
    columns = ["step", "rank", "window_ns", "compute_ns", "exposed_transfer_ns", "exposed_wait_ns", "idle_ns"]
    both = times[times["rank"].isin([row["rank"], row["cost_max_rank"]])].sort_values(["step", "rank"])
    return plain(both[columns])


def longest_wait(row: Mapping[str, Any], waits: pd.DataFrame, times: pd.DataFrame) -> tuple[int, int] | None:
    """The step with the longest one, of those that the cost is of: where it begins is what makes the rank late."""
    own = waits[(waits["rank"] == row["cost_max_rank"]) & (waits["waits_for"] == row["rank"])]
    if "start_ns" in times:
        steps = times[times["rank"] == row["cost_max_rank"]]
        begins = steps["start_ns"].to_numpy(np.int64)
        ends = begins + steps["window_ns"].to_numpy(np.int64)
        began = own["start_ns"].to_numpy(np.int64)[:, None]
        own = own[((begins <= began) & (began < ends)).any(axis=1)]
    if own.empty:
        return None
    longest = own.loc[(own["end_ns"] - own["start_ns"]).idxmax()]
    return around(int(longest["start_ns"]), int(longest["end_ns"]), times, row["cost_max_rank"])
