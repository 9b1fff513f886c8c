"""The table of all cases: truth, first line, blame and gain beside the true one: `python -m tests.simulator.table [name]`.

Without a name it prints a whole page; a slice such as `40:80` prints its rows.
"""

import sys
from collections.abc import Iterable, Iterator

from tests.simulator.case import Case
from tests.simulator.scoreboard import EVERY_CASE, Judged, judged

HEAD = """\
# Simulated jobs whose fault is known

Made by `python -m tests.simulator.table`. A simulated job runs with its fault, is written as profiler files, read back and
reported. The same job without the fault gives the *true saving* per step. *Right*: the first finding blames these ranks, in
these steps, for this cause, its interval contains the true saving (5% tolerance), and no other rank is blamed. In jobs
without a fault no rank may be blamed.

| job | truth | blamed | saves, ms | true, ms | right | first finding |
|---|---|---|---|---|---|---|"""

_LONGEST = 170


def rows(cases: Iterable[Case]) -> Iterator[str]:
    """A row for each."""
    for case in cases:
        yield f"| {' | '.join(text.replace('|', '/') for text in cells(judged(case)))} |"


def cells(one: Judged) -> list[str]:
    """The row of one."""
    truth, first = one.case.truth, one.first
    blamed = "" if first is None or not first.ranks else f"{_ranks(first.ranks)}: {first.cause}"
    saves = None if first is None or not truth.ranks else first.saves
    return [
        one.case.name,
        f"{_ranks(truth.ranks)}: {truth.cause}{_steps(truth.steps)}" if truth.ranks else "nobody",
        blamed,
        "" if saves is None else f"{saves.low_ns / 1e6:.3g}–{saves.high_ns / 1e6:.3g}",
        f"{max(one.case.gain_ns(), 0) / 1e6:.3g}" if truth.ranks and truth.has_gain else "",
        "yes" if not one.wrong else "**no**",
        one.line if len(one.line) <= _LONGEST else f"{one.line[:_LONGEST]}…",
    ]


def _ranks(ranks: tuple[int, ...]) -> str:
    is_row = len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1))
    return f"{ranks[0]} to {ranks[-1]}" if is_row else ", ".join(map(str, ranks))


def _steps(steps: tuple[int, ...] | None) -> str:
    return "" if steps is None else f" in {_ranks(steps)}"


def main() -> None:
    """Print all rows, or those of cases whose name holds an argument, or a slice `40:80` of all."""
    asked = sys.argv[1:]
    begin, colon, end = asked[0].partition(":") if asked else ("", "", "")
    chosen = EVERY_CASE[int(begin or 0) : int(end) if end else None] if colon else EVERY_CASE
    if asked and not colon:
        chosen = tuple(case for case in EVERY_CASE if any(text in case.name for text in asked))
    if not asked:
        print(HEAD)
    for row in rows(chosen):
        print(row, flush=True)


if __name__ == "__main__":
    main()
