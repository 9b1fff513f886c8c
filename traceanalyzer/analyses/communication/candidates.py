"""Pairs of two ranks' calls by number, and whether their ends bear them out."""

from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.analyses.communication.equal_keys import equal_keys
from traceanalyzer.analyses.communication.offset_vote import BIN_NS, Vote, vote
from traceanalyzer.model.schema import NONE

METHODS = ("sequence", "step and position", "offset", "order between others")
"""How a pair is found, surest first."""

BY_SEQUENCE, BY_STEP, BY_TIME, BY_ORDER = range(len(METHODS))

_AGREEING = 0.9
"""Share of a block's calls that must end within a bin of the offset for the block to be verified."""

_MOST_DRIFT = 1e-4
"""Clocks that are further apart a second are no clocks: the candidates are wrong."""

_MORE = 1.1
"""Times the verified pairs, from which on the votes for another offset count for more."""

_LEAST_SHARE, _LEAST_VOTES = 0.25, 4
"""A vote decides nothing when fewer of the possible pairs agree: three of a dozen do so by chance."""


@dataclass(frozen=True, slots=True)
class CallList:
    """Calls of one rank in one group, in order of time; arrays of one length.

    Attributes:
        end_ns: ends, on the rank's own clock.
        signature: calls can only belong together when these are equal.
        step: step number, -1 for none.
        sequence: NCCL's sequence number, -1 for none.
        is_synchronising: its ends are the same moment on both ranks.
        near_ns: how far apart these may be: half of the shortest such call, which its neighbours are not as near as,
            and a bin at least. Ends of large all-reduces beside compute were seen 160 µs off the clocks' offset.
        may_end_early: sends, which may end long before their receives do: NCCL buffers them (seen up to 25 MB).
    """

    end_ns: np.ndarray
    signature: np.ndarray
    step: np.ndarray
    sequence: np.ndarray
    is_synchronising: np.ndarray
    near_ns: np.ndarray
    may_end_early: bool = False

    def __len__(self) -> int:
        return len(self.end_ns)


def near_of(lengths_ns: np.ndarray, signature: np.ndarray) -> np.ndarray:
    """How far apart the ends of calls of these lengths may be on two ranks, by the shortest of a signature."""
    kinds, code = np.unique(signature, return_inverse=True)
    shortest = np.full(len(kinds), np.iinfo(np.int64).max)
    np.minimum.at(shortest, code, lengths_ns)
    near_ns: np.ndarray = np.maximum(shortest // 2, BIN_NS)[code]
    return near_ns


def near_pairs(left: CallList, right: CallList, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """The same of pairs: the less of both sides, one of which may have waited in each of its calls."""
    near_ns: np.ndarray = np.minimum(left.near_ns[rows], right.near_ns[cols])
    return near_ns


def are_enough(is_verified: np.ndarray) -> bool:
    """Whether at least half of the candidates are verified."""
    return bool(is_verified.any() and 2 * is_verified.sum() >= len(is_verified))


def is_refuted(left: CallList, right: CallList, is_verified: np.ndarray, offset_ns: int | None) -> bool:
    """Whether far more calls agree on another offset than steps of one number are verified.

    A rank whose numbers are one higher looks right where all steps are as long: the one that is not tells.
    """
    if is_verified.all() or not are_enough(is_verified) or offset_ns is None:
        return False
    decided = voted(left, right)
    if decided is None or decided.is_ambiguous or abs(decided.offset_ns - offset_ns) <= decided.width_ns:
        return False
    return decided.votes > _MORE * int(is_verified.sum())


def without_drift(left: CallList, right: CallList, pairs: np.ndarray) -> CallList:
    """The left calls on a clock that runs as fast as the right one, if the candidates suggest a credible drift.

    Clocks of two hosts may drift apart by tens of µs a second, more than a bin in a long capture.
    """
    rows, cols = pairs[left.is_synchronising[pairs[:, 0]] & right.is_synchronising[pairs[:, 1]]].T
    third = len(rows) // 3
    if not third:
        return left
    ends = left.end_ns[rows]
    difference = ends - right.end_ns[cols]
    first, last = (slice(third), slice(-third, None))
    length = np.median(ends[last]) - np.median(ends[first])
    rate = (np.median(difference[last]) - np.median(difference[first])) / max(length, 1)
    if abs(rate) > _MOST_DRIFT:
        return left
    shift = np.round(rate * (left.end_ns - np.median(ends))).astype(np.int64)
    return replace(left, end_ns=left.end_ns - shift)


def candidates(left: CallList, right: CallList) -> tuple[np.ndarray, np.ndarray, int]:
    """Pairs by sequence number, else by step and position; the block (step) of each; how they were found."""
    if len(left) and len(right) and (left.sequence != NONE).all() and (right.sequence != NONE).all():
        pairs = equal_keys(left.sequence, right.sequence)
        return pairs, left.step[pairs[:, 0]], BY_SEQUENCE
    pairs = equal_keys(left.step, right.step)
    if not (left.is_synchronising.any() and right.is_synchronising.any()):
        # Nothing but their order and number can tell: calls outside steps are one more block.
        return pairs, left.step[pairs[:, 0]], BY_STEP
    pairs = pairs[left.step[pairs[:, 0]] != NONE]
    return pairs, left.step[pairs[:, 0]], BY_STEP


def verified(
    left: CallList, right: CallList, pairs: np.ndarray, block: np.ndarray, method: int, told_ns: int | None
) -> tuple[np.ndarray, int | None]:
    """Mask of the pairs whose whole step agrees in signatures and ends; their offset, `told_ns` where that is given.

    Positions in a step also need the same number of calls on both ranks, which sequence numbers do not. A step
    without synchronising calls is verified by signatures and number alone.
    """
    if not len(pairs):
        return np.zeros(0, dtype=bool), None
    rows, cols = pairs.T
    is_same = left.signature[rows] == right.signature[cols]
    synchronises = left.is_synchronising[rows] & right.is_synchronising[cols]
    difference = left.end_ns[rows] - right.end_ns[cols]
    offset_ns = _offset(left, right, difference[synchronises & is_same]) if told_ns is None else told_ns
    is_near = np.abs(difference - (offset_ns or 0)) <= near_pairs(left, right, rows, cols)
    fits = is_near | (difference < (offset_ns or 0)) if left.may_end_early else is_near
    names, code = np.unique(block, return_inverse=True)
    calls, near, fitting = (
        np.bincount(code[synchronises & mask], minlength=len(names)) for mask in (np.True_, is_near, fits)
    )
    differing = np.bincount(code[~is_same], minlength=len(names))
    is_good = (fitting >= _AGREEING * calls) & (differing == 0)
    if told_ns is None:
        # Were a send taken for the one before it, all would seem early: some have to end with their receives.
        is_good &= near >= _LEAST_SHARE * calls
    if method == BY_STEP:
        is_good &= _same_number(left, right, names)
    return is_good[code], offset_ns


def _offset(left: CallList, right: CallList, differences: np.ndarray) -> int | None:
    """Left clock minus right clock; early ends would shift the median, not the vote.

    Where steps are as long as each other a vote cannot tell them apart: most of the candidates can.
    """
    decided = voted(left, right) if left.may_end_early else None
    if decided is not None and not (decided.is_ambiguous and len(differences)):
        return decided.offset_ns
    if decided is not None:
        ordered = np.sort(differences)
        near = np.searchsorted(ordered, ordered + BIN_NS, side="right") - np.arange(len(ordered))
        return int(np.median(ordered[near.argmax() :][: near.max()]))
    return int(np.median(differences)) if len(differences) else None


def _same_number(left: CallList, right: CallList, blocks: np.ndarray) -> np.ndarray:
    counts = [np.bincount(np.searchsorted(blocks, side.step[np.isin(side.step, blocks)]), minlength=len(blocks))
              for side in (left, right)]  # fmt: skip
    is_equal: np.ndarray = counts[0] == counts[1]
    return is_equal


def voted(left: CallList, right: CallList) -> Vote | None:
    """Offset by vote and whether it is ambiguous; `None` when too few pairs agree on any.

    Where bins of the usual width are hardly agreed on, in bins as wide as such calls' ends may be apart.
    """
    narrow = _voted(left, right, BIN_NS)
    if narrow is not None and not narrow.is_ambiguous and 2 * narrow.votes >= narrow.voters:
        return narrow
    apart = [side.near_ns[side.is_synchronising] for side in (left, right)]
    width_ns = 2 * int(min(np.median(each) for each in apart)) if all(map(len, apart)) else 0
    wide = _voted(left, right, width_ns) if width_ns > 2 * BIN_NS else None
    return narrow if wide is None or wide.is_ambiguous else wide


def _voted(left: CallList, right: CallList, width_ns: int) -> Vote | None:
    sides = [(side.end_ns[side.is_synchronising], side.signature[side.is_synchronising]) for side in (left, right)]
    result = vote(*sides[0], *sides[1], width_ns)
    if result is None or result.votes < max(_LEAST_SHARE * result.voters, min(_LEAST_VOTES, result.voters)):
        return None
    return result
