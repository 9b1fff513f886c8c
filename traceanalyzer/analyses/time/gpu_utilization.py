"""How busy each rank's GPU is over time: the window in equal stretches."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, percent
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.analyses.time.intervals import bins_of
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import table_of

BINS = 60


class GpuUtilization(Result):
    """One row for each rank and stretch, in order of time; the parts add up to the stretch."""

    title = "GPU utilisation over time"
    keys = ("rank", "bin")
    columns = {
        "rank": RANK,
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
        return table.assign(busy_ns=busy, busy_pct=percent(busy, table["bin_ns"]))


def gpu_utilization_per_rank(trace: RankTrace, bins: int = BINS) -> pd.DataFrame:
    """The breakdown of each stretch of the rank's window; fewer stretches when it has fewer nanoseconds."""
    window = trace.window
    if trace.gpu_ops.empty or window.length_ns == 0:
        return pd.DataFrame()
    starts, ends = bins_of(window, bins)
    parts = breakdown.split(trace, starts, ends)
    columns = {"bin_ns": parts.pop("window_ns"), **parts, "bin": np.arange(len(starts)), "start_ns": starts}
    return table_of(columns)
