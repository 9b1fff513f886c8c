"""Balance and bubble of pipelines, and whether the times of one split predict another."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, Any

from measured.cells import GIB, MS, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measured.runs import Run


def pipeline(run: Run) -> dict[str, Any]:
    """Throughput of a pipeline, and the balance and bubble of its capture if there is one."""
    parallel = run.facts["parallel"]
    if parallel["pp"] in {None, 1}:
        return {}
    peaks = [rank["peak_allocated_bytes"] / GIB for rank in run.facts["memory"]]
    row = {
        "run": run.name,
        "stages": parallel["pp"],
        "split": ",".join(map(str, parallel["split"] or [])),
        "microbatches": parallel["microbatches"],
        "step ms": rounded(run.step_ms, 1),
        "samples/s": run.step_ms and rounded(run.facts["batch"]["global_batch"] / run.step_ms * 1e3, 0),
        "peak GiB by stage": " ".join(f"{peak:.1f}" for peak in peaks),
        "memory CV": rounded(statistics.pstdev(peaks) / statistics.fmean(peaks), 3),
    }
    stages, whole = run.table("pipeline"), run.table("pipelines")
    if stages.empty:
        return row
    steps = stages["steps"].iloc[0]
    return row | {
        "compute ms by stage": " ".join(f"{ns / steps / MS:.1f}" for ns in stages["compute_ns"]),
        "compute CV": rounded(whole["compute_cv"].iloc[0], 3),
        "bubble %": rounded(whole["bubble_pct"].iloc[0], 1),
        "expected %": rounded(whole["expected_bubble_pct"].iloc[0], 1),
    }


def by_split(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Compute of every stage as the even split's capture predicts it, beside what the split's own capture says.

    A block takes what the blocks before the last stage take on average; what else the last stage computes is the
    output head and the loss, which no split moves.
    """
    captured = {run.name: run for run in runs if len(run.table("pipeline"))}
    for name, even in captured.items():
        if not re.fullmatch(r"pp_\d_stages", name):
            continue
        blocks, stages_ms = _split(even), _stages_ms(even)
        block_ms = sum(stages_ms[:-1]) / sum(blocks[:-1])
        head_ms = stages_ms[-1] - blocks[-1] * block_ms
        for run in (other for other in captured.values() if other.name.startswith(name)):
            predicted = [count * block_ms for count in _split(run)]
            predicted[-1] += head_ms
            yield {
                "split": ",".join(map(str, _split(run))),
                "head in blocks": rounded(head_ms / block_ms, 1),
                "predicted ms by stage": "" if run is even else " ".join(f"{ms:.0f}" for ms in predicted),
                "measured": " ".join(f"{ms:.0f}" for ms in _stages_ms(run)),
                "longest off by %": None if run is even else _off_pct(max(predicted), max(_stages_ms(run))),
                "step ms": rounded(run.step_ms, 1),
                "against even %": run.step_ms and even.step_ms and _off_pct(run.step_ms, even.step_ms),
            }


def _split(run: Run) -> list[int]:
    split: list[int] = run.facts["parallel"]["split"]
    return split


def _stages_ms(run: Run) -> list[float]:
    """Compute of a step, by stage."""
    stages = run.table("pipeline").sort_values("stage")
    return [float(ms) for ms in stages["compute_ns"] / stages["steps"] / MS]


def _off_pct(value: float, base: float) -> float | None:
    return rounded(100 * (value / base - 1), 1)
