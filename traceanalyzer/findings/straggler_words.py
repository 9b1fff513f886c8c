"""What is said of a straggler: who is late and who waits, where to look, what to do, when it may not hold."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from traceanalyzer.findings.basis import milliseconds
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.vocabulary import BETWEEN_KERNELS, DATA, HOST, LAUNCH, SYNC, UNKNOWN

_LATE = {
    "compute": "Rank {rank} computes longer than the others",
    "copies": "Rank {rank} copies longer than the others",
    "transfer": "Rank {rank} spends longer in communication that the others do not have",
    "unmatched": "Rank {rank} comes late out of communication that could not be matched",
    HOST.key: "Rank {rank}'s host is late",
    DATA.key: "Rank {rank} is late with its data",
    SYNC.key: "Rank {rank}'s host is held up in synchronising calls",
    LAUNCH.key: "Rank {rank}'s launches reach the GPU late",
    UNKNOWN.key: "Rank {rank}'s GPU is idle for a reason that its trace does not hold",
    BETWEEN_KERNELS.key: "Rank {rank} loses time between short kernels",
}

ADVICE = {
    "compute": "Give the ranks equal work: sequence lengths, experts, uneven last batches. If the work is equal, look "
    "at this GPU's clocks and temperature.",
    "copies": "Pin the host memory and copy on a stream of its own, or move less.",
    "transfer": "Compare this rank's links with the others' (nvidia-smi topo -m, NCCL_DEBUG=INFO).",
    "unmatched": "It may itself have waited for another rank: have process groups recorded (PyTorch's profiler does; "
    "nsys export --include-blobs=true with NCCL's payloads) and the traces of all ranks.",
    HOST.key: "See what this rank's host does more than the others': logging, checkpoints, Python hooks, garbage "
    "collection, a busy or slower CPU, wrong NUMA binding. Launching less (compile, CUDA graphs) helps all ranks.",
    DATA.key: "Use more workers, prefetch and pinned memory on this rank; look for slow storage or longer samples.",
    SYNC.key: "Remove what waits for the GPU on this rank: .item(), .cpu(), printing tensors, blocking copies.",
    LAUNCH.key: "Look at what else runs on this GPU, and at the order of its streams.",
    BETWEEN_KERNELS.key: "Fuse small kernels (torch.compile) or replay them with CUDA graphs.",
}
SLOW_HOST_ADVICE = (
    "Look at rank {rank}'s CPU first, for its code does what the others' does: its cores' clock, other processes on "
    "them, binding to cores and to the GPU's NUMA node. Launching far less on all ranks (compile, CUDA graphs) gains "
    "more."
)
AS_FAST = "The gain supposes that this rank's host becomes as fast as the others', not that hosts launch less."
OWN_WORK_ADVICE = "Find what launches the work that no other rank does, or give the ranks equal work."
STAGE_ADVICE = "Give the stages equal work: move layers from the longer ones to the others."
NO_CAUSE_ADVICE = "Open the timeline at the longest wait and compare this rank with one that waits."
PROFILED = "Recorded under the profiler, which slows the host: time some steps without it before you spend effort."


def _is_in_every_step(row: Mapping[str, Any]) -> bool:
    return not row["steps"] or row["steps_affected"] == row["steps"]


def is_rare(row: Mapping[str, Any]) -> bool:
    """Whether most steps are without: a mean over all of them tells no step's wait."""
    return not _is_in_every_step(row) and 2 * row["steps_affected"] <= row["steps"]


def where_to_look(row: Mapping[str, Any], first_step: int | None) -> str:
    """Which step to look at, where few are affected."""
    if not is_rare(row):
        return ""
    if row["steps_affected"] > 1:
        return f"Look at the steps concerned, step {row['first_step']} first. "
    look = f"Look at step {row['first_step']} alone. "
    if row["first_step"] != first_step:
        return look
    return f"{look}It is the first of the capture: what comes with the start may not come again; see later steps too. "


def late(row: Mapping[str, Any], times: pd.DataFrame) -> str:
    """How a rank is late: of one that computes longer in every step, how long beside the others; `times` by rank."""
    if row["cause"] == "compute" and _is_in_every_step(row):
        compute = times.groupby("rank")["compute_ns"].mean()
        others = compute.drop(row["rank"])
        who = f"rank {others.index[0]}" if len(others) == 1 else "the others' median"
        each = " a step" if row["steps"] else ""
        own = milliseconds(compute[row["rank"]])
        return f"Rank {row['rank']} computes {own}{each}, {who} {milliseconds(others.median())}"
    return _LATE.get(row["cause"] or "", "Rank {rank} comes late").format(rank=row["rank"])


def of_a_stage(row: Mapping[str, Any]) -> str:
    """Who waits for a stage, without a reason: each stage waits for the other at its time, by the schedule."""
    said = who_waits(row).replace("for it", f"for rank {row['rank']}")
    return f"{said[0].upper()}{said[1:]}."


def who_waits(row: Mapping[str, Any]) -> str:
    """Who waits for it, how long and in which collective; of some steps only, in how many."""
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


def caveat(row: Mapping[str, Any]) -> str:
    """When the wait is not to be gained, or not all of it."""
    by_host = row["cause"] in (HOST.key, SYNC.key, LAUNCH.key, BETWEEN_KERNELS.key)
    if row["collective"] in POINT_TO_POINT:
        won = "Pipeline stages wait for each other by design; only what exceeds the expected bubble can be won."
        return f"{won} {PROFILED}" if by_host else won
    if by_host:
        return PROFILED
    if row["cause"] is None:
        return "No part of this rank's time exceeds the others' enough to explain it: perhaps late from the start."
    return "Once this rank is faster, the next slowest sets the pace: expect to win less than the wait."
