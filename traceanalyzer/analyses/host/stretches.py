"""Nested intervals cut into disjoint stretches, block by block in order of time."""

import numpy as np

from traceanalyzer.analyses.grouping import stable_order
from traceanalyzer.model.plain import outer_first
from traceanalyzer.model.schema import NONE

_NONE = np.empty(0, dtype=np.int64)


class Cutter:
    """Cuts intervals that come in blocks, by their starts, into stretches with the label of the innermost one.

    Stretches inside none have the label -1; before the first and after the last interval there is none.
    """

    def __init__(self) -> None:
        self._open_ends = _NONE
        """Of the intervals that have begun and not ended, in order of start."""
        self._started = _NONE
        """By depth from the outermost on the label of the last interval that began at it."""
        self._last = (_NONE, _NONE)
        """The last cut and the label after it, if there was one."""

    def cut(
        self, starts: np.ndarray, ends: np.ndarray, labels: np.ndarray, until_ns: int | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts, ends and labels of the stretches up to the last start or end before `until_ns`, in `None` of all.

        Args:
            starts: of the intervals that begin before `until_ns` and in no block before.
            ends: theirs; all are later than the start.
            labels: theirs, from 0 on.
            until_ns: where the next block begins.
        """
        order = outer_first(starts, ends)
        starts, labels = starts[order], labels[order]
        reach = np.concatenate([self._open_ends, ends[order]])
        # At one time: ends before starts; outer starts first, inner ends first. A stable sort keeps this order.
        is_ended = np.ones(len(reach), dtype=bool) if until_ns is None else reach < until_ns
        ended = reach[is_ended][::-1]
        times = np.concatenate([ended, starts])
        order = np.argsort(times, kind="stable")
        is_start = order >= len(ended)
        begun = len(self._open_ends)
        depth = np.concatenate([np.arange(1, begun + 1), begun + np.cumsum(np.where(is_start, 1, -1))])
        label = np.concatenate([self._started, np.append(np.full(len(ended), NONE), labels)[order]])
        cuts = np.concatenate([self._last[0], times[order]])
        inner = np.concatenate([self._last[1], _last_started_at_depth(depth, label)[begun:]])
        self._open_ends, self._started = reach[~is_ended], _by_depth(depth, label, int((~is_ended).sum()))
        self._last = cuts[-1:], inner[-1:]
        held = cuts[1:] > cuts[:-1]
        return cuts[:-1][held], cuts[1:][held], inner[:-1][held]


def _last_started_at_depth(depth: np.ndarray, label: np.ndarray) -> np.ndarray:
    """After each event, the label of the last interval that was started at the depth that is left; -1 at depth 0."""
    order = stable_order(depth)
    started = np.where(label[order] != NONE, np.arange(len(order)), 0)
    last = np.maximum.accumulate(started)
    found = np.empty(len(order), dtype=np.int64)
    found[order] = label[order][last]
    return np.where(depth == 0, NONE, found)


def _by_depth(depth: np.ndarray, label: np.ndarray, deepest: int) -> np.ndarray:
    """The label that was started last at each depth from 1 on."""
    rows = np.flatnonzero((label != NONE) & (depth <= deepest))
    found = np.full(deepest, NONE, dtype=np.int64)
    found[depth[rows] - 1] = label[rows]
    return found
