"""The GPU time of a rank that is looked at: the whole capture, or stretches of it."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of


@dataclass(frozen=True, slots=True)
class Window:
    """The GPU time that is looked at, and its name for people."""

    stretches: tuple[tuple[int, int], ...]
    """Disjoint [start, end), in order: one, or several when the steps looked at do not follow each other."""
    label: str
    steps: tuple[int, ...] | None = None
    """Selected steps; `None` when the whole capture is looked at."""

    @property
    def start_ns(self) -> int:
        """Start of the first stretch."""
        return self.stretches[0][0]

    @property
    def end_ns(self) -> int:
        """End of the last stretch."""
        return self.stretches[-1][1]

    @property
    def starts(self) -> np.ndarray:
        """Start of each stretch."""
        return np.array([start for start, _ in self.stretches], dtype=np.int64)

    @property
    def ends(self) -> np.ndarray:
        """End of each stretch."""
        return np.array([end for _, end in self.stretches], dtype=np.int64)

    @property
    def length_ns(self) -> int:
        """Sum of the stretches."""
        return sum(end - start for start, end in self.stretches)

    def holds(self, times: np.ndarray) -> np.ndarray:
        """Mask of the times that lie in a stretch."""
        row = np.searchsorted(self.starts, times, side="right") - 1
        held: np.ndarray = (row >= 0) & (times < self.ends[row])
        return held

    def touched(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """For each interval the first stretch that it reaches into; -1 when it reaches into none."""
        row = np.searchsorted(self.ends, starts, side="right")
        begins = np.append(self.starts, np.iinfo(np.int64).max)[row]
        return np.where(begins < ends, row, NONE)


def whole_capture(gpu_ops: pd.DataFrame) -> Window:
    """First start to last end of the rank's GPU operations; empty at 0 without any."""
    if gpu_ops.empty:
        return Window(((0, 0),), "no GPU operations")
    return Window(
        ((int(array_of(gpu_ops, "start_ns").min()), int(array_of(gpu_ops, "end_ns").max())),), "whole capture"
    )
