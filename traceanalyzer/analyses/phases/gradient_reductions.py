"""Gradient reductions that follow the backward pass, and belong to it."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import sums_at
from traceanalyzer.analyses.phases.micro_steps import GRADIENT_COLLECTIVES
from traceanalyzer.analyses.phases.op_phases import BACKWARD, UNKNOWN, op_phases
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

LEAST_BYTES = 64 << 10
"""Reductions after one backward pass that carry less together (a loss, a norm, a flag) are no gradients."""


def phases_with_reductions(trace: RankTrace, calls: pd.DataFrame) -> np.ndarray:
    """For each GPU operation the position of its phase in `NAMES`: as `op_phases`, and gradients' reductions.

    All-reduces and reduce-scatters that nothing attributes are backward's where the last operation of known phase that
    was launched before them is backward's, and they carry at least 64 KiB after that one backward pass: gradients that
    are exchanged once they are all there.
    """
    phase = op_phases(trace)
    if not len(calls):
        return phase
    own = np.flatnonzero(np.isin(array_of(calls, "collective"), GRADIENT_COLLECTIVES))
    rows = array_of(calls, "gpu_op")[own]
    launch = array_of(trace.gpu_ops, "launch")
    is_open = (phase[rows] == UNKNOWN) & (launch[rows] != NONE)
    own, rows = own[is_open], rows[is_open]
    known = np.flatnonzero((phase != UNKNOWN) & (launch != NONE))
    known = known[np.argsort(launch[known], kind="stable")]
    before = np.searchsorted(launch[known], launch[rows]) - 1
    is_after = before >= 0
    is_after[is_after] = phase[known][before[is_after]] == BACKWARD
    sizes = whole_of(calls, "size_bytes", LEAST_BYTES)[own[is_after]]
    of_pass = _passes(phase[known], before[is_after])
    carried = sums_at(of_pass, sizes, int(of_pass.max(initial=NONE)) + 1)[of_pass]
    found = phase.copy()
    found[rows[is_after][carried >= LEAST_BYTES]] = BACKWARD
    return found


def _passes(phases: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Number of the backward pass at each place among the operations of known phase."""
    is_first = (phases == BACKWARD) & (np.append(NONE, phases[:-1]) != BACKWARD)
    numbers: np.ndarray = np.cumsum(is_first)[places]
    return numbers
