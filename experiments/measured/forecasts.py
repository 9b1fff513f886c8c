"""What the replay of one run said of a change or of more GPUs, beside the run that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from measured.cells import MS, rounded
from measured.runs import repeated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measured.runs import Run


def forecast(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Steps under the profiler: recorded, forecast with the change, and of the run that has it; then without."""
    named = {run.name: run for run in runs}
    for run in runs:
        for row in run.table("forecasts").to_dict("records"):
            other = named.get(row["after"])
            if other is None or not other.is_analysed:
                continue
            happened_ns = other.table("headline")["step_mean_ns"].mean()
            yield {
                "change": f"{run.name} → {other.name}",
                "asked": f"`{row['asked']}`",
                "recorded ms": rounded(row["before_ns"] / MS, 1),
                "forecast ms": rounded(row["after_ns"] / MS, 1),
                "happened ms": rounded(happened_ns / MS, 1),
                "miss %": rounded(100 * (row["after_ns"] / happened_ns - 1), 1),
                "un-profiled before ms": rounded(run.step_ms, 1),
                "after ms": rounded(other.step_ms, 1),
            }


def projected(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """The step that `tools project` expected on more GPUs, from a run's capture, beside runs on as many."""
    by_label = repeated(runs)
    for run in runs:
        for row in run.table("projection").to_dict("records"):
            others = [
                each.step_ms
                for own in by_label.values()
                for each in own
                if each.facts["strategy"] == run.facts["strategy"]
                and each.facts["world_size"] == row["ranks"] != run.facts["world_size"]
                and each.facts["batch"]["micro_batch"] == run.facts["batch"]["micro_batch"]
            ]
            if others:
                low_ms, high_ms = row["step_low_ns"] / MS, row["step_high_ns"] / MS
                yield {
                    "run": run.name,
                    "GPUs": f"{run.facts['world_size']} → {row['ranks']:.0f}",
                    "step ms": rounded(run.step_ms, 1),
                    "expected ms": f"{low_ms:.1f} to {high_ms:.1f}",
                    "measured ms": " ".join(f"{ms:.1f}" for ms in others),
                    "inside": "yes" if all(low_ms <= ms <= high_ms for ms in others) else "no",
                }
