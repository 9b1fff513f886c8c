"""Which calls of two ranks belong together, within one process group.

First by NCCL's sequence number when both ranks have it, else by the step and the position in it. That is
verified step by step; calls for which it fails are matched by the time of their ends, at the offset that the
verified calls, else a vote, agree on.
"""

from dataclasses import dataclass, replace

import numpy as np

from traceanalyzer.analyses.communication.equal_keys import equal_keys
from traceanalyzer.analyses.communication.offset_vote import BIN_NS, vote
from traceanalyzer.model.schema import NONE

LEAST_UNCERTAINTY_NS = 30_000
"""Ranks of one host, whose clock is the same, show medians of ends of up to 29 µs."""

METHODS = ("sequence", "step and position", "offset", "order between others")
"""How a pair is found, surest first."""

BY_SEQUENCE, BY_STEP, BY_TIME, BY_ORDER = range(len(METHODS))

_AGREEING = 0.9
"""Share of a block's calls that must end within a bin of the offset for the block to be verified."""

_FAR_NS = 4 * BIN_NS
"""Ends of a synchronising call are not that far apart (in real captures at most 110 µs)."""

_MOST_DRIFT = 1e-4
"""Clocks that are further apart a second are no clocks: the candidates are wrong."""

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
        may_end_early: sends, which may end long before their receives do: NCCL buffers them (seen up to 25 MB).
    """

    end_ns: np.ndarray
    signature: np.ndarray
    step: np.ndarray
    sequence: np.ndarray
    is_synchronising: np.ndarray
    may_end_early: bool = False

    def __len__(self) -> int:
        return len(self.end_ns)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Pairs of positions, in order, and how each was found.

    Attributes:
        left: positions in the left list.
        right: positions in the right list.
        method: of each pair the position in `METHODS`.
        offset_ns: left clock minus right clock; `None` when nothing synchronises.
        is_ambiguous: two offsets had nearly the same number of votes.
    """

    left: np.ndarray
    right: np.ndarray
    method: np.ndarray
    offset_ns: int | None
    is_ambiguous: bool = False


def align(left: CallList, right: CallList, offset_ns: int | None = None) -> Alignment:
    """Match two ranks' calls; those without a partner are in no pair.

    `offset_ns` is that of the ranks' clocks where other calls of theirs told it.
    """
    if _are_apart(left, right):
        none = np.empty(0, dtype=np.int64)
        return Alignment(none, none, none, None)
    pairs, block, method = _candidates(left, right)
    told_ns = offset_ns
    is_verified, offset_ns = _verified(left, right, pairs, block, method, told_ns)
    if not _are_enough(is_verified):
        steady = _without_drift(left, right, pairs)
        is_verified_so, offset_so_ns = _verified(steady, right, pairs, block, method, told_ns)
        if _are_enough(is_verified_so):
            left, is_verified, offset_ns = steady, is_verified_so, offset_so_ns
    pairs, is_ambiguous = pairs[is_verified], False
    if not _are_enough(is_verified):
        # Without a decision what is verified stays, and nothing is added to it.
        decided = _voted(left, right)
        if decided is None:
            offset_ns = None
        else:
            (offset_ns, is_ambiguous), pairs = decided, pairs[:0]
    methods = np.full(len(pairs), method, dtype=np.int64)
    if offset_ns is not None:
        pairs, methods = _extended(left, right, pairs, methods, offset_ns)
    return Alignment(pairs[:, 0], pairs[:, 1], methods, offset_ns, is_ambiguous)


def _are_apart(left: CallList, right: CallList) -> bool:
    """Whether the ranks were recorded one after the other: no step in common, no moment, no sequence that tells."""
    steps, others = (side.step[side.step != NONE] for side in (left, right))
    if not len(steps) or not len(others) or np.isin(steps, others).any():
        return False
    if (left.sequence != NONE).all() and (right.sequence != NONE).all():
        return False
    return bool(left.end_ns.min() > right.end_ns.max() or right.end_ns.min() > left.end_ns.max())


def _are_enough(is_verified: np.ndarray) -> bool:
    """Whether at least half of the candidates are verified."""
    return bool(is_verified.any() and 2 * is_verified.sum() >= len(is_verified))


def _without_drift(left: CallList, right: CallList, pairs: np.ndarray) -> CallList:
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


def _candidates(left: CallList, right: CallList) -> tuple[np.ndarray, np.ndarray, int]:
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


def _verified(
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
    is_near = np.abs(difference - (offset_ns or 0)) <= BIN_NS
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
    decided = _voted(left, right) if left.may_end_early else None
    if decided is not None and not (decided[1] and len(differences)):
        return decided[0]
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


def _voted(left: CallList, right: CallList) -> tuple[int, bool] | None:
    """Offset by vote and whether it is ambiguous; `None` when too few pairs agree on any."""
    sides = [(side.end_ns[side.is_synchronising], side.signature[side.is_synchronising]) for side in (left, right)]
    result = vote(*sides[0], *sides[1])
    if result is None or result.votes < max(_LEAST_SHARE * result.voters, min(_LEAST_VOTES, result.voters)):
        return None
    return result.offset_ns, result.is_ambiguous


def _extended(
    left: CallList, right: CallList, pairs: np.ndarray, methods: np.ndarray, offset_ns: int
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs, and those that the offset shows for the calls that are left over."""
    by_time = _nearest(left, right, pairs, offset_ns)
    pairs, methods = _with(pairs, methods, by_time, BY_TIME)
    in_gaps = _in_gaps(left, right, pairs, offset_ns)
    return _with(pairs, methods, in_gaps, BY_ORDER)


def _with(pairs: np.ndarray, methods: np.ndarray, more: np.ndarray, method: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.concatenate([pairs, more])
    order = np.argsort(pairs[:, 0], kind="stable")
    return pairs[order], np.append(methods, np.full(len(more), method, dtype=np.int64))[order]


def _nearest(left: CallList, right: CallList, pairs: np.ndarray, offset_ns: int) -> np.ndarray:
    """Synchronising calls that are each other's nearest in time, within a bin, and compatible."""
    rows, cols = (_left_over(side, pairs[:, column]) for column, side in enumerate((left, right)))
    rows, cols = rows[left.is_synchronising[rows]], cols[right.is_synchronising[cols]]
    if not len(rows) or not len(cols):
        return np.empty((0, 2), dtype=np.int64)
    ends, others = left.end_ns[rows] - offset_ns, right.end_ns[cols]
    there, back = _closest(ends, others), _closest(others, ends)
    is_pair = (back[there] == np.arange(len(rows))) & (np.abs(ends - others[there]) <= BIN_NS)
    found = np.stack([rows, cols[there]], axis=1)[is_pair]
    found = found[left.signature[found[:, 0]] == right.signature[found[:, 1]]]
    return _not_crossing(found, pairs)


def _left_over(side: CallList, taken: np.ndarray) -> np.ndarray:
    is_free = np.ones(len(side), dtype=bool)
    is_free[taken] = False
    return np.flatnonzero(is_free)


def _closest(times: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Position in `others` of the nearest to each time; ends are nearly sorted, so sort first."""
    order = np.argsort(others, kind="stable")
    ordered = others[order]
    after = np.minimum(np.searchsorted(ordered, times), len(ordered) - 1)
    before = np.maximum(after - 1, 0)
    is_before_nearer = np.abs(times - ordered[before]) <= np.abs(ordered[after] - times)
    return order[np.where(is_before_nearer, before, after)]


def _not_crossing(found: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Pairs that keep the order of the given ones: a group's calls run in the same order on all ranks."""
    if not len(pairs):
        return found
    gaps = [np.searchsorted(np.sort(pairs[:, column]), found[:, column]) for column in (0, 1)]
    kept: np.ndarray = found[gaps[0] == gaps[1]]
    return kept


def _in_gaps(left: CallList, right: CallList, pairs: np.ndarray, offset_ns: int) -> np.ndarray:
    """Calls between two matched ones, when both ranks have the same ones there.

    Ends of those that synchronise must still be near: each rank may have lost another call of the gap. A send that
    may end early must not end later than its receive.
    """
    if len(pairs) < 2:
        return np.empty((0, 2), dtype=np.int64)
    free = [_left_over(side, pairs[:, column]) for column, side in enumerate((left, right))]
    gaps = [np.searchsorted(np.sort(pairs[:, column]), rows) for column, rows in enumerate(free)]
    between = [(gap > 0) & (gap < len(pairs)) for gap in gaps]
    free, gaps = ([part[mask] for part, mask in zip(side, between, strict=True)] for side in (free, gaps))
    inside = equal_keys(gaps[0], gaps[1])
    found = np.stack([free[0][inside[:, 0]], free[1][inside[:, 1]]], axis=1)
    gap = gaps[0][inside[:, 0]]
    later_ns = left.end_ns[found[:, 0]] - right.end_ns[found[:, 1]] - offset_ns
    is_far = (later_ns if left.may_end_early else np.abs(later_ns)) > _FAR_NS
    is_far &= left.is_synchronising[found[:, 0]] & right.is_synchronising[found[:, 1]]
    differing = is_far | (left.signature[found[:, 0]] != right.signature[found[:, 1]])
    counts = [np.bincount(side, minlength=len(pairs)) for side in gaps]
    is_bad = (counts[0] != counts[1]) | (np.bincount(gap[differing], minlength=len(pairs)) > 0)
    kept: np.ndarray = found[~is_bad[gap]]
    return kept
