"""Which clock offset two ranks' calls agree on, when counting them from either end would mismatch.

Every compatible pair of synchronising calls (same operation, dtype, sizes) votes for the difference of its
ends. The true pairs agree on one difference, whatever was cut or lost; all others scatter.
"""

import numpy as np
from msgspec import Struct

BIN_NS = 50_000
"""Width of a bin of differences."""

AMBIGUOUS_SHARE = 0.9
"""A runner-up with this share of the winner's votes makes the vote ambiguous."""

_PEAK_NS = BIN_NS // 5
"""From one call to the next its ends differ on two ranks by less, but for some."""

_MOST_PAIRS = 1_000_000
_DENSE_BINS = 20_000_000


class Vote(Struct, frozen=True):
    """Outcome of a vote.

    Attributes:
        offset_ns: median difference (left end − right end) of the pairs in the winning bin; where these are more than
            each call once, for calls come closer than a bin is wide, of those where they lie densest there.
        votes: pairs in it.
        voters: calls of the side with fewer voters: the most that a bin of true pairs can hold.
        width_ns: of a bin.
        is_ambiguous: another bin has 90 % of the winner's votes.
    """

    offset_ns: int
    votes: int
    voters: int
    width_ns: int
    is_ambiguous: bool


def vote(
    left_ends: np.ndarray,
    left_signatures: np.ndarray,
    right_ends: np.ndarray,
    right_signatures: np.ndarray,
    width_ns: int = BIN_NS,
) -> Vote | None:
    """The offset between two lists of synchronising calls; `None` when no pair is compatible.

    Bins are 50 µs wide, if not told, and begin at every half of that, so that a cluster at a bin's edge is not split in
    two. Beyond a million pairs an even sample of the left calls votes, which keeps the cost near-linear.
    """
    left, right = _compatible_pairs(left_signatures, right_signatures)
    if not len(left):
        return None
    differences = left_ends[left] - right_ends[right]
    half_ns = width_ns // 2
    bins, counts = _bins(differences, half_ns)
    winner = int(np.argmax(counts))
    others = counts[np.abs(bins - bins[winner]) > 3]
    runner_up = int(others.max()) if len(others) else 0
    start, width = bins[winner] * half_ns, 2 * half_ns
    agreeing = differences[(differences >= start) & (differences < start + width)]
    voters = min(len(np.unique(left)), len(np.unique(right)))
    near = differences[(differences >= start - half_ns) & (differences < start + width + half_ns)]
    return Vote(
        offset_ns=int(np.median(agreeing if len(agreeing) <= voters else _densest(near))),
        votes=len(agreeing),
        voters=voters,
        width_ns=width_ns,
        is_ambiguous=runner_up >= AMBIGUOUS_SHARE * len(agreeing),
    )


def _densest(differences: np.ndarray) -> np.ndarray:
    """Those that most others are near to: true pairs agree closely, pairs with the call before or behind scatter."""
    ordered = np.sort(differences)
    count = np.searchsorted(ordered, ordered + _PEAK_NS, side="right") - np.arange(len(ordered))
    first = int(count.argmax())
    return ordered[first : first + int(count[first])]


def _compatible_pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (left, right) of all pairs with equal signatures, an even sample of the left ones if many."""
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right[order], left, side="left")
    partners = np.searchsorted(right[order], left, side="right") - first
    voters = np.flatnonzero(partners)
    stride = -(-int(partners.sum()) // _MOST_PAIRS)
    voters = voters[:: max(stride, 1)]
    partners = partners[voters]
    begins = np.cumsum(partners) - partners
    within = np.arange(int(partners.sum())) - np.repeat(begins, partners)
    return np.repeat(voters, partners), order[np.repeat(first[voters], partners) + within]


def _bins(differences: np.ndarray, half_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Bins that begin at each half bin near a difference, and how many differences each holds."""
    half = differences // half_ns
    low, high = int(half.min()) - 1, int(half.max()) + 1
    if high - low < _DENSE_BINS:
        counts = np.bincount(half - low, minlength=high - low + 1)
        return np.arange(low, high), counts[:-1] + counts[1:]
    held, counts = np.unique(half, return_counts=True)
    bins = np.unique(np.concatenate([held - 1, held]))
    return bins, _count_of(held, counts, bins) + _count_of(held, counts, bins + 1)


def _count_of(held: np.ndarray, counts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    row = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    return np.where(held[row] == wanted, counts[row], 0)
