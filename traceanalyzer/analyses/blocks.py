"""How large tables are gone through: so many rows at once that what is needed on the way stays small.

Only what comes of a block is kept; what is open at its end is taken along to the next, so that no figure depends on it.
"""

from collections.abc import Iterator, Sequence

import numpy as np

MOST_ROWS = 1 << 15
"""Rows of a table that are gone through at once."""


def row_blocks(count: int) -> Iterator[slice]:
    """Rows of a table of so many, block after block; one block, if empty, of a table without."""
    for first in range(0, max(count, 1), MOST_ROWS):
        yield slice(first, min(first + MOST_ROWS, count))


def time_blocks(times: Sequence[np.ndarray]) -> Iterator[tuple[list[slice], int | None]]:
    """Rows of several tables, whose ascending times these are, from one moment to the next, and that moment.

    Each table has at most `MOST_ROWS` of them in a block, unless more are of one time; rows of one time are in one
    block. `None` stands for the end.
    """
    cuts = np.unique(np.concatenate([own[MOST_ROWS::MOST_ROWS] for own in times]))
    edges = [np.concatenate([[0], own.searchsorted(cuts), [len(own)]]).tolist() for own in times]
    for place, until in enumerate([*cuts.tolist(), None]):
        yield [slice(own[place], own[place + 1]) for own in edges], until
