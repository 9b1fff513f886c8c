"""A pipeline's step forecast from a recording under another schedule, beside the recording under that one.

python experiments/schedule_pairs.py docs/results/schedules.csv NAME=FOLDER NAME=FOLDER … + NAME=FOLDER …

Every folder up to a `+` is a capture of the same model and microbatches; each is forecast from each other, where its
name is a schedule that `--schedule` takes. Steps without a profiler are those that `plainN.json` beside the traces
(`step_ms`, the slowest rank's), or `steps.json` of a pair (`record_pairs.py`; the median), tells.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replayed import results_of, told

from traceanalyzer.analyses.replay.answer import answer, needed
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.schedule_orders import ORDERS

if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> None:
    """Forecast all, print and write the table."""
    target, *given = sys.argv[1:]
    jobs_of = [own.split() for own in " ".join(given).split(" + ")]
    told([row for own in jobs_of for row in _rows(own)], Path(target))


def _rows(given: Sequence[str]) -> list[dict[str, Any]]:
    """Of captures of one model."""
    folders = {name: Path(folder) for name, folder in (text.split("=", 1) for text in given)}
    jobs = {name: results_of(folder, needed([Change("schedule", "1f1b")])) for name, folder in folders.items()}
    return [
        _row(before, after, jobs, folders[after])
        for after in jobs
        if after in ORDERS
        for before in jobs
        if before != after
    ]


def _row(before: str, after: str, jobs: dict[str, Any], folder: Path) -> dict[str, Any]:
    gain = answer(jobs[before], [Change("schedule", after)]).gain
    happened = jobs[after]["replay"].engine.before_ns
    plain = _unprofiled_ms(folder)
    without = gain.unprofiled_ns[1] / 1e6 if gain.unprofiled_ns else None
    return {
        "recorded": before,
        "recorded_ms": round(gain.before_ns / 1e6, 2),
        "error_ms": round(gain.error_ns / 1e6, 2),
        "asked": after,
        "forecast_ms": round(gain.after_ns / 1e6, 2),
        "happened_ms": round(happened / 1e6, 2),
        "miss_pct": round(100 * (gain.after_ns / happened - 1), 1),
        "unprofiled_forecast_ms": "" if without is None else round(without, 2),
        "unprofiled_happened_ms": "" if plain is None else round(plain, 2),
        "unprofiled_miss_pct": round(100 * (without / plain - 1), 1) if plain and without else "",
    }


def _unprofiled_ms(folder: Path) -> float | None:
    plain = [json.loads(path.read_text(encoding="utf-8"))["step_ms"] for path in folder.glob("plain*.json")]
    if plain:
        return float(max(plain))
    pair = folder.parent / "steps.json"
    if not pair.is_file():
        return None
    times = sorted(json.loads(pair.read_text(encoding="utf-8"))[folder.name])
    return float(times[len(times) // 2]) / 1e6


if __name__ == "__main__":
    main()
