"""Blocks that live over steps: what is allocated in every step and never freed."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.snapshots.reading import Snapshot
from traceanalyzer.snapshots.sites import site

PARTS = 8
"""Equal parts of the recorded time, where no steps are marked."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A site whose blocks pile up.

    Attributes:
        site: where they are allocated.
        blocks: how many are alive at the end.
        size_bytes: what these take.
        per_step_bytes: mean over the steps in which such blocks were left.
        steps: steps in which such blocks were left.
        of_steps: steps of the history.
        is_by_steps: whether steps were marked, or equal parts of the time stand in.
    """

    site: str
    blocks: int
    size_bytes: int
    per_step_bytes: int
    steps: int
    of_steps: int
    is_by_steps: bool


_LEAST_SHARE, _LEAST_BYTES = 0.6, 1 << 20
"""Of the steps in which a site leaves blocks, and of what it leaves in all."""


def growths(snapshot: Snapshot, lives: pd.DataFrame) -> list[Growth]:
    """Sites that left blocks alive in most steps of the history, most bytes first."""
    bounds, is_by_steps = step_bounds(snapshot)
    left = lives[(lives["died"] == len(snapshot.history)) & (lives["born"] >= 0)]
    if len(bounds) < 3 or left.empty:
        return []
    times = snapshot.history["time_ns"].to_numpy()[left["born"].to_numpy()]
    table = left.assign(
        step=np.searchsorted(bounds, times, side="right"),
        site=left["stack"].map({number: site(snapshot.stacks[number]) for number in set(left["stack"])}),
    )
    of_steps = len(bounds)
    made = []
    for name, own in table.groupby("site"):
        steps, total = own["step"].nunique(), int(own["size_bytes"].sum())
        if steps >= max(3, _LEAST_SHARE * of_steps) and total >= _LEAST_BYTES:
            made.append(Growth(str(name), len(own), total, round(total / steps), steps, of_steps, is_by_steps))
    return sorted(made, key=lambda one: -one.size_bytes)


def step_bounds(snapshot: Snapshot) -> tuple[np.ndarray, bool]:
    """Times at which steps end: the optimizer's, where PyTorch marked them, else equal parts of the time."""
    marks = snapshot.annotations
    steps = marks[(marks["stage"] == "START") & marks["name"].str.startswith("Optimizer.step")]["time_ns"].to_numpy()
    if len(steps) >= 3:
        return np.sort(steps), True
    times = snapshot.history["time_ns"].to_numpy()
    if len(times) < 2:
        return np.array([], "int64"), False
    return np.linspace(times[0], times[-1], PARTS + 1).astype("int64")[1:], False
