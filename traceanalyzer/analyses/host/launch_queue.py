"""How many launched GPU operations wait to start, at each time."""

import numpy as np
from msgspec import Struct

from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of


class Queue(Struct, frozen=True):
    """Depth of the launch queue inside a window as a step function: `depth[i]` holds from `times[i]` to `times[i+1]`.

    `times` begins and ends with the window's limits; there is one depth less than times. `lengths` is how long each
    depth holds, ns. Between the window's stretches both depth and length are 0.
    """

    times: np.ndarray
    depth: np.ndarray
    lengths: np.ndarray

    @property
    def waiting_ns(self) -> int:
        """Time integral of the depth: operations · ns."""
        return int((self.lengths * self.depth).sum())

    @property
    def empty_ns(self) -> int:
        """Time in which no launched operation waits."""
        return int(self.lengths[self.depth == 0].sum())

    def median(self) -> int:
        """Depth that is not exceeded in half of the time."""
        order = np.argsort(self.depth, kind="stable")
        half = np.searchsorted(np.cumsum(self.lengths[order]), self.lengths.sum() / 2)
        return int(self.depth[order][half])

    def binned(self, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Time integral of the depth inside each bin of the window, and the largest depth there."""
        at = self._at(starts)
        last = np.maximum(np.searchsorted(self.times, ends, side="left") - 1, at)
        bounds = np.stack([at, last + 1], axis=1).ravel()
        highest = np.maximum.reduceat(np.append(self.depth, 0), bounds)[::2]
        return self._integral(ends) - self._integral(starts), highest

    def _integral(self, times: np.ndarray) -> np.ndarray:
        """Time integral of the depth from the window's start."""
        at = self._at(times)
        before = np.concatenate([[0], np.cumsum(self.lengths * self.depth)])[at]
        integral: np.ndarray = before + (times - self.times[at]) * self.depth[at]
        return integral

    def _at(self, times: np.ndarray) -> np.ndarray:
        return np.clip(np.searchsorted(self.times, times, side="right") - 1, 0, len(self.depth) - 1)


def launch_queue(trace: RankTrace) -> Queue:
    """The queue over the rank's window.

    An operation joins when the call that launched it returns and leaves when it starts; one that starts sooner
    never waits. Operations without a recorded launch are not in it, so it can only be longer than shown.
    """
    joins, leaves = waiting(trace)
    window = trace.window
    start, end = window.start_ns, window.end_ns
    limits = np.concatenate([window.starts, window.ends])
    times = np.concatenate([np.clip(joins, start, end), np.clip(leaves, start, end), limits])
    change = np.concatenate([np.ones(len(joins)), -np.ones(len(leaves)), np.zeros(len(limits))]).astype(np.int64)
    distinct, position = np.unique(times, return_inverse=True)
    depth = np.cumsum(np.bincount(position, weights=change, minlength=len(distinct)).astype(np.int64))
    is_inside = window.holds(distinct[:-1])
    return Queue(distinct, depth[:-1] * is_inside, np.diff(distinct) * is_inside)


def waiting(trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
    """When each operation with a launch joins the queue and leaves it."""
    launch = array_of(trace.gpu_ops, "launch")
    held = launch != NONE
    leaves = array_of(trace.gpu_ops, "start_ns")[held]
    returned = array_of(trace.api_calls, "end_ns")[launch[held]]
    return np.minimum(returned, leaves), leaves
