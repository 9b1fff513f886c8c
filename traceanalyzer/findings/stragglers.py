"""Ranks that make the others wait."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.breakdown import Breakdown
from traceanalyzer.analyses.exposed_comm import ExposedComm
from traceanalyzer.analyses.kernels import Kernels
from traceanalyzer.analyses.pipeline import Pipeline
from traceanalyzer.analyses.steps import Steps
from traceanalyzer.analyses.stragglers import Stragglers
from traceanalyzer.analyses.waits import Waits
from traceanalyzer.findings.basis import about, lower, milliseconds, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.names import short_name

LEAST_COST_PCT = 2.0
"""Of a step; less is noise."""

TURNS_COST_PCT = 5.0
"""Of a step, all together; GPUs are never quite alike."""

_LEAST_TURNS = 3
_MOST_FINDINGS = 5

_LATE = {
    "compute": "Rank {rank} computes longer than the others",
    "copies": "Rank {rank} copies longer than the others",
    "transfer": "Rank {rank} spends longer in communication that the others do not have",
    "unmatched": "Rank {rank} comes late out of communication that could not be matched",
    "host": "Rank {rank}'s host is late",
    "data": "Rank {rank} is late with its data",
    "sync": "Rank {rank}'s host is held up in synchronising calls",
    "launch": "Rank {rank}'s launches reach the GPU late",
    "unknown": "Rank {rank}'s GPU is idle for a reason that its trace does not hold",
    "between_kernels": "Rank {rank} loses time between short kernels",
}

ADVICE = {
    "compute": "Give the ranks equal work: sequence lengths, experts, uneven last batches. If the work is equal, look "
    "at this GPU's clocks and temperature.",
    "copies": "Pin the host memory and copy on a stream of its own, or move less.",
    "transfer": "Compare this rank's links with the others' (nvidia-smi topo -m, NCCL_DEBUG=INFO).",
    "unmatched": "It may itself have waited for another rank: have process groups recorded (PyTorch's profiler does; "
    "nsys export --include-blobs=true with NCCL's payloads) and the traces of all ranks.",
    "host": "See what this rank's host does more than the others': logging, checkpoints, Python hooks, garbage "
    "collection, a busy or slower CPU, wrong NUMA binding. Launching less (compile, CUDA graphs) helps all ranks.",
    "data": "Use more workers, prefetch and pinned memory on this rank; look for slow storage or longer samples.",
    "sync": "Remove what waits for the GPU on this rank: .item(), .cpu(), printing tensors, blocking copies.",
    "launch": "Look at what else runs on this GPU, and at the order of its streams.",
    "between_kernels": "Fuse small kernels (torch.compile) or replay them with CUDA graphs.",
}
_STAGE_ADVICE = "Give the stages equal work: move layers from the longer ones to the others."
_NO_CAUSE_ADVICE = "Open the timeline at the longest wait and compare this rank with one that waits."


_OWN_DOING = ("copies", "host", "data", "sync", "launch", "between_kernels")
"""Causes that a rank of a pipeline has of itself; what else makes stages wait, the schedule and their sizes do."""


def stragglers(
    stragglers: Stragglers,
    exposed_comm: ExposedComm,
    waits: Waits,
    steps: Steps,
    breakdown: Breakdown,
    pipeline: Pipeline,
    kernels: Kernels,
) -> list[Finding]:
    """Each rank for which another waits at least 2 % of a step, the five costliest; not those that take turns.

    In a pipeline a rank that computes longer is part of what the pipeline rules say.
    """
    first_step = _first_complete(steps)
    said = {row["rank"] for rows in turns(stragglers) for row in rows}
    times = times_of(steps if stragglers.table["steps"].notna().any() else breakdown, exposed_comm)
    stages = dict(pipeline.table[["rank", "pipeline"]].itertuples(index=False))
    return [
        replace(
            _finding(row, stages, first_step, is_alone=_runs_alone(row, kernels)),
            evidence=_evidence(row, times),
            interval_ns=longest_wait(row, waits.table, times),
        )
        for row in [row for row in costly(stragglers) if row["rank"] not in said][:_MOST_FINDINGS]
    ]


def costly(stragglers: Stragglers) -> list[dict[str, Any]]:
    """The stragglers that cost enough to speak of, costliest first."""
    return [row for row in stragglers.rows() if (row["cost_pct"] or 0) >= LEAST_COST_PCT]


def turns(stragglers: Stragglers) -> list[list[dict[str, Any]]]:
    """Ranks that are late by one cause, each in some steps only, together for three at least: a list for each cause.

    Together they cost at least 5 % of a step; each of many may cost too little to speak of.
    """
    rare: dict[str, list[dict[str, Any]]] = {}
    for row in stragglers.rows():
        if row["steps"] and row["steps_affected"] and _is_rare(row) and row["collective"] not in POINT_TO_POINT:
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


def _runs_alone(row: Mapping[str, Any], kernels: Kernels) -> bool:
    """Whether no other rank runs the kernel that takes the straggler longer."""
    ranks = set(kernels.table.loc[kernels.table["name"] == row["operation"], "rank"])
    return row["cause"] == "compute" and ranks == {row["rank"]}


def _finding(row: Mapping[str, Any], stages: Mapping[int, int], first_step: int | None, *, is_alone: bool) -> Finding:
    cause = cause_of(row, stages)
    is_of_pipeline = row["rank"] in stages and cause == pipeline_name(stages[row["rank"]])
    return Finding(
        rule="straggler",
        severity=lower(severity(row["cost_pct"])) if _is_rare(row) else severity(row["cost_pct"]),
        title=_of_a_stage(row) if is_of_pipeline else f"{_late(row)}: {_who_waits(row)}.",
        recommendation=f"{_where_to_look(row, first_step)}{_advice(row, is_of_pipeline=is_of_pipeline)}"
        f"{' No other rank runs that kernel.' if is_alone else ''}",
        caveat=_caveat(row),
        gain_ns=row["cost_max_ns"],
        table="stragglers",
        about=None if is_of_pipeline else cause,
        part_of=cause if is_of_pipeline else None,
    )


def _is_in_every_step(row: Mapping[str, Any]) -> bool:
    return not row["steps"] or row["steps_affected"] == row["steps"]


def _is_rare(row: Mapping[str, Any]) -> bool:
    """Whether most steps are without: a mean over all of them tells no step's wait."""
    return not _is_in_every_step(row) and 2 * row["steps_affected"] <= row["steps"]


def _where_to_look(row: Mapping[str, Any], first_step: int | None) -> str:
    """Which step to look at, where few are affected."""
    if not _is_rare(row):
        return ""
    if row["steps_affected"] > 1:
        return f"Look at the steps concerned, step {row['first_step']} first. "
    look = f"Look at step {row['first_step']} alone. "
    if row["first_step"] != first_step:
        return look
    return f"{look}It is the first of the capture: what comes with the start may not come again; see later steps too. "


def _advice(row: Mapping[str, Any], *, is_of_pipeline: bool) -> str:
    advice = _STAGE_ADVICE if is_of_pipeline else ADVICE.get(row["cause"] or "", _NO_CAUSE_ADVICE)
    if not row["operation"]:
        return advice
    longer = f"{milliseconds(row['operation_ns'])}{' a step' if row['steps'] else ''}"
    return f"{advice} Longest beyond the other ranks: {short_name(row['operation'])}, {longer}."


def _late(row: Mapping[str, Any]) -> str:
    return _LATE.get(row["cause"] or "", "Rank {rank} comes late").format(rank=row["rank"])


def _of_a_stage(row: Mapping[str, Any]) -> str:
    """Who waits for a stage, without a reason: each stage waits for the other at its time, by the schedule."""
    said = _who_waits(row).replace("for it", f"for rank {row['rank']}")
    return f"{said[0].upper()}{said[1:]}."


def _who_waits(row: Mapping[str, Any]) -> str:
    where = (row["collective"] or "communication").replace("_", "-")
    if not _is_in_every_step(row):
        return _who_waits_at_times(row, where)
    cost = milliseconds(row["cost_max_ns"])
    each = f"{cost} a step" if row["steps"] else cost
    if row["waiting_ranks"] == 1:
        return f"rank {row['cost_max_rank']} waits {each} for it inside {where}"
    many, mean = f"{row['waiting_ranks']} ranks", milliseconds(row["cost_mean_ns"])
    return f"{many} wait for it inside {where}, {mean} on average and {each} on rank {row['cost_max_rank']}"


def _who_waits_at_times(row: Mapping[str, Any], where: str) -> str:
    count = row["steps_affected"]
    when = f"in {count} of {row['steps']} steps"
    wait = f"{milliseconds(row['affected_wait_ns'])}{'' if count == 1 else ' on average'}"
    if row["waiting_ranks"] == 1:
        return f"{when} rank {row['cost_max_rank']} waits {wait} for it inside {where}"
    return f"{when} {row['waiting_ranks']} ranks wait for it inside {where}, rank {row['cost_max_rank']} most, {wait}"


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


def _caveat(row: Mapping[str, Any]) -> str:
    by_host = row["cause"] in ("host", "sync", "launch", "between_kernels")
    if row["collective"] in POINT_TO_POINT:
        won = "Pipeline stages wait for each other by design; only what exceeds the expected bubble can be won."
        return f"{won} {PROFILED}" if by_host else won
    if by_host:
        return PROFILED
    if row["cause"] is None:
        return "No part of this rank's time exceeds the others' enough to explain it: perhaps late from the start."
    return "Once this rank is faster, the next slowest sets the pace: expect to win less than the wait."


PROFILED = "Recorded under the profiler, which slows the host: time some steps without it before you spend effort."


def longest_wait(row: Mapping[str, Any], waits: pd.DataFrame, times: pd.DataFrame) -> tuple[int, int] | None:
    """The longest one within the steps that the cost is of."""
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
    return int(longest["start_ns"]), int(longest["end_ns"])
