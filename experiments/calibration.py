"""How often measured savings lie inside their intervals: `python experiments/calibration.py FOLDER… docs/results/x.md`.

For each pair in the folders (of `record_pairs.py`) the job recorded with the fault is replayed without it, and the
interval that a finding states stands beside the measured saving: the step without a profiler before and after. Once
with an estimated profiler overhead, once with the step time measured without the profiler.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

from replayed import replay_of, turns_ms
from what_if_pairs import CHANGES, sides

from traceanalyzer.analyses.replay.changes import RUN_TO_RUN, read_change
from traceanalyzer.findings.savings import LEAST_PCT, Question, Saves, savings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Interval = tuple[float, float]

HALF_OF = {
    ("comm free",): "transfers",
    ("collective all_gather=free",): "transfers",
    ("kernel elementwise=free",): "kernels",
}
"""Transfers that the pair overlaps with compute and kernels that it fuses: some of their time stays."""

MISSES = "## The misses\n"
"""Text below this heading stays when the page is made again."""


@dataclass(frozen=True, slots=True)
class Row:
    """One pair in ms: what was measured in each turn, ordered, and its intervals by how they are made."""

    name: str
    change: str
    before: float
    turns: tuple[float, ...]
    intervals: dict[str, Interval]

    @property
    def measured(self) -> float:
        """The median over turns; no fix saves less than nothing."""
        return max(0.0, median(self.turns))

    def holds(self, how: str, noise: float = 0.0) -> bool:
        """Whether the interval holds what was measured, but for a part of the step."""
        low, high = self.intervals[how]
        return low - noise * self.before <= self.measured <= high + noise * self.before

    def overlaps(self, how: str) -> bool:
        """Whether the interval holds anything between the least and the most that was measured."""
        low, high = self.intervals[how]
        return low <= max(0.0, self.turns[-1]) and max(0.0, self.turns[0]) <= high


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
    before_ms, after_ms = turns_ms(before), turns_ms(after)
    if not before.is_dir() or not before_ms or not after_ms:
        return
    engine = replay_of(before).engine
    assert engine is not None
    changes = tuple(map(read_change, CHANGES[name]))
    question = Question(changes, half_of=HALF_OF.get(CHANGES[name], ""))
    estimated = savings_of(engine, [question])[0]
    engine.solve_overhead(mean(before_ms) * 1e6)
    solved = savings_of(engine, [question])[0]
    turns = tuple(sorted(one - other for one, other in zip(before_ms, after_ms, strict=True)))
    intervals = {"estimated": _interval(estimated), "known step": _interval(solved)}
    yield Row(f"{number} {name}", ", ".join(CHANGES[name]), mean(before_ms), turns, intervals)


def _interval(saves: Saves) -> Interval:
    """As it is stated: a saving of which even the upper end is too small is none."""
    if saves.is_nothing:
        return 0.0, LEAST_PCT / 100 * saves.before_ns / 1e6
    return saves.low_ns / 1e6, saves.high_ns / 1e6


def _page(rows: Sequence[Row]) -> Iterator[str]:
    hows = [*rows[0].intervals]
    repeated = [row for row in rows if len(row.turns) > 1]
    yield "# Calibration of savings\n"
    yield (
        f"{len(rows)} pairs of jobs on H100s (pairs 4: four of them, others: two), recorded with a fault, and timed "
        f"without a profiler before and after its removal: {len(repeated)} of them in turns within one process, the "
        "others in one run of each side. Times are ms/step without a profiler.\n"
    )
    yield "* *estimated*: the interval of a finding; below 1% of a step it states that there is nothing to gain."
    yield "* *known step*: the same with `--unprofiled-step` before the fix."
    yield "* *measured*: the median over turns, with the least and the most of them."
    yield (
        "* *measured range overlaps*: of the pairs that took turns, those with the least or the most of them, or "
        "anything between, inside the interval."
    )
    yield (
        f"* *noise*: inside, or outside by less than {100 * RUN_TO_RUN:.0f}% of the step, which is how much runs of "
        "one job differ. Bold: outside by more. Italics: outside by less.\n"
    )
    yield "| | " + " | ".join(hows) + " |"
    yield "|---|" + "---|" * len(hows)
    for what, of, counts_in in (
        ("inside", rows, lambda row, how: row.holds(how)),
        ("inside, of those that took turns", repeated, lambda row, how: row.holds(how)),
        ("measured range overlaps", repeated, Row.overlaps),
        ("inside, or noise", rows, lambda row, how: row.holds(how, RUN_TO_RUN)),
    ):
        counts = [sum(counts_in(row, how) for row in of) for how in hows]
        yield f"| {what} | {' | '.join(f'{count} of {len(of)}' for count in counts)} |"
    yield "| median width / middle | " + " | ".join(f"{_width(rows, how):.2f}" for how in hows) + " |\n"
    yield "| pair | change | before | measured | " + " | ".join(hows) + " |"
    yield "|---|---|---|---|" + "---|" * len(hows)
    for row in rows:
        cells = [_cell(row, how) for how in hows]
        several = f" ({row.turns[0]:.1f} to {row.turns[-1]:.1f})" if len(row.turns) > 1 else ""
        measured = f"{row.measured:.1f}{several}"
        yield f"| {row.name} | `{row.change}` | {row.before:.1f} | {measured} | {' | '.join(cells)} |"


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
