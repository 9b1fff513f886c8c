"""The table of all cases: truth, first line, blame and gain beside the true one: `python -m tests.simulator.table [name]`.

Without a name it prints a whole page; a slice such as `40:80` prints its rows.
"""

import sys
from collections.abc import Iterable, Iterator

from tests.simulator.case import Case
from tests.simulator.scoreboard import EVERY_CASE, Judged, judged
from traceanalyzer.meaning.columns import time_text

HEAD = """\
# Simulated jobs whose fault is known

Made by `python -m tests.simulator.table`. A simulated job runs with its fault, is written as
the profiler's files of its ranks, read back and reported; run again without the fault, it tells the *true gain* of a mean
step. *Right* are who is blamed first, in which steps, by what, the name of what ran, and a gain within 5 % (within the
replay's error, or as the bound that it is said to be); nobody else may be blamed. Of jobs without a fault the first line
may hold nobody to be late. Those of `tests/simulator/cases/drawn.py` have figures drawn at random.
A gain is not told of a step that no mean holds, nor where files are missing or cut.

| job | truth | blamed | gain said | true gain | right | first line |
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
    said = None if first is None or not truth.ranks else first.gain_ns
    bound = "at most " if first is not None and first.gain_is_bound else ""
    return [
        one.case.name,
        f"{_ranks(truth.ranks)}: {truth.cause}{_steps(truth.steps)}" if truth.ranks else "nobody",
        blamed,
        "" if said is None else f"{bound}{time_text(said)}",
        time_text(max(one.case.gain_ns(), 0)) if truth.ranks and truth.has_gain else "",
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
