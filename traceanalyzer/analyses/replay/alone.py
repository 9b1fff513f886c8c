"""What kernels take without communication beside them."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.time.intervals import Intervals

LEAST_ALONE = 3
"""So many runs of a kernel without communication beside it tell its own speed."""

BESIDE = 0.5
"""A kernel runs beside communication for at least this share of its time, or it doesn't."""

_NEVER = np.iinfo(np.int64).max // 2


class Alone:
    """One rank's operations by kernel and grid.

    Attributes:
        kernels: name and grid of each kernel; texts are empty where they are absent.
        code: of each operation the position of its kernel.
        medians: of each kernel the median of its runs without communication beside them; NaN of fewer than three.
    """

    def __init__(self, ops: pd.DataFrame) -> None:
        starts, lengths = ops["start_ns"].to_numpy(), ops["duration_ns"].to_numpy()
        comm = is_any(ops["kind"], "comm")
        beside = Intervals.of(starts[comm], (starts + lengths)[comm]).covered_ns(starts, starts + lengths)
        self._is_beside = (beside >= BESIDE * lengths) & ~comm & (lengths > 0)
        self.code, self.kernels = _kernels(ops)
        runs = np.flatnonzero((beside == 0) & ~comm)
        groups = Groups.of_numbers(self.code[runs])
        is_told = groups.counts() >= LEAST_ALONE
        self.medians = np.full(len(self.kernels), np.nan)
        self.medians[self.code[runs[groups.first]][is_told]] = groups.medians(lengths[runs])[is_told]

    def lengths_ns(self, medians: np.ndarray | None = None) -> np.ndarray:
        """For each operation the median time of its kernel when no communication runs beside it.

        Without limit for operations that do not run beside communication, or of which too few runs are alone.
        `medians`, one for each kernel, are those of the rank itself, unless given.
        """
        typical = self.medians if medians is None else medians
        of_op = np.where(np.isnan(typical), _NEVER, typical)[self.code] if len(typical) else np.empty(len(self.code))
        found: np.ndarray = np.round(np.where(self._is_beside, of_op, _NEVER)).astype(np.int64)
        return found


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


def _kernels(ops: pd.DataFrame) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Number of each operation's kernel and grid, and what they are."""
    name, grid = ops["name"].cat, ops["grid"].cat
    width = len(grid.categories) + 1
    code, keys = pd.factorize(name.codes.to_numpy(dtype=np.int64) * width + grid.codes.to_numpy() + 1)
    names, grids = ([*values.categories.tolist(), ""] for values in (name, grid))
    return code, [(names[key // width], grids[key % width - 1]) for key in keys.tolist()]
