"""How often measured savings lie inside their intervals: `python experiments/calibration.py FOLDER… docs/results/x.md`.

For each pair in the folders (of `record_pairs.py`) the job recorded with the fault is replayed without it, as
a finding does, and the interval stands beside the measured saving: the step without a profiler before and after.
Once with an estimated profiler overhead, once with the step time measured without the profiler.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from replayed import results_of, unprofiled_ms
from what_if_pairs import CHANGES, sides

from traceanalyzer.analyses.replay.changes import RUN_TO_RUN, read_change
from traceanalyzer.analyses.replay.what_if import answer
from traceanalyzer.findings.savings import Question, savings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Interval = tuple[float, float]

MISSES = "## The misses\n"
"""Text below this heading stays when the page is made again."""


@dataclass(frozen=True, slots=True)
class Row:
    """One pair in ms: what was measured, and its intervals by how they are made."""

    name: str
    change: str
    before: float
    measured: float
    intervals: dict[str, Interval]

    def holds(self, how: str, noise: float = 0.0) -> bool:
        """Whether the interval holds what was measured, but for a part of the step."""
        low, high = self.intervals[how]
        return low - noise * self.before <= self.measured <= high + noise * self.before


def main() -> None:
    """Ask of every pair that was recorded, print and write the page."""
    *folders, target = map(Path, sys.argv[1:])
    rows = [row for number, folder in enumerate(folders, 1) for name in CHANGES for row in _rows(number, folder, name)]
    page = "\n".join(_page(rows))
    kept = target.read_text(encoding="utf-8").partition(MISSES)[2] if target.is_file() else ""
    target.write_text(f"{page}\n\n{MISSES}{kept}", encoding="utf-8")
    print(page)


def _rows(number: int, folder: Path, name: str) -> Iterator[Row]:
    before, after = sides(folder, name)
    before_ms, after_ms = unprofiled_ms(before), unprofiled_ms(after)
    if not before.is_dir() or before_ms is None or after_ms is None:
        return
    changes = tuple(map(read_change, CHANGES[name]))
    results = results_of(before, ("replay",))
    engine = results["replay"].engine
    given = answer(results, changes).unprofiled_gains_ns
    estimated = savings_of(engine, [Question(changes)])[0]
    engine.solve_overhead(before_ms * 1e6)
    solved = savings_of(engine, [Question(changes)])[0]
    ends = {"what-if": given or (0, 0)} | {
        how: (saves.low_ns, saves.high_ns) for how, saves in (("estimated", estimated), ("known step", solved))
    }
    intervals = {how: (low / 1e6, high / 1e6) for how, (low, high) in ends.items()}
    yield Row(f"{number} {name}", ", ".join(CHANGES[name]), before_ms, max(0.0, before_ms - after_ms), intervals)


def _page(rows: Sequence[Row]) -> Iterator[str]:
    hows = [*rows[0].intervals]
    yield "# Calibration of savings\n"
    yield (
        f"{len(rows)} pairs of jobs on two H100s, recorded with a fault, and timed without a profiler "
        "before and after its removal (one run of each side). Times are ms/step without a profiler.\n"
    )
    yield "* *what-if*: the range that `what-if` prints, from the profiler overhead alone."
    yield "* *estimated*: the interval of a finding."
    yield "* *known step*: the same with `--unprofiled-step` before the fix."
    yield (
        f"* *noise*: inside, or outside by less than {100 * RUN_TO_RUN:.0f}% of the step, which is how much runs of "
        "one job differ. Bold: outside by more. Italics: outside by less.\n"
    )
    yield "| | " + " | ".join(hows) + " |"
    yield "|---|" + "---|" * len(hows)
    for what, noise in (("inside", 0.0), ("inside, or noise", RUN_TO_RUN)):
        counts = [sum(row.holds(how, noise) for row in rows) for how in hows]
        yield f"| {what} | {' | '.join(f'{count} of {len(rows)}' for count in counts)} |"
    yield "| median width / middle | " + " | ".join(f"{_width(rows, how):.2f}" for how in hows) + " |\n"
    yield "| pair | change | before | measured | " + " | ".join(hows) + " |"
    yield "|---|---|---|---|" + "---|" * len(hows)
    for row in rows:
        cells = [_cell(row, how) for how in hows]
        yield f"| {row.name} | `{row.change}` | {row.before:.1f} | {row.measured:.1f} | {' | '.join(cells)} |"


def _cell(row: Row, how: str) -> str:
    low, high = row.intervals[how]
    text = f"{low:.1f} to {high:.1f}"
    return text if row.holds(how) else f"*{text}*" if row.holds(how, RUN_TO_RUN) else f"**{text}**"


def _width(rows: Sequence[Row], how: str) -> float:
    """Median over the pairs that save at least 1% of a step of the interval's width by its middle."""
    known = [row.intervals[how] for row in rows if row.intervals[how][1] >= 0.01 * row.before]
    return median(2 * (high - low) / (high + low) for low, high in known) if known else 0.0


if __name__ == "__main__":
    main()
