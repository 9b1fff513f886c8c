"""How much of communication and of copies is hidden, and under what: for every pair of kinds the time both run."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.names import OverlapColumn
from traceanalyzer.analyses.time.breakdown import OVERLAP, fused, known_only, overlap_of
from traceanalyzer.analyses.time.intervals import union
from traceanalyzer.kinds import KINDS
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import table_of

_DOUBTFUL = ("comm_with_compute_ns", "copy_ns", "copy_with_compute_ns", "copy_with_comm_ns", "hidden_copy_ns")


class Overlap(Result[OverlapColumn]):
    """One row for each rank."""

    title: ClassVar[str] = "Overlap"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "comm_ns": Column.time("Time in which communication runs: |∪comm|.", is_secondary=True, better=Better.LESS),
        "comm_with_compute_ns": Column.time("Time in which communication and compute both run."),
        "fused_ns": Column.time(
            "Time in which a kernel runs that computes and communicates at once; it is compute here, so that what it "
            "hides within itself is in no overlap."
        ),
        "overlap_pct": OVERLAP,
        "copy_ns": Column.time("Time in which a copy or memset runs: |∪copy|."),
        "copy_with_compute_ns": Column.time("Time in which a copy and compute both run."),
        "copy_with_comm_ns": Column.time("Time in which a copy and communication both run."),
        "copy_overlap_pct": Column.share(
            "100 · copies under compute or communication / copies; n/a without copies.", better=Better.MORE
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        table = known_only(table, names=_DOUBTFUL)
        return self._with(
            table,
            {
                "overlap_pct": overlap_of(table["comm_with_compute_ns"], table["comm_ns"]),
                "copy_overlap_pct": percent(table["hidden_copy_ns"], table["copy_ns"]),
            },
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Intersections of the unions of kinds, clipped to the window."""
    if trace.gpu_ops.empty:
        return pd.DataFrame()
    compute, comm, copy, unknown = (union(trace, kind) for kind in KINDS)
    row = {
        "comm_ns": comm.total_ns,
        "comm_with_compute_ns": (comm & compute).total_ns,
        "fused_ns": fused(trace.gpu_ops).inside(trace.window).total_ns,
        "copy_ns": copy.total_ns,
        "copy_with_compute_ns": (copy & compute).total_ns,
        "copy_with_comm_ns": (copy & comm).total_ns,
        "opaque_ns": unknown.total_ns,
        "hidden_copy_ns": (copy & (compute | comm)).total_ns,
    }
    return table_of({name: [time_ns] for name, time_ns in row.items()})


def across(parts: Mapping[int, pd.DataFrame]) -> Overlap:
    """The ranks' rows under each other."""
    return Overlap(stack(parts, (*Overlap.columns, "hidden_copy_ns", "opaque_ns")))
