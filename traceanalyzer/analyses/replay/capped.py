"""Lengths of which the longest are cut until each group's sum is what is wanted."""

import numpy as np


def capped(ns: np.ndarray, key: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """No length of a group exceeds the level at which they sum to `wanted[key]`; unchanged where they sum to less.

    Rows of key -1 belong to no group.
    """
    rows = np.flatnonzero(key >= 0)
    order = rows[_by_key(key[rows], ns[rows])]
    cut = ns.copy()
    if not len(order):
        return cut
    held, of = ns[order], key[order]
    starts = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    counts = np.diff(np.append(starts, len(of)))
    before = np.cumsum(held) - held
    below = before - np.repeat(before[starts], counts)
    longer = np.repeat(starts + counts, counts) - np.arange(len(of))
    level = (wanted[of] - below) / longer
    # From the first length that is above its level on, all are cut to that level.
    place = np.minimum.reduceat(np.where(level <= held, np.arange(len(of)), len(of)), starts)
    first = np.repeat(np.append(level, np.inf)[place], counts)
    cut[order] = np.round(np.minimum(held, np.maximum(first, 0))).astype(np.int64)
    return cut


def _by_key(key: np.ndarray, ns: np.ndarray) -> np.ndarray:
    """Places in order of key, then of length; of the same ones in any."""
    longest = int(ns.max(initial=0)) + 1
    if ns.min(initial=0) < 0 or longest > _MOST // (int(key.max(initial=0)) + 1):
        return np.lexsort((ns, key))
    return np.argsort(key * longest + ns)  # one search for an order takes half as long as two


_MOST = 2**62
"""Of an integer."""
