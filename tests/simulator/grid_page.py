"""The page about the grid of simulated jobs: how many are right, and what is wrong; a table of all rows.

    python -m tests.simulator.grid_page docs/results [N]

writes `simulated_grid.md` and `simulated_grid.csv`: half an hour of a core. With N only every Nth job.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.simulator.grid import GRID, HOW, WHEN
from tests.simulator.grid_jobs import STRATEGIES
from tests.simulator.scoreboard import Judged, judged
from tests.simulator.table import cells

COLUMNS = ("job", "truth", "blamed", "saves, ms", "true, ms", "right", "first finding")

_HEAD = """\
# Simulated jobs whose fault is known

Made by `python -m tests.simulator.grid_page docs/results`; every row is in [simulated_grid.csv](simulated_grid.csv).

Eight strategies, each with every fault, on one rank, a node, half of the ranks, alternating ranks, once; and recorded in other ways: only
the last step, one complete step, a missing or cut file, no steps, a corrected clock. *Chain*: one rank computes longer, another
one's CPU is slow. *Right*: the first finding blames the ranks at fault, in the right steps, for the right cause, its interval
contains the true saving (5% tolerance), and no other rank is blamed.
"""


def write(folder: Path, results: Iterable[Judged], of: int) -> None:
    """Write both files; rows in order of the grid, which has so many."""
    rows = {one.case.name: [*cells(one), "; ".join(one.wrong)] for one in results}
    with (folder / "simulated_grid.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*COLUMNS, "wrong"])
        table.writerows(rows.values())
    (folder / "simulated_grid.md").write_text(page(rows, of))


def page(rows: dict[str, list[str]], of: int) -> str:
    """The page."""
    right = sum(row[5] == "yes" for row in rows.values())
    wrong = [row for row in rows.values() if row[5] != "yes"]
    judged_rows = "all" if len(rows) == of else f"a sample of {len(rows)} of"
    parts = [
        _HEAD,
        f"{right} of {len(rows)} are right ({judged_rows} {of} jobs).",
        "",
        *_matrix(rows),
        "",
        "## Wrong",
        "",
    ]
    parts += [f"* {row[0]}: {row[7]}. Report: {row[6]}" for row in wrong] or ["Nothing."]
    return "\n".join(parts) + "\n"


def _matrix(rows: dict[str, list[str]]) -> list[str]:
    head = f"| fault | {' | '.join(strategy.name for strategy in STRATEGIES)} |"
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


if __name__ == "__main__":
    every = int(sys.argv[2]) if sys.argv[2:] else 1
    write(Path(sys.argv[1]), map(judged, GRID[::every]), len(GRID))
