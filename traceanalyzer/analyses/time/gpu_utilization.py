"""How busy each rank's GPU is over time, and its longest gaps."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.analyses.time.intervals import Intervals, bins_of, busy
from traceanalyzer.analyses.time.steps import step_numbers
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, as_objects, column_of, table_of, with_columns

# How busy each rank's GPU is over time: the window in equal stretches.


BINS = 60


class GpuUtilization(Result):
    """One row for each rank and stretch, in order of time; the parts add up to the stretch."""

    title = "GPU utilisation over time"
    keys = ("rank", "bin")
    columns = {
        "rank": Column.ident("Global rank."),
        "bin": Column.ident("Position of the stretch."),
        "start_ns": Column.moment("Its start."),
        "bin_ns": Column.time(
            "Its length: the rank's window divided by the number of stretches, to the nanosecond.", adds=Adds.DERIVED
        ),
        "busy_ns": Column.time("Time in it in which anything runs on the GPU.", leads=True),
        "busy_pct": Column.share("100 · busy / length. Says that something ran, not how much of the GPU it used."),
        "compute_ns": breakdown.DEFINITIONS["compute_ns"],
        "exposed_comm_ns": breakdown.DEFINITIONS["exposed_comm_ns"],
        "exposed_copy_ns": breakdown.DEFINITIONS["exposed_copy_ns"],
        "opaque_ns": breakdown.DEFINITIONS["opaque_ns"],
        "idle_ns": breakdown.DEFINITIONS["idle_ns"],
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        table = breakdown.known_only(table)
        busy = table["bin_ns"] - table["idle_ns"]
        return self._with(table, {"busy_ns": busy, "busy_pct": percent(busy, table["bin_ns"])})


def gpu_utilization_per_rank(trace: RankTrace, bins: int = BINS) -> pd.DataFrame:
    """The breakdown of each stretch of the rank's window; fewer stretches when it has fewer nanoseconds."""
    window = trace.window
    if trace.gpu_ops.empty or window.length_ns == 0:
        return pd.DataFrame()
    starts, ends = bins_of(window, bins)
    parts = breakdown.split(trace, starts, ends)
    columns = {"bin_ns": parts.pop("window_ns"), **parts, "bin": np.arange(len(starts)), "start_ns": starts}
    return table_of(columns)


# The longest stretches in which nothing runs on each rank's GPU, and what stands on both sides.


SHORTEST_NS = 100_000
MOST = 50


class GpuGaps(Result):
    """One row for each gap, longest first within a rank; `min_gap_ns` and `most_gaps` limit how many."""

    title = "Longest GPU gaps"
    keys = ("rank", "start_ns")
    stored = ("window_ns",)
    columns = {
        "rank": Column.ident("Global rank."),
        "start_ns": Column.moment("End of the last GPU operation before the gap, or the window's begin."),
        "gap_ns": Column.time("Length: to the start of the next operation, or the window's end."),
        "share_pct": Column.share("100 · gap / window."),
        "step": Column.ident("Step that launched the operation which ends the gap; absent for none."),
        "before": Column.text(
            "The operation that ended last before the gap; absent before the first.", written=Written.KERNEL
        ),
        "after": Column.text("The operation that ends the gap; absent after the last.", written=Written.KERNEL),
        "launch": Column.text("API call that launched it; absent when the capture has none."),
        "launched_after_ns": Column.time(
            "Gap's start to that call's return; negative when it had been launched before the gap."
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"share_pct": percent(table["gap_ns"], table["window_ns"])})


def gpu_gaps_per_rank(trace: RankTrace, min_gap_ns: int = SHORTEST_NS, most_gaps: int = MOST) -> pd.DataFrame:
    """Gaps between the union of the rank's GPU operations, inside its window."""
    ops, window = trace.gpu_ops, trace.window
    free = Intervals.of(window.starts, window.ends) - busy(trace)
    lengths = free.ends - free.starts
    rows = np.flatnonzero(lengths >= min_gap_ns)
    rows = rows[np.argsort(-lengths[rows], kind="stable")][:most_gaps]
    if not len(rows):
        return pd.DataFrame()
    starts, ends = free.starts[rows], free.ends[rows]
    after = np.searchsorted(array_of(ops, "start_ns"), ends, side="left")
    after = np.where(after < len(ops), after, NONE)
    table = table_of(
        {
            "start_ns": starts,
            "gap_ns": ends - starts,
            "window_ns": window.length_ns,
            "before": _names(ops, _ending_at(ops, starts)),
            "after": _names(ops, after),
        }
    )
    return with_columns(table, step=step_numbers(trace, after), **_launches(trace, after, starts))


def _ending_at(ops: pd.DataFrame, times: np.ndarray) -> np.ndarray:
    """The operation that ended last by each time; -1 for none."""
    order = np.argsort(array_of(ops, "end_ns"), kind="stable")
    return np.append(order, NONE)[np.searchsorted(array_of(ops, "end_ns")[order], times, side="right") - 1]


def _names(ops: pd.DataFrame, rows: np.ndarray) -> Any:
    return column_of(ops, "name").take(rows, allow_fill=True).astype("str")


def _launches(trace: RankTrace, rows: np.ndarray, starts: np.ndarray) -> dict[str, Any]:
    launch = np.append(array_of(trace.gpu_ops, "launch"), NONE)[rows]
    is_unknown = launch == NONE
    if is_unknown.all():
        nothing = pd.array([pd.NA] * len(rows), dtype="Int64")
        return {"launch": [None] * len(rows), "launched_after_ns": nothing}
    rows = np.maximum(launch, 0)
    names = column_of(trace.api_calls, "name")[rows].astype(object)
    names[is_unknown] = None
    after_ns = pd.arrays.IntegerArray(array_of(trace.api_calls, "end_ns")[rows] - starts, is_unknown)
    return {"launch": as_objects(names), "launched_after_ns": after_ns}
