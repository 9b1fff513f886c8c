"""What-if's predictions beside what happened: `python experiments/what_if_pairs.py FOLDER… docs/results/x.csv`.

For each pair in the folders (of `record_pairs.py`, or NAME beside NAME_mended) the job recorded with the fault is
replayed without it, and its predicted step stands beside that of the job recorded without the fault, both under the
profiler and without it, with its range and whether what happened lies in it. `hosts_pct` tells by how much
the hosts of the ranks took longer in the second recording for the operators that both ran.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from replayed import of_unprofiled, replay_of, results_of, unprofiled_ms, write_rows

import traceanalyzer as ta
from traceanalyzer.analyses.replay.changes import read_change
from traceanalyzer.findings.what_if import answer

if TYPE_CHECKING:
    import pandas as pd

CHANGES: dict[str, tuple[str, ...]] = {
    "slow_gpu": ("rank 1=peers",),
    "slow_gpu_partly": ("rank 1=peers",),
    "slow_host": ("rank 0=peers",),
    "slow_hosts_both": ("host 0=peers",),
    "slow_host_hidden": ("host 1=peers",),
    "loader": ("data ready",),
    "loader_one_rank": ("data 1=ready",),
    "garbage_collection": ("host 1=peers",),
    "synchronised": ("sync none",),
    "synchronised_host_bound": ("sync none",),
    "buckets": ("comm free",),
    "no_exchange": ("comm free", "waits none"),
    "no_exchange_overlapped": ("comm free", "waits none", "compute alone"),
    "compressed": ("comm 2x",),
    "blocking_copy": ("copy free",),
    "two_stragglers": ("compute 1=peers",),
    "fewer_products": ("kernel nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT=2x",),
    "even_stages": ("rank 0,1=even",),
    "gathered_again": ("collective all_gather@backward=none",),
    # Other jobs, recorded as NAME and, without the fault, NAME_mended:
    "ema_cpu0": ("rank 0=peers",),
    "hooks_item1": ("rank 1=peers",),
    "loader_worker1": ("data 1=ready",),
    "one_big_fp32": ("comm free",),
    "save_on_cpu": ("copy free",),
    "spin_backward1": ("kernel spin=free",),
    "spin_noshapes": ("kernel spin=free",),
    "timing_syncs": ("sync none",),
    "channels": ("links 300",),
    "clip_norm_item": ("sync none",),
    "cpu_affinity1": ("host 1=peers",),
    "cpu_sort1": ("host 1=peers",),
    "cudnn_bench1": ("rank 1=peers",),
    "dlrm_tables1": ("rank 0,1=even",),
    "eager_small": ("host none",),
    "fsdp_fp32": ("comm 2x",),
    "fsdp_prefetch_off": ("sync none",),
    "gloo_barrier1": ("host 1=peers",),
    "halo1": ("rank 0,1=even",),
    "hook_python0": ("host 0=peers",),
    "lock_wait1": ("host 1=peers",),
    "muon0": ("rank 0,1=even",),
    "opt_item": ("sync none",),
    "ramp1": ("rank 1=peers",),
    # Their changes were chosen before any of these forecasts was seen:
    "broadcast_batch0": ("host 0=peers",),
    "ckpt_one_stage": ("stage 1=peers",),
    "clip_twice_gather": ("collective all_gather=free",),
    "cpu_loss1": ("rank 1=peers",),
    "event_sync1": ("sync 1=none",),
    "fp8_amax": ("collective all_reduce=free",),
    "gpu_augment1": ("rank 1=peers",),
    "grad_hist0": ("rank 0=peers",),
    "host_sampling0": ("rank 0=peers",),
    "nested_groups": ("rank 1=peers",),
    "one_step": ("host 0=peers",),
    "wait_too_early": ("comm free",),
    # Of four ranks, chosen before they were recorded:
    "4_slow_gpu": ("rank 2=peers",),
    "4_loader_one_rank": ("data 1=ready",),
    "4_even_stages": ("stage even",),
    "4_prefetch": ("collective all_gather=free",),
    "4_recomputed": ("operator @recompute=free",),
    "4_longer_sequences": ("compute even",),
    "4_checkpoint": ("host 0=peers",),
    "4_every_micro_step": ("collective all_reduce@3/4=none",),
    "4_compiled": ("kernel elementwise=free",),
}
"""What the second job did differently, as a change to the first; more microbatches are another schedule: no change."""


def main() -> None:
    """Predict every pair that was recorded, print and write the table."""
    *folders, target = map(Path, sys.argv[1:])
    sides = [(folder, name, before, after) for folder in folders for name in CHANGES
             for before, after in [sides(folder, name)] if after.is_dir()]  # fmt: skip
    write_rows([_row(name, before, after) for _, name, before, after in sides], target)


def sides(folder: Path, pair: str) -> tuple[Path, Path]:
    """Where the two recordings of a pair are."""
    whole = folder / pair
    return (whole / "before", whole / "after") if (whole / "before").is_dir() else (whole, folder / f"{pair}_mended")


def _row(pair: str, before: Path, after: Path) -> dict[str, Any]:
    changes = list(map(read_change, CHANGES[pair]))
    results = results_of(before, ("replay",))
    engine, happened = results["replay"].engine, replay_of(after).engine
    assert happened is not None
    found, before_ms, after_ns = answer(results, changes), unprofiled_ms(before), engine.steps([tuple(changes)]).mean()
    return {
        "pair": pair,
        "change": ", ".join(CHANGES[pair]),
        "before_ms": round(engine.before_ns / 1e6, 2),
        "predicted_ms": round(after_ns / 1e6, 2),
        "error_ms": round(found.error_ns / 1e6, 2),
        "measured_ms": round(happened.before_ns / 1e6, 2),
        "miss_pct": round(100 * (after_ns / happened.before_ns - 1), 1),
        "hosts_pct": _hosts_pct(before, after),
        "unprofiled_before_ms": "" if before_ms is None else round(before_ms, 2),
        **of_unprofiled(found, unprofiled_ms(after)),
    }


def _hosts_pct(before: Path, after: Path) -> str:
    """By how much the hosts take longer or less in the second recording for the operators that both run, by rank.

    Medians of each operator of PyTorch's (`aten::`), weighted by what it takes in all.
    """
    first, second = (_operators(folder) for folder in (before, after))
    found = []
    for rank in sorted(set(first) & set(second)):
        both = first[rank].merge(second[rank], left_index=True, right_index=True, suffixes=("", "_after"))
        ratio = (both["median_after"] / both["median"].clip(lower=1)).clip(lower=0.01)
        found.append(f"{100 * (np.exp(np.average(np.log(ratio), weights=both['sum'])) - 1):+.0f}" if len(both) else "")
    return " ".join(found)


def _operators(folder: Path) -> dict[int, pd.DataFrame]:
    found = {}
    for trace in ta.load(folder).ranks:
        ops = trace.host_ops
        held = (ops["end_ns"] - ops["start_ns"]).groupby(ops["name"].astype("str")).agg(["median", "sum"])
        found[trace.meta.rank] = held[held.index.str.startswith("aten::")]
    return found


if __name__ == "__main__":
    main()
