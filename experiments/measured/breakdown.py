"""Where the time of a step goes, and how fast steps are without a profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from measured.cells import MS, rounded
from measured.runs import is_true

if TYPE_CHECKING:
    import pandas as pd

    from measured.runs import Run


def breakdown(run: Run) -> dict[str, Any]:
    """Throughput without the profiler, and where the time of complete steps goes with it: means over ranks."""
    facts, head = run.facts, run.table("headline")
    tokens = facts["tokens_per_s"]
    row = {
        "run": run.name,
        "GPUs": facts["world_size"],
        "step ms": rounded(run.step_ms, 1),
        "± std": rounded(run.step_ms and facts["step_time_ns"]["unprofiled"]["std"] / MS, 1),
        "tokens/s": tokens and f"{tokens:,.0f}",
        "MFU %": rounded(mfu_pct(run), 1),
    }
    if not run.is_analysed:
        return row
    mean = head.mean(numeric_only=True)
    waits = run.table("exposed_comm")
    waits = waits[is_true(waits["is_complete"])] if len(waits) else waits
    sums = waits.groupby("rank")[["window_ns", "exposed_transfer_ns", "exposed_wait_ns"]].sum() if len(waits) else None
    return row | {
        "profiled step ms": rounded(mean["step_mean_ns"] / MS, 1),
        "compute %": rounded(mean["compute_pct"], 1),
        "transfer %": _share(sums, "exposed_transfer_ns"),
        "wait %": _share(sums, "exposed_wait_ns"),
        "exposed comm %": rounded(mean["exposed_comm_pct"], 1),
        "copies %": rounded(mean["exposed_copy_pct"], 1),
        "idle %": rounded(mean["idle_pct"], 1),
        "idle by CPU %": host_idle_pct(run),
        "overlap %": rounded(mean["overlap_pct"], 1),
        "peak GiB": rounded(run.peak_gib(), 1),
    }


def host_idle_pct(run: Run) -> float | None:
    """Idle that the host caused over the windows of complete steps, all ranks: whether the GPU bounds a capture."""
    idle = run.table("idle")
    idle = idle[idle["step"].isin(run.complete_steps["step"])]
    return rounded(100 * idle["host_ns"].sum() / idle["window_ns"].sum(), 1)


def mfu_pct(run: Run) -> float | None:
    """Model FLOPs of run.json over un-profiled step time, GPUs, and the dense bf16 peak of the GPU."""
    peak = {"NVIDIA H100 80GB HBM3": 989.4e12, "NVIDIA H200": 989.4e12}.get((run.facts["gpu"] or {}).get("name"))
    flops = run.facts["model_flops_per_step"]
    if not (peak and flops and run.step_ms) or run.facts["dtype"] != "bf16":
        return None
    return float(100 * flops / (run.step_ms / 1e3) / run.facts["world_size"] / peak)


def _share(sums: pd.DataFrame | None, column: str) -> float | None:
    return None if sums is None else rounded((100 * sums[column] / sums["window_ns"]).mean(), 1)
