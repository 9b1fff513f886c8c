"""Which calls of two ranks belong together, within one process group.

First by NCCL's sequence number when both ranks have it, else by the step and the position in it. That is
verified step by step; calls for which it fails are matched by the time of their ends, at the offset that the
verified calls, else a vote, agree on.
"""

import numpy as np
from msgspec import Struct

from traceanalyzer.analyses.communication.candidates import (
    BY_ORDER,
    BY_STEP,
    BY_TIME,
    CallList,
    are_enough,
    candidates,
    is_refuted,
    near_pairs,
    verified,
    voted,
    without_drift,
)
from traceanalyzer.analyses.communication.equal_keys import equal_keys
from traceanalyzer.analyses.communication.offset_vote import BIN_NS
from traceanalyzer.model.schema import NONE

LEAST_UNCERTAINTY_NS = 30_000
"""Ranks of one host, whose clock is the same, show medians of ends of up to 29 µs."""

_FAR_NS = 4 * BIN_NS
"""Ends of a synchronising call are not that far apart (in real captures mostly less than 110 µs), but for long ones,
which are near enough to be matched by time."""


class Alignment(Struct, frozen=True):
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
    pairs, block, method = candidates(left, right)
    told_ns = offset_ns
    is_verified, offset_ns = verified(left, right, pairs, block, method, told_ns)
    if not are_enough(is_verified):
        steady = without_drift(left, right, pairs)
        is_verified_so, offset_so_ns = verified(steady, right, pairs, block, method, told_ns)
        if are_enough(is_verified_so):
            left, is_verified, offset_ns = steady, is_verified_so, offset_so_ns
    is_wrong = method == BY_STEP and told_ns is None and is_refuted(left, right, is_verified, offset_ns)
    pairs, is_ambiguous = pairs[is_verified], False
    if is_wrong or not are_enough(is_verified):
        # Without a decision what is verified stays, and nothing is added to it.
        decided = voted(left, right)
        if decided is None:
            offset_ns = None
        else:
            offset_ns, is_ambiguous, pairs = decided.offset_ns, decided.is_ambiguous, pairs[:0]
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
    """Synchronising calls that are each other's nearest in time, as near as ends are, and compatible."""
    rows, cols = (_left_over(side, pairs[:, column]) for column, side in enumerate((left, right)))
    rows, cols = rows[left.is_synchronising[rows]], cols[right.is_synchronising[cols]]
    if not len(rows) or not len(cols):
        return np.empty((0, 2), dtype=np.int64)
    ends, others = left.end_ns[rows] - offset_ns, right.end_ns[cols]
    there, back = _closest(ends, others), _closest(others, ends)
    near_ns = near_pairs(left, right, rows, cols[there])
    is_pair = (back[there] == np.arange(len(rows))) & (np.abs(ends - others[there]) <= near_ns)
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
