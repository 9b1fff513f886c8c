"""Whose requests made the allocator take more memory from the GPU, after the history's first half."""

from dataclasses import dataclass

import numpy as np

from traceanalyzer.snapshots.reading import Snapshot
from traceanalyzer.snapshots.sites import site

_TAKES, _GIVES_BACK = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


@dataclass(frozen=True, slots=True)
class Taken:
    """What one site's requests took in the second half of the recorded time.

    Attributes:
        site: who asked.
        times: how often none of the blocks that the allocator held would do.
        size_bytes: what it took from the GPU for them.
    """

    site: str
    times: int
    size_bytes: int


def taken_late(snapshot: Snapshot) -> tuple[Taken, ...]:
    """By site, most bytes first: the first steps of a run take what all steps need, and are left out."""
    history = snapshot.history
    times = history["time_ns"].to_numpy()
    if not len(times):
        return ()
    is_late = times > times[0] + (times[-1] - times[0]) // 2
    own = history[history["action"].isin(_TAKES).to_numpy() & is_late]
    names = np.array([site(snapshot.stacks[number]) for number in own["stack"]], dtype=object)
    made = [Taken(str(name), len(sizes), int(sizes.sum())) for name, sizes in own.groupby(names)["size_bytes"]]
    return tuple(sorted(made, key=lambda one: -one.size_bytes))


def gave_back(snapshot: Snapshot) -> bool:
    """Whether the allocator gave memory back to the GPU: it does so before it fails a request."""
    return bool(snapshot.history["action"].isin(_GIVES_BACK).any())
