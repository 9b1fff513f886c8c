"""Columns of whole numbers as bytes for a page: runs of unsigned LEB128 numbers."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blocks import row_blocks
from traceanalyzer.analyses.grouping import rows_of_each


def varints(values: np.ndarray) -> bytes:
    """Unsigned LEB128 of each value, one after the other.

    Raises:
        ValueError: a value is negative.
    """
    if len(values) and values.min() < 0:
        raise ValueError("only values from 0 have an unsigned code")
    return b"".join(_block(values[rows].astype(np.int64)) for rows in row_blocks(len(values)))


def _block(numbers: np.ndarray) -> bytes:
    most = max(1, -(-int(numbers.max(initial=0)).bit_length() // 7))
    if most == 1:
        return numbers.astype(np.uint8).tobytes()
    lengths = np.ones(len(numbers), dtype=np.int64)
    for place in range(1, most):
        lengths += (numbers >> (7 * place)) > 0
    ends = np.cumsum(lengths)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    for place in range(most):
        held = lengths > place
        more = np.where(lengths[held] > place + 1, 128, 0)
        out[ends[held] - lengths[held] + place] = ((numbers[held] >> (7 * place)) & 127) | more
    return out.tobytes()


def narrow(values: np.ndarray) -> np.ndarray:
    """The same numbers, from 0, in half the memory where they fit."""
    return values.astype(np.uint32) if values.max(initial=0) < 1 << 32 and values.min(initial=0) >= 0 else values


def or_zero(values: pd.Series) -> np.ndarray:
    """One more than each value, 0 where it is absent."""
    numbers: np.ndarray = (values.astype("Int64") + 1).fillna(0).to_numpy(dtype=np.int64)
    return numbers


def rows_of_ranks(ranks: pd.Series) -> dict[int, np.ndarray]:
    """Positions of each rank's rows, as they come."""
    values = ranks.to_numpy(dtype=np.int64)
    return {int(values[own[0]]): own for own in rows_of_each(values)}


def steps_of(values: np.ndarray) -> np.ndarray:
    """Each value less the one before it; the first is 0."""
    made: np.ndarray = np.diff(values, prepend=values[:1])
    return made


def signed(values: np.ndarray) -> np.ndarray:
    """Values of either sign as such from 0: 0, -1, 1, -2, 2, … become 0, 1, 2, 3, 4, …."""
    made: np.ndarray = np.where(values < 0, -2 * values - 1, 2 * values)
    return made
