"""How many launched operations wait to start, over time: a small series for a chart."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, ratio, stack
from traceanalyzer.analyses.host.launch_queue import launch_queue
from traceanalyzer.analyses.names import QueueDepthColumn
from traceanalyzer.analyses.time.intervals import bins_of
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, table_of


class QueueDepth(Result[QueueDepthColumn]):
    """One row for each rank and bin of its window."""

    title: ClassVar[str] = "Launch queue over time"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "bin")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "bin": Column.ident("Position of the bin in the window."),
        "start_ns": Column.moment("Its start."),
        "length_ns": Column.time("Its length."),
        "mean_depth": Column.number("Launched operations that wait to start, mean over the bin's time."),
        "max_depth": Column.count("Largest number in the bin.", adds=Adds.EXTREME),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"mean_depth": ratio(table["waiting_ns"], table["length_ns"])})


def per_rank(trace: RankTrace, queue_bins: int = 200) -> pd.DataFrame:
    """The window in `queue_bins` equal bins (fewer when it is shorter than that many ns); none without launches."""
    window = trace.window
    if not window.length_ns or (array_of(trace.gpu_ops, "launch") == NONE).all():
        return pd.DataFrame()
    starts, ends = bins_of(window, queue_bins)
    waiting_ns, highest = launch_queue(trace).binned(starts, ends)
    return table_of(
        {
            "bin": np.arange(len(starts)),
            "start_ns": starts,
            "length_ns": ends - starts,
            "waiting_ns": waiting_ns,
            "max_depth": highest,
        }
    )


def across(parts: Mapping[int, pd.DataFrame]) -> QueueDepth:
    """The ranks' bins under each other."""
    return QueueDepth(stack(parts, (*QueueDepth.columns, "waiting_ns")))
