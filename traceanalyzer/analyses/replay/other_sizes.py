"""What a rank's kernels take alone, by those of a rank that runs the same program on a larger or smaller batch."""

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from traceanalyzer.analyses.replay.alone import ALIKE, LEAST_ALONE, Alone

LEAST_NS = 10_000
"""Shorter kernels take about as long at any size."""

_PARTS = re.compile(r"\d+|[^\d\s]")


def of_other_size(own: Alone, other: Alone, own_code: np.ndarray, code: np.ndarray) -> np.ndarray:
    """For each of a rank's kernels what it takes alone, scaled from the other rank's; NaN where that isn't told.

    Kernels at the same places of the program are the same. One whose shapes differ in one dimension, by whatever
    factor, takes as many times as long: so do products of matrices, element-wise kernels, and attention over more
    sequences. Over longer sequences attention takes longer still; the shorter one is then thought slower than it is.
    By how much the kernels that both ranks run alone are off that, the others are, too; where those disagree nothing
    is told.

    Args:
        own: the rank's kernels.
        other: the other rank's.
        own_code: the kernels of the rank's operations that are matched.
        code: those of the other rank's.
    """
    found = np.full(len(own.works), np.nan)
    mine, theirs = _pairs(own_code, code, len(other.works))
    alone_ns, other_ns = own.medians[mine], other.medians[theirs]
    ratio = [larger(own.shapes[a], other.shapes[b]) for a, b in zip(mine, theirs, strict=True)]
    scaled = other_ns * np.array(ratio, dtype=float)
    is_long = scaled >= LEAST_NS
    off = alone_ns[is_long] / scaled[is_long]
    off = off[~np.isnan(off)]
    if len(off) < LEAST_ALONE:
        return found
    low, middle, high = np.quantile(off, [0.25, 0.5, 0.75])
    if high <= ALIKE * low:
        found[mine] = np.where(is_long, scaled * middle, np.nan)
    return found


def filled(known: np.ndarray, wanted: np.ndarray, told: Sequence[np.ndarray]) -> np.ndarray:
    """The known times, and of the wanted ones the median of what is told by several ranks."""
    rows = np.stack([known, *told])[1:]
    wanted = wanted & ~np.isnan(rows).all(axis=0)
    found = known.copy()
    found[wanted] = np.nanmedian(rows[:, wanted], axis=0)
    return found


def _pairs(own_code: np.ndarray, code: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Each own kernel with the one that most of its operations are matched with."""
    pair, counts = np.unique(own_code * size + code, return_counts=True)
    pair = pair[np.argsort(-counts, kind="stable")]
    mine = pair // size
    first = np.unique(mine, return_index=True)[1]
    return mine[first], pair[first] % size


@lru_cache(maxsize=4096)
def larger(shapes: str, others: str) -> float:
    """By which factor one dimension of these inputs is larger, wherever it stands; 1 of equal ones.

    NaN where several factors differ, or the shapes are of another form or not recorded.
    """
    own, other = _PARTS.findall(shapes), _PARTS.findall(others)
    if not own or len(own) != len(other):
        return float("nan")
    different = [(a, b) for a, b in zip(own, other, strict=True) if a != b]
    if not all(a.isdigit() and b.isdigit() and int(b) for a, b in different):
        return float("nan")
    factors = {int(a) / int(b) for a, b in different}
    return float("nan") if len(factors) > 1 else next(iter(factors), 1.0)
