"""How long a host takes to make a copy: the operator that launches it and nothing else, around the call."""

import numpy as np

from traceanalyzer.analyses.host.host_activity import innermost_at, outermost
from traceanalyzer.analyses.host.host_time import launches_inside, looked_at
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of


def host_times(trace: RankTrace, rows: np.ndarray) -> np.ndarray:
    """Of each of these GPU operations the host's time in ns; -1 where it is not known which call launched it.

    That of the outermost operator that launches it alone; of the call, where no operator does.
    """
    launch = array_of(trace.gpu_ops, "launch")[rows]
    took = np.full(len(rows), NONE, dtype=np.int64)
    held = launch != NONE
    starts, ends, threads = (array_of(trace.api_calls, name)[launch[held]] for name in ("start_ns", "end_ns", "thread"))
    took[held] = _around(trace, starts, np.subtract(*looked_at(trace, starts, ends)[::-1]), threads)
    return took


def _around(trace: RankTrace, begun: np.ndarray, lengths: np.ndarray, threads: np.ndarray) -> np.ndarray:
    """Lengths of the operators around calls that begin then, else of the calls."""
    of_one = np.flatnonzero(launches_inside(trace, trace.host_ops) == 1)
    starts, ends, thread = (array_of(trace.host_ops, name)[of_one] for name in ("start_ns", "end_ns", "thread"))
    took = lengths.copy()
    for each in np.unique(threads).tolist():
        own, rows = np.flatnonzero(threads == each), np.flatnonzero(thread == each)
        # Those that hold one launch are the same launch's where one lies in the other.
        rows = rows[outermost(starts[rows], ends[rows])]
        around = innermost_at(starts[rows], ends[rows], begun[own])
        lasts = np.subtract(*looked_at(trace, starts[rows], ends[rows])[::-1])
        took[own] = np.where(around == NONE, lengths[own], np.append(lasts, 0)[around])
    return took
