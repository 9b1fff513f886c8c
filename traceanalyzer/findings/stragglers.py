"""Ranks that make the others wait."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from traceanalyzer.analyses.exposed_comm import ExposedComm
from traceanalyzer.analyses.stragglers import Stragglers
from traceanalyzer.analyses.waits import Waits
from traceanalyzer.findings.basis import milliseconds, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.kinds import POINT_TO_POINT

LEAST_COST_PCT = 2.0
"""Of a step; less is noise."""

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

_ADVICE = {
    "compute": "Give the ranks equal work: sequence lengths, experts, pipeline stages, uneven last batches. If the "
    "work is equal, look at this GPU's clocks and temperature.",
    "copies": "Pin the host memory and copy on a stream of its own, or move less.",
    "transfer": "Compare this rank's links with the others' (nvidia-smi topo -m, NCCL_DEBUG=INFO).",
    "unmatched": "It may itself have waited for another rank: have process groups recorded (PyTorch's profiler does; "
    "nsys export --include-blobs=true with NCCL's payloads) and the traces of all ranks.",
    "host": "See what this rank's host does more than the others': logging, checkpoints, Python hooks, garbage "
    "collection, a busy or slower CPU, wrong NUMA binding. Launching less (compile, CUDA graphs, fused optimizers) "
    "helps all ranks.",
    "data": "Use more workers, prefetch and pinned memory on this rank; look for slow storage or longer samples.",
    "sync": "Remove what waits for the GPU on this rank: .item(), .cpu(), printing tensors, blocking copies.",
    "launch": "Look at what else runs on this GPU, and at the order of its streams.",
    "between_kernels": "Fuse small kernels (torch.compile) or replay them with CUDA graphs.",
}
_NO_CAUSE_ADVICE = "Open the timeline at the longest wait and compare this rank with one that waits."


def stragglers(stragglers: Stragglers, exposed_comm: ExposedComm, waits: Waits) -> list[Finding]:
    """Each rank for which another waits at least 2 % of a step, the five costliest."""
    rows = [row for row in stragglers.rows() if (row["cost_pct"] or 0) >= LEAST_COST_PCT]
    return [_finding(row, exposed_comm, waits) for row in rows[:_MOST_FINDINGS]]


def _finding(row: Mapping[str, Any], exposed_comm: ExposedComm, waits: Waits) -> Finding:
    advice = _ADVICE.get(row["cause"] or "", _NO_CAUSE_ADVICE)
    if row["operation"]:
        advice += f" Longest beyond the other ranks: {row['operation']}, {milliseconds(row['operation_ns'])}"
        advice += " a step." if row["steps"] else "."
    return Finding(
        rule="straggler",
        severity=severity(row["cost_pct"]),
        title=f"{_late(row)}: {_who_waits(row)}.",
        evidence=(row, *_evidence(row, exposed_comm)),
        recommendation=advice,
        caveat=_caveat(row),
        cost_ns=row["cost_max_ns"],
        interval_ns=_longest_wait(row["rank"], row["cost_max_rank"], waits.table),
    )


def _late(row: Mapping[str, Any]) -> str:
    return _LATE.get(row["cause"] or "", "Rank {rank} comes late").format(rank=row["rank"])


def _who_waits(row: Mapping[str, Any]) -> str:
    cost, where = milliseconds(row["cost_max_ns"]), (row["collective"] or "communication").replace("_", "-")
    each = f"{cost} a step" if row["steps"] else cost
    if row["waiting_ranks"] == 1:
        return f"rank {row['cost_max_rank']} waits {each} for it inside {where}"
    many, mean = f"{row['waiting_ranks']} ranks", milliseconds(row["cost_mean_ns"])
    return f"{many} wait for it inside {where}, {mean} on average, rank {row['cost_max_rank']} {each}"


def _evidence(row: Mapping[str, Any], exposed_comm: ExposedComm) -> list[dict[str, Any]]:
    """How the exposed communication of the rank that waits most splits."""
    own = [split for split in exposed_comm.rows() if split["rank"] == row["cost_max_rank"]]
    return [split for split in own if split["is_complete"] or (row["steps"] is None and split["step"] is None)]


def _caveat(row: Mapping[str, Any]) -> str:
    if row["collective"] in POINT_TO_POINT:
        return "Pipeline stages wait for each other by design; only what exceeds the expected bubble can be won."
    if row["cause"] in ("host", "sync", "launch", "between_kernels"):
        return "Profiling slows the host: check with an un-profiled run that the step is longer than its GPU work."
    if row["cause"] is None:
        return "No part of this rank's time exceeds the others' enough to explain it: perhaps late from the start."
    return "Once this rank is faster, the next slowest sets the pace: expect to win less than the wait."


def _longest_wait(rank: int, waiting: int, waits: pd.DataFrame) -> tuple[int, int] | None:
    own = waits[(waits["rank"] == waiting) & (waits["waits_for"] == rank)]
    if own.empty:
        return None
    longest = own.loc[(own["end_ns"] - own["start_ns"]).idxmax()]
    return int(longest["start_ns"]), int(longest["end_ns"])
