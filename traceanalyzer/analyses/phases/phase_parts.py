"""The GPU operations that stand for each instant of busy time, so that shares by phase add up to the breakdown."""

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.host import idle_causes
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, unions
from traceanalyzer.kinds import KNOWN_KINDS, UNKNOWN
from traceanalyzer.model import RankTrace, Window
from traceanalyzer.model.plain import rows_named
from traceanalyzer.model.tables import array_of


class Share(Struct, frozen=True):
    """Disjoint, sorted stretches [start, end) of one part of the breakdown, less what `hidden` covers.

    `row` is the `gpu_ops` row that each belongs to.
    """

    starts: np.ndarray
    ends: np.ndarray
    row: np.ndarray
    hidden: Intervals

    def inside(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """Rows and times, ns, of what reaches into the window, cut to it."""
        rows, times = zip(*(self.between(start, end) for start, end in window.stretches), strict=True)
        return np.concatenate(rows), np.concatenate(times)

    def between(self, start_ns: int, end_ns: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and times, ns, of the stretches that reach into [start, end), cut to it."""
        first = np.searchsorted(self.ends, start_ns, side="right")
        past = np.searchsorted(self.starts, end_ns, side="left")
        starts, ends = np.maximum(self.starts[first:past], start_ns), np.minimum(self.ends[first:past], end_ns)
        times = ends - starts
        return self.row[first:past], times - self.hidden.covered_ns(starts, ends) if len(self.hidden) else times


def shares(trace: RankTrace) -> dict[str, Share]:
    """For each part of the breakdown the operation that every instant of it belongs to.

    An instant belongs to a compute kernel if one runs, else to a communication operation, else to a copy, else to a
    CUDA graph of unknown content; of several of that kind to the one that started first (and, of those, ends first).
    Idle time belongs to the operation that ends the gap: the host had not launched it.
    """
    ops = trace.gpu_ops
    compute, comm, copy = (unions(trace)[kind] for kind in KNOWN_KINDS)
    gaps = idle_causes.find(trace)
    return {
        "compute_ns": _first_started(ops, "compute", EMPTY),
        "exposed_comm_ns": _first_started(ops, "comm", compute),
        "exposed_copy_ns": _first_started(ops, "copy", compute | comm),
        "opaque_ns": _first_started(ops, UNKNOWN, compute | comm | copy),
        "idle_ns": Share(gaps.starts, gaps.ends, gaps.ended_by, EMPTY),
    }


def _first_started(ops: pd.DataFrame, kind: str, hidden: Intervals) -> Share:
    rows = np.flatnonzero(rows_named(ops, "kind", kind))
    starts, ends = array_of(ops, "start_ns")[rows], array_of(ops, "end_ns")[rows]
    if not len(rows):
        return Share(starts, ends, rows, hidden)
    reach = np.maximum.accumulate(ends)
    own_starts = np.maximum(starts, np.append(starts[0], reach[:-1]))
    held = ends > own_starts
    return Share(own_starts[held], ends[held], rows[held], hidden)
