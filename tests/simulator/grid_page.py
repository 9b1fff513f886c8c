"""The page about the grid of simulated jobs: how many are right, what is wrong, what is impossible; a table of all rows.

    python -m tests.simulator.grid_page docs/results

writes `simulated_grid.md` and `simulated_grid.csv`: half an hour of a core.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.simulator.grid import GRID, HOW, WHEN, Place, impossible, places
from tests.simulator.grid_jobs import STRATEGIES
from tests.simulator.scoreboard import Judged, judged
from tests.simulator.table import cells

COLUMNS = ("job", "truth", "blamed", "gain said", "true gain", "right", "first line")

_HEAD = """\
# A grid of simulated jobs whose fault is known

Made by `python -m tests.simulator.grid_page docs/results`; every row is in [simulated_grid.csv](simulated_grid.csv).

Every strategy below meets every way to be late, by one rank, a node (two of six ranks, on a host of their own), half of
the ranks, in turn, once; and the same fault of one rank is recorded in other ways: from the step on in which it happens,
in the last step, with one complete step, without another rank's file or its own, with a file that is cut off, without
steps, with a clock that is set in between. *Chain* is a rank that computes longer before another one whose host is late.
A job runs with its fault, is written as the profiler's files of its ranks, read back and reported; run again without the
fault it tells the *true gain* of a mean step (without steps, or with a file that is cut off, of the capture). *Right* are
who is blamed first, in which steps, by what, the name of what ran, and a gain within 5 % (within the replay's error, or
as the bound that it is said to be); nobody else may be blamed anywhere in the report. In the last step, which no mean
holds, and beside an optimizer on the CPU, what is true of every step may be said before.
"""


def write(folder: Path, results: Iterable[Judged]) -> None:
    """Write both files; rows in order of the grid."""
    rows = {one.case.name: [*cells(one), "; ".join(one.wrong)] for one in results}
    with (folder / "simulated_grid.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*COLUMNS, "wrong"])
        table.writerows(rows.values())
    (folder / "simulated_grid.md").write_text(page(rows))


def page(rows: dict[str, list[str]]) -> str:
    """The page."""
    right = sum(row[5] == "yes" for row in rows.values())
    wrong = [row for row in rows.values() if row[5] != "yes"]
    parts = [_HEAD, f"{right} of {len(rows)} rows are right.", "", *_matrix(rows), "", "## What is wrong", ""]
    parts += [f"* {row[0]}: {row[7]}. Said: {row[6]}" for row in wrong] or ["Nothing."]
    return "\n".join([*parts, "", "## What there is not", "", *_reasons()]) + "\n"


def _matrix(rows: dict[str, list[str]]) -> list[str]:
    head = f"| late by | {' | '.join(strategy.name for strategy in STRATEGIES)} |"
    lines = [head, f"|---|{'---|' * len(STRATEGIES)}"]
    for how in HOW:
        counts = [
            [rows[name][5] == "yes" for name in _names(strategy.name, how) if name in rows] for strategy in STRATEGIES
        ]
        lines.append(f"| {how} | {' | '.join(_count(own) for own in counts)} |")
    return lines


def _names(strategy: str, how: str) -> list[str]:
    return [f"{strategy}, {how}, {when}" for when in WHEN]


def _count(right: Sequence[bool]) -> str:
    return f"{sum(right)} of {len(right)}" if right else "none"


def _reasons() -> list[str]:
    found: dict[str, list[Place]] = {}
    for place in places():
        reason = impossible(place)
        if reason:
            found.setdefault(reason, []).append(place)
    return [f"* {_where(held)}: {reason}." for reason, held in found.items()]


def _where(held: Sequence[Place]) -> str:
    strategies, hows, whens = (
        list(dict.fromkeys(values))
        for values in ([it.strategy.name for it in held], [it.how for it in held], [it.when for it in held])
    )
    when = "" if len(whens) == len(WHEN) else f", {' and '.join(whens)}"
    return f"{', '.join(strategies)}; {' and '.join(hows)}{when}"


if __name__ == "__main__":
    write(Path(sys.argv[1]), map(judged, GRID))
