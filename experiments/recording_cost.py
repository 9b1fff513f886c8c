"""What recording takes the hosts: `python experiments/recording_cost.py profile/pairs docs/results/recording.csv`.

For each job that `record_pairs.py` left: the recorded step, the step replayed without the cost of recording (least,
typical and most), and the median of its steps without a profiler.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from replayed import replay_of, write_rows

from traceanalyzer.analyses.replay.changes import LEAST, MOST, TYPICAL, Change

if TYPE_CHECKING:
    from collections.abc import Iterator


def main() -> None:
    """Replay every job, print and write the table."""
    folder, target = map(Path, sys.argv[1:3])
    rows = [row for steps in sorted(folder.glob("*/steps.json")) for row in _rows(steps)]
    write_rows(rows, target)


def _rows(steps: Path) -> Iterator[dict[str, Any]]:
    """One row for each side of a pair."""
    for side, times in json.loads(steps.read_text()).items():
        replay = replay_of(steps.parent / side)
        scenarios = [(Change("profiler", cost),) for cost in (LEAST, TYPICAL, MOST)]
        recorded, least, typical, most = replay.engine.steps([(), *scenarios]).mean(axis=0) / 1e6
        without = median(times) / 1e6
        yield {
            "job": f"{steps.parent.name} {side}",
            "recorded_ms": f"{recorded:.1f}",
            "least_ms": f"{least:.1f}",
            "typical_ms": f"{typical:.1f}",
            "most_ms": f"{most:.1f}",
            "unprofiled_ms": f"{without:.1f}",
            "miss_recorded_pct": f"{100 * (recorded / without - 1):+.1f}",
            "miss_typical_pct": f"{100 * (typical / without - 1):+.1f}",
        }


if __name__ == "__main__":
    main()
