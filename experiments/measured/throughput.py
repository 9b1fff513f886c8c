"""How throughput and memory grow with GPUs and batch, and spread over seeds."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, Any

from measured.breakdown import mfu_pct
from measured.cells import GIB, rounded
from measured.runs import repeated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measured.runs import Run


def against_one_gpu(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Step time, throughput and memory beside those of one GPU with the same batch a GPU: means over repeated runs."""
    strategies = ("single", "pytorch_ddp", "pytorch_ddp_bf16", "pytorch_zero2", "pytorch_zero3")
    labels = [f"{strategy}{more}" for strategy in strategies for more in ("_2_gpus", "", "_4_gpus", "_ga")]
    by_label = repeated(runs)
    by_label = {label: by_label[label] for label in labels if label in by_label}
    if "single" not in by_label:
        return
    base_ms = _mean_ms(by_label["single"])
    replicated = by_label.get("pytorch_ddp", by_label["single"])[0].peak_gib()
    for own in by_label.values():
        first, step_ms = own[0], _mean_ms(own)
        facts, micro_steps = first.facts, first.facts["batch"]["grad_accum"]
        speed_up = facts["batch"]["tokens_per_step"] / by_label["single"][0].facts["batch"]["tokens_per_step"]
        speed_up *= base_ms / step_ms
        yield {
            "run": facts["strategy"] + (f", {micro_steps} micro-steps" if micro_steps > 1 else ""),
            "GPUs": facts["world_size"],
            "runs": len(own),
            "step ms": rounded(step_ms, 1),
            "± std": _std_ms(own),
            "step against one GPU %": rounded(100 * (step_ms / base_ms - 1), 1),
            "tokens/s": f"{facts['batch']['tokens_per_step'] / step_ms * 1e3:,.0f}",
            "speed-up": rounded(speed_up, 2),
            "scaling efficiency %": rounded(100 * speed_up / facts["world_size"], 1),
            "expected state GiB": rounded(sum(v for k, v in facts["expected"][0].items() if k != "rank") / GIB, 1),
            "peak allocated GiB": rounded(first.peak_gib(), 1),
            "peak reserved GiB": rounded(first.peak_gib("reserved"), 1),
            "against DDP %": replicated and rounded(100 * (first.peak_gib() / replicated - 1), 1),
        }


def _mean_ms(runs: list[Run]) -> float:
    return statistics.fmean(run.step_ms for run in runs if run.step_ms)


def _std_ms(runs: list[Run]) -> float | None:
    """Sample standard deviation of the runs' mean steps; one run has none."""
    return rounded(statistics.stdev(run.step_ms for run in runs if run.step_ms), 1) if len(runs) > 1 else None


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


def over_runs(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Throughput of runs that differ in their seed or host: mean, standard deviation, each value; peaks by rank."""
    for label, own in repeated(runs).items():
        if len(own) < 2 or not own[0].facts["batch"]:
            continue
        rates = [run.facts["batch"]["global_batch"] / run.step_ms * 1e3 for run in own if run.step_ms]
        peaks = zip(*([rank["peak_allocated_bytes"] / GIB for rank in run.facts["memory"]] for run in own), strict=True)
        yield {
            "run": label,
            "GPUs": own[0].facts["world_size"],
            "runs": len(own),
            "samples/s": f"{statistics.fmean(rates):,.0f} ± {statistics.stdev(rates):,.0f}",
            "each": " ".join(f"{rate:,.0f}" for rate in rates),
            "peak GiB by rank": " ".join(f"{statistics.fmean(one):.1f} ± {statistics.stdev(one):.1f}" for one in peaks),
        }
