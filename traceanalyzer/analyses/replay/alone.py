"""What kernels take without communication beside them."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.time.intervals import Intervals

LEAST_ALONE = 3
"""So many runs of a kernel without communication beside it tell its own speed."""

BESIDE = 0.5
"""A kernel runs beside communication for at least this share of its time, or it doesn't."""

_NEVER = np.iinfo(np.int64).max // 2


def alone_ns(ops: pd.DataFrame, medians: pd.Series | None = None) -> np.ndarray:
    """For each operation the median time of the same kernel and grid when no communication runs beside it.

    Without limit for operations that do not run beside communication, or of which too few runs are alone. `medians` are
    those of the rank itself, unless given.
    """
    known = alone_medians(ops) if medians is None else medians
    starts, lengths = ops["start_ns"].to_numpy(), ops["duration_ns"].to_numpy()
    is_beside = (_beside(ops) >= BESIDE * lengths) & ~(ops["kind"] == "comm").to_numpy() & (lengths > 0)
    code, distinct = _kernels(ops)
    typical = known.reindex(distinct).fillna(_NEVER).to_numpy(dtype=np.float64)
    found: np.ndarray = np.where(is_beside, typical[code] if len(typical) else np.empty(len(starts)), _NEVER)
    return np.round(found).astype(np.int64)


def alone_medians(ops: pd.DataFrame) -> pd.Series:
    """By kernel and grid the median of its runs without communication beside them, where there are three or more."""
    is_alone = (_beside(ops) == 0) & ~(ops["kind"] == "comm").to_numpy()
    code, distinct = _kernels(ops)
    runs = ops["duration_ns"][is_alone].groupby(code[is_alone])
    medians = runs.median()[runs.size() >= LEAST_ALONE]
    return medians.set_axis(distinct[medians.index])


def of_peers(own: pd.Series, others: Mapping[int, pd.Series]) -> pd.Series:
    """A rank's medians, with its peers' for kernels that it never runs alone.

    Those are scaled by what kernels that both run alone take longer on the rank: GPUs are not equally fast.
    """
    scaled = []
    for theirs in others.values():
        ratio = (own / theirs).dropna()
        if len(ratio):
            scaled.append(theirs * float(ratio.median()))
    if not scaled:
        return own
    beside = pd.concat(scaled, axis=1).median(axis=1)
    return own.combine_first(beside)


def _beside(ops: pd.DataFrame) -> np.ndarray:
    """Of each operation the time in which communication runs beside it."""
    starts, lengths = ops["start_ns"].to_numpy(), ops["duration_ns"].to_numpy()
    comm = (ops["kind"] == "comm").to_numpy()
    return Intervals.of(starts[comm], (starts + lengths)[comm]).covered_ns(starts, starts + lengths)


def _kernels(ops: pd.DataFrame) -> tuple[np.ndarray, pd.MultiIndex]:
    """Number of each operation's kernel and grid, and what they are."""
    name, grid = ops["name"].cat, ops["grid"].cat
    width = len(grid.categories) + 1
    code, keys = pd.factorize(name.codes.to_numpy(dtype=np.int64) * width + grid.codes.to_numpy() + 1)
    names = np.append(name.categories.to_numpy(dtype=object), "")
    grids = np.append(grid.categories.to_numpy(dtype=object), "")
    return code, pd.MultiIndex.from_arrays([names[keys // width], grids[keys % width - 1]])
