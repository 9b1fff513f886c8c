"""Times in which another process has the GPU: kernels of any kind that now and then take longer by the same time."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

LEAST_NS = 300_000
"""Less has many causes; slices that were seen (an H100 that two processes use) take 2.0 to 2.7 ms."""

_LEAST_KERNELS, _LEAST_NAMES = 5, 3


def taken_of(ops: pd.DataFrame, rows: np.ndarray, step: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Of each of these compute kernels by how much another process' time slice makes it longer; 0 elsewhere.

    A slice comes to whichever kernel runs, so that kernels of several names are longer by one time. Kernels that are
    slow by themselves (memory's clock, what their data ask for) are so by their own measure, and most that do the same
    `work` are, or most of a `step`, whose batch is larger in as many blocks.
    """
    nothing = np.zeros(len(rows), dtype=np.int64)
    spent_ns = (array_of(ops, "end_ns") - array_of(ops, "start_ns"))[rows]
    if np.count_nonzero(spent_ns > LEAST_NS) < _LEAST_KERNELS:
        return nothing
    alike = Groups.of_numbers(work)
    usual_ns = np.where(work == NONE, spent_ns, alike.medians(spent_ns)[alike.of_row])
    more_ns = spent_ns - usual_ns
    is_longer = (more_ns >= np.maximum(LEAST_NS, SHARE * usual_ns)) & ~_are_of_long_steps(more_ns, usual_ns, step)
    if not is_longer.any():
        return nothing
    slice_ns = np.median(more_ns[is_longer])
    is_slice = is_longer & (np.abs(more_ns - slice_ns) <= (RATIO - 1) * slice_ns)
    names = ops["name"].array.codes[rows][is_slice]
    is_told = len(names) >= max(_LEAST_KERNELS, SHARE * is_longer.sum()) and len({*names.tolist()}) >= _LEAST_NAMES
    return np.where(is_longer, more_ns, 0).round().astype(np.int64) if is_told else nothing


def _are_of_long_steps(more_ns: np.ndarray, usual_ns: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Kernels of steps in which most are longer than usual, short ones too: a slice hits one here, one there.

    Such a step has more to do, or its GPU is slower.
    """
    steps = Groups.of_numbers(step)
    longer = steps.sums(more_ns >= SHARE * usual_ns)
    return (longer > SHARE * steps.counts())[steps.of_row]
