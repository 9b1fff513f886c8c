"""What kernels take without communication beside them."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.time.intervals import Intervals

LEAST_ALONE = 3
"""So many runs of a kernel without communication beside it tell its own speed."""

BESIDE = 0.5
"""A kernel runs beside communication for at least this share of its time, or it doesn't."""


def alone_ns(ops: pd.DataFrame) -> np.ndarray:
    """For each operation the median time of the same kernel and grid when no communication runs beside it.

    Without limit for operations that do not run beside communication, or of which too few runs are alone.
    """
    starts, lengths = ops["start_ns"].to_numpy(), ops["duration_ns"].to_numpy()
    comm = (ops["kind"] == "comm").to_numpy()
    beside = Intervals.of(starts[comm], (starts + lengths)[comm]).covered_ns(starts, starts + lengths)
    free = (beside == 0) & ~comm
    key = [ops["name"].cat.codes.to_numpy(), ops["grid"].cat.codes.to_numpy()]
    runs = pd.Series(lengths).where(free).groupby(key)
    median = runs.transform("median").where(runs.transform("count") >= LEAST_ALONE)
    alone: np.ndarray = median.where((beside >= BESIDE * lengths) & ~free).fillna(np.iinfo(np.int64).max // 2)
    return np.round(np.asarray(alone)).astype(np.int64)
