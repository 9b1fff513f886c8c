"""How throughput and memory grow with GPUs and batch, and spread over seeds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pandas as pd

from measured.breakdown import mfu_pct
from measured.cells import GIB, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measured.runs import Run


def against_one_gpu(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Step time, throughput and memory beside those of one GPU with the same batch a GPU, by strategy and GPUs."""
    named = {run.name: run for run in runs}
    base = named.get("single")
    if base is None or base.step_ms is None:
        return
    strategies = ("pytorch_ddp", "pytorch_ddp_bf16", "pytorch_zero2", "pytorch_zero3")
    names = [name for strategy in strategies for name in (f"{strategy}_2_gpus", strategy, f"{strategy}_ga")]
    replicated = named.get("pytorch_ddp", base).peak_gib()
    for run in (base, *(named[name] for name in names if name in named)):
        if run.step_ms is None:
            continue
        speed_up = run.facts["tokens_per_s"] / base.facts["tokens_per_s"]
        micro_steps = run.facts["batch"]["grad_accum"]
        yield {
            "run": run.facts["strategy"] + (f", {micro_steps} micro-steps" if micro_steps > 1 else ""),
            "GPUs": run.facts["world_size"],
            "step ms": rounded(run.step_ms, 1),
            "step against one GPU %": rounded(100 * (run.step_ms / base.step_ms - 1), 1),
            "tokens/s": f"{run.facts['tokens_per_s']:,.0f}",
            "speed-up": rounded(speed_up, 2),
            "scaling efficiency %": rounded(100 * speed_up / run.facts["world_size"], 1),
            "expected state GiB": rounded(sum(v for k, v in run.facts["expected"][0].items() if k != "rank") / GIB, 1),
            "peak allocated GiB": rounded(run.peak_gib(), 1),
            "peak reserved GiB": rounded(run.peak_gib("reserved"), 1),
            "against DDP %": replicated and rounded(100 * (run.peak_gib() / replicated - 1), 1),
        }


def batch_sweep(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Throughput and memory by batch, up to the first that does not fit."""
    for name in ("single", "pytorch_ddp", "pytorch_zero3"):
        own = [run for run in runs if re.fullmatch(rf"{name}(_batch\d+)?", run.name)]
        for run in sorted(own, key=lambda run: int(run.facts["batch"]["micro_batch"])):
            yield {
                "strategy": name,
                "batch a GPU": run.facts["batch"]["micro_batch"],
                "status": run.facts["status"],
                "step ms": rounded(run.step_ms, 1),
                "tokens/s": run.facts["tokens_per_s"] and f"{run.facts['tokens_per_s']:,.0f}",
                "MFU %": rounded(mfu_pct(run), 1),
                "peak allocated GiB": rounded(run.peak_gib(), 1),
                "peak reserved GiB": rounded(run.peak_gib("reserved"), 1),
            }


def over_seeds(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Throughput of runs that differ in their seed: mean, sample standard deviation, each value."""
    for label in dict.fromkeys(run.label for run in runs):
        own = [run for run in runs if run.label == label and run.step_ms and run.facts["batch"]]
        values = pd.Series([run.facts["batch"]["global_batch"] / run.step_ms * 1e3 for run in own])
        if len(values) > 1:
            yield {
                "run": label,
                "GPUs": own[0].facts["world_size"],
                "seeds": len(values),
                "samples/s": f"{values.mean():,.0f} ± {values.std():,.0f}",
                "each": " ".join(f"{value:,.0f}" for value in values),
                "peak GiB": rounded(own[0].peak_gib(), 1),
                "reserved GiB": rounded(own[0].peak_gib("reserved"), 1),
            }
