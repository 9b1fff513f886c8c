"""A pipeline's step forecast from a recording under another schedule, beside the recording under that one.

python experiments/schedule_pairs.py docs/results/schedules.csv NAME=FOLDER NAME=FOLDER … + NAME=FOLDER …

Every folder up to a `+` is a capture of the same model and microbatches; each is forecast from each other, where its
name is a schedule that `--schedule` takes, with stages a rank such as `gpipe:2` where they are not the usual ones.
Steps without a profiler: see `unprofiled_ms`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replayed import of_unprofiled, results_of, unprofiled_ms, write_rows

from traceanalyzer.analyses.replay.changes import ORDERS, Change
from traceanalyzer.findings.what_if import answer, needed

if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> None:
    """Forecast all, print and write the table."""
    target, *given = sys.argv[1:]
    jobs_of = [own.split() for own in " ".join(given).split(" + ")]
    write_rows([row for own in jobs_of for row in _rows(own)], Path(target))


def _rows(given: Sequence[str]) -> list[dict[str, Any]]:
    """Of captures of one model."""
    folders = {name: Path(folder) for name, folder in (text.split("=", 1) for text in given)}
    jobs = {name: results_of(folder, needed([Change("schedule", "1f1b")])) for name, folder in folders.items()}
    return [
        _row(before, after, jobs, folders[after])
        for after in jobs
        if after.partition(":")[0] in ORDERS
        for before in jobs
        if before != after
    ]


def _row(before: str, after: str, jobs: dict[str, Any], folder: Path) -> dict[str, Any]:
    found = answer(jobs[before], [Change("schedule", after)])
    assert found.schedule is not None
    engine = jobs[after]["replay"].engine
    (before_ns, after_ns), *_ = found.schedule.steps_ns
    happened = engine.steps(engine.costs[:1]).mean()
    return {
        "recorded": before,
        "asked": after,
        "recorded_ms": round(before_ns / 1e6, 2),
        "error_ms": round(found.error_ns / 1e6, 2),
        "forecast_ms": round(after_ns / 1e6, 2),
        "happened_ms": round(happened / 1e6, 2),
        "miss_pct": round(100 * (after_ns / happened - 1), 1),
        **of_unprofiled(found, unprofiled_ms(folder)),
    }


if __name__ == "__main__":
    main()
