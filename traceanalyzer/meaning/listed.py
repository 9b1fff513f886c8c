"""Several ranks, steps or names in a sentence."""

from collections.abc import Collection, Sequence
from itertools import pairwise

MOST_PIECES = 8
"""Of them as many are named; of the others how many there are."""


def numbered(noun: str, numbers: Collection[int], most: int = MOST_PIECES) -> str:
    """`rank 3`, `ranks 0 to 3 and 7`: which they are, with what they are."""
    return f"{noun}{'' if len(set(numbers)) == 1 else 's'} {listed(numbers, most)}"


def listed(numbers: Collection[int], most: int = MOST_PIECES) -> str:
    """`3`, `3 and 5`, `8 to 15`, `1, 4 and 7`, `0 to 3, 8 and 12 to 15`, `0, 8, 16 … 248`; of many pieces the first."""
    ordered = sorted(set(numbers))
    steps = {two - one for one, two in pairwise(ordered)}
    if len(ordered) > most and len(steps) == 1 and steps != {1}:
        return f"{ordered[0]}, {ordered[1]}, {ordered[2]} … {ordered[-1]}"
    return named([piece for run in _runs(ordered) for piece in _pieces(run)], most)


def lacking(expected: range | Collection[int], here: Collection[int]) -> str:
    """Which of the expected numbers are not here, as `listed`; a damaged file's range of billions costs no more."""
    if not isinstance(expected, range):
        return listed(set(expected).difference(here))
    ends = [expected.start - 1, *sorted(number for number in here if number in expected), expected.stop]
    runs = [range(before + 1, after) for before, after in pairwise(ends)]
    return named([piece for run in runs for piece in _pieces(run)])


def part_of(count: int, total: int, noun: str, plural: str | None = None) -> str:
    """How a sentence about some of them begins: `3 of 17 calls`, `All 1,310 calls`, `The only call`."""
    if total == 1:
        return f"The only {noun}"
    of_them = f"{total:,} {plural or noun + 's'}"
    return f"All {of_them}" if count == total else f"{count:,} of {of_them}"


def named(names: Sequence[str], most: int = MOST_PIECES) -> str:
    """`b00`, `b00 and b03`, `b00, b03 and b07`; of many the first, and how many more there are; `none`."""
    more = len(names) - most
    *first, last = [*names[:most], f"{more} more"] if more > 0 else names or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def _runs(ordered: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in ordered:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _pieces(run: Sequence[int]) -> list[str]:
    return [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run]
