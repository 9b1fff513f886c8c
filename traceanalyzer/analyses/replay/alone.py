"""What kernels take without communication beside them."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of

LEAST_ALONE = 3
"""So many runs of a kernel without communication beside it tell its own speed."""

ALIKE = 1.25
"""Times the lower quartile: runs of one kernel whose upper quartile is longer are of unlike work."""

BESIDE = 0.5
"""A kernel runs beside communication for at least this share of its time, or it doesn't."""

_NEVER = np.iinfo(np.int64).max // 2


class Alone:
    """One rank's operations by the work that they do (`same_work`).

    Attributes:
        works: the numbers of what they do, in order; -1 stands for all of which it is not known.
        code: of each operation the position of its work.
        shapes: of each work the shapes of the operator's inputs; empty where they are absent.
        medians: of each work the median of its runs without communication beside them; NaN of fewer than three, of
            unlike ones, and where the work is not known.
    """

    def __init__(self, ops: pd.DataFrame) -> None:
        starts, lengths = array_of(ops, "start_ns"), array_of(ops, "duration_ns")
        comm = is_any(ops["kind"], "comm")
        beside = Intervals.of(starts[comm], (starts + lengths)[comm]).covered_ns(starts, starts + lengths)
        self._is_beside = (beside >= BESIDE * lengths) & ~comm & (lengths > 0)
        self.works, first, self.code = np.unique(array_of(ops, "work"), return_index=True, return_inverse=True)
        shapes = column_of(ops, "shapes")
        self.shapes = np.array([*shapes.categories, ""], dtype=object)[shapes.codes[first]]
        runs = np.flatnonzero((beside == 0) & ~comm)
        groups = Groups.of_numbers(self.code[runs])
        is_told = (groups.counts() >= LEAST_ALONE) & _are_alike(groups, lengths[runs])
        is_told &= self.works[self.code[runs[groups.first]]] != NONE
        self.medians = np.full(len(self.works), np.nan)
        self.medians[self.code[runs[groups.first]][is_told]] = groups.medians(lengths[runs])[is_told]

    @property
    def are_beside(self) -> np.ndarray:
        """Of each kernel whether any of its runs is beside communication."""
        return np.bincount(self.code[self._is_beside], minlength=len(self.works)) > 0

    def lengths_ns(self, medians: np.ndarray | None = None) -> np.ndarray:
        """For each operation the median time of its kernel when no communication runs beside it.

        Without limit for operations that do not run beside communication, or of which too few runs are alone.
        `medians`, one for each kernel, are those of the rank itself, unless given.
        """
        typical = self.medians if medians is None else medians
        of_op = np.where(np.isnan(typical), _NEVER, typical)[self.code] if len(typical) else np.empty(len(self.code))
        found: np.ndarray = np.round(np.where(self._is_beside, of_op, _NEVER)).astype(np.int64)
        return found


def _are_alike(groups: Groups, lengths: np.ndarray) -> np.ndarray:
    """Whether a kernel's runs take about as long: else its name, grid and shapes do not tell how much it does."""
    counts = groups.counts()
    ordered = lengths[np.lexsort((lengths, groups.of_row))]
    begins = np.cumsum(counts) - counts
    low, high = (ordered[begins + (counts - 1) * quarter // 4] for quarter in (1, 3))
    alike: np.ndarray = high <= ALIKE * low
    return alike


def of_peers(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """A rank's medians, by kernel, with its peers' (a row each) for kernels that it never runs alone.

    Those are scaled by what kernels that both run alone take longer on the rank: GPUs are not equally fast.
    """
    if not (np.isnan(own) & ~np.isnan(others).all(axis=0)).any():
        return own
    ratio = np.divide(own, others, out=np.full(others.shape, np.nan), where=others != 0)
    is_known = ~np.isnan(ratio).all(axis=1)
    scaled = others[is_known] * np.nanmedian(ratio[is_known], axis=1)[:, None]
    wanted = np.isnan(own) & ~np.isnan(scaled).all(axis=0)
    found = own.copy()
    found[wanted] = np.nanmedian(scaled[:, wanted], axis=0)
    return found
