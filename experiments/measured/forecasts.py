"""What the replay of one run said of a change, beside the run that makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from measured.cells import MS, rounded

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
