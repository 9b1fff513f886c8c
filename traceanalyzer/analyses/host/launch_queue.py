"""How many launched GPU operations wait to start, at each time."""

from dataclasses import dataclass

import numpy as np

from traceanalyzer.model import RankTrace
from traceanalyzer.schema import NONE


@dataclass(frozen=True, slots=True)
class Queue:
    """Depth of the launch queue inside a window as a step function: `depth[i]` holds from `times[i]` to `times[i+1]`.

    `times` begins and ends with the window's limits; there is one depth less than times.
    """

    times: np.ndarray
    depth: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """How long each depth holds, ns."""
        return np.diff(self.times)

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
        half = np.searchsorted(np.cumsum(self.lengths[order]), (self.times[-1] - self.times[0]) / 2)
        return int(self.depth[order][half])

    def binned(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Time integral of the depth between each two edges, and the largest depth there."""
        integral = np.concatenate([[0], np.cumsum(self.lengths * self.depth)])
        at = np.clip(np.searchsorted(self.times, edges, side="right") - 1, 0, len(self.depth) - 1)
        before = integral[at] + (edges - self.times[at]) * self.depth[at]
        last = np.maximum(np.searchsorted(self.times, edges[1:], side="left") - 1, at[:-1])
        bounds = np.stack([at[:-1], last + 1], axis=1).ravel()
        highest = np.maximum.reduceat(np.append(self.depth, 0), bounds)[::2]
        return np.diff(before), highest


def launch_queue(trace: RankTrace) -> Queue:
    """The queue over the rank's window.

    An operation joins when the call that launched it returns and leaves when it starts; one that starts sooner
    never waits. Operations without a recorded launch are not in it, so it can only be longer than shown.
    """
    joins, leaves = waiting(trace)
    window = trace.window
    start, end = window.start_ns, window.end_ns
    times = np.concatenate([np.clip(joins, start, end), np.clip(leaves, start, end), [start, end]])
    change = np.concatenate([np.ones(len(joins)), -np.ones(len(leaves)), [0, 0]]).astype(np.int64)
    distinct, position = np.unique(times, return_inverse=True)
    depth = np.cumsum(np.bincount(position, weights=change, minlength=len(distinct)).astype(np.int64))
    return Queue(distinct, depth[:-1])


def waiting(trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
    """When each operation with a launch joins the queue and leaves it."""
    launch = trace.gpu_ops["launch"].to_numpy()
    held = launch != NONE
    leaves = trace.gpu_ops["start_ns"].to_numpy()[held]
    returned = trace.api_calls["end_ns"].to_numpy()[launch[held]]
    return np.minimum(returned, leaves), leaves
