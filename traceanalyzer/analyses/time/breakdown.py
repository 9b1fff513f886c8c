"""Each rank's GPU time: compute, exposed communication, exposed copies, idle; overlap."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import RANK, Result, is_true
from traceanalyzer.analyses.grouping import memoized_by_trace
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, of_rows, unions
from traceanalyzer.meaning import vocabulary
from traceanalyzer.meaning.columns import Better, Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    rows_named,
    table_of,
    under_each_other,
)

# How each rank's GPU time splits into compute, exposed communication, exposed copies and idle.


PARTS = tuple(part.column for part in vocabulary.PARTS)
"""Columns of the table that add up to `window_ns`."""

_DOUBTFUL = ("compute_ns", "fused_ns", "exposed_comm_ns", "exposed_copy_ns", "comm_ns")
"""Columns that say nothing of a window in which something unknown runs: of them it may be any."""

OVERLAP = Column.share("100 · (comm − exposed comm) / comm; n/a without communication.", better=Better.MORE)
"""Of communication what compute hides, wherever it is reported: of a rank, a step, a kind of communication."""

DEFINITIONS: Mapping[str, Column] = declared(
    window_ns="First start to last end of the rank's GPU operations (or of the steps looked at).",
    compute_ns="Time in which at least one compute kernel runs: |∪compute|.",
    fused_ns=(
        "Part of compute in which a kernel runs that computes and communicates at once (mega-MoE, GEMM with a "
        "collective inside): how much of it is communication is unknown."
    ),
    exposed_comm_ns="Time in which communication but no compute runs: |∪comm − ∪compute|.",
    exposed_copy_ns=Column.spent("Time in which a copy or memset but no compute or communication runs."),
    opaque_ns=(
        "Time in which nothing but CUDA graphs runs that were recorded as one operation each: what they hold is "
        "not known. Compute, communication and copies are then n/a; capture with --cuda-graph-trace=node."
    ),
    idle_ns="Time in which nothing runs on the GPU.",
    comm_ns="Time in which at least one communication operation runs: |∪comm|.",
    overlap_pct=OVERLAP,
)


def known_only(table: pd.DataFrame, names: Sequence[str] = (), unknown: pd.Series | None = None) -> pd.DataFrame:
    """The table without figures of windows in which something unknown runs: those of `names` too are absent there.

    `unknown` is how long it runs; the column `opaque_ns` unless given.
    """
    hides = is_true((table["opaque_ns"] if unknown is None else unknown) > 0)
    if not hides.any():
        return table
    held = {name: table[name] for name in (*_DOUBTFUL, *names) if name in table}
    return table.assign(
        **{name: own.astype("Float64" if own.dtype.kind == "f" else "Int64").mask(hides) for name, own in held.items()}
    )


class OfKnownWork(Result):
    """A table of times whose `hidden` columns, and those of kinds of work, are absent where something unknown runs."""

    hidden: ClassVar[Sequence[str]] = ()

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return super()._derived(known_only(table, self.hidden))


OVERLAPPED: Mapping[str, str] = {"overlap_pct": "comm_ns - exposed_comm_ns / comm_ns"}


class Breakdown(OfKnownWork):
    """One row for each rank; compute, exposed communication, exposed copy, unknown and idle add up to the window."""

    title = "GPU time of each rank's window by kind"
    keys = ("rank",)
    is_of_one_run = True
    derived = OVERLAPPED
    columns = {"rank": RANK, **DEFINITIONS}


def breakdown_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Split the rank's window; no row without GPU operations."""
    parts = split(trace, trace.window.starts, trace.window.ends)
    return table_of({name: [int(times.sum())] for name, times in parts.items()})


def split(trace: RankTrace, starts: np.ndarray, ends: np.ndarray) -> dict[str, np.ndarray]:
    """The breakdown of each window [start, end), by column: operations are clipped to it.

    Communication is exposed while no compute runs; a copy while neither does.
    """
    covered = {name: own.covered_ns(starts, ends) for name, own in _times(trace).items()}
    columns = {"window_ns": ends - starts, **covered}
    columns["idle_ns"] = columns["window_ns"] - columns.pop("busy_ns")
    assert (sum(columns[name] for name in PARTS) == columns["window_ns"]).all(), "the parts must add up to the window"
    return columns


@memoized_by_trace
def _times(trace: RankTrace) -> Mapping[str, Intervals]:
    """When each part's time is, in the whole capture; `busy_ns` in place of idle time."""
    compute, comm, copy, unknown = (unions(trace)[kind] for kind in kinds.KINDS)
    working = compute | comm
    known = working | copy
    return {
        "compute_ns": compute,
        "exposed_comm_ns": comm - compute,
        "exposed_copy_ns": copy - working,
        "opaque_ns": unknown - known,
        "busy_ns": known | unknown,
        "comm_ns": comm,
        "fused_ns": fused(trace.gpu_ops),
    }


def fused(ops: pd.DataFrame) -> Intervals:
    """Union of the compute kernels that communicate too."""
    names = ops["name"].array
    is_fused = [*(kinds.is_fused(str(name)) for name in names.categories.tolist()), False]
    if not any(is_fused):
        return EMPTY
    return of_rows(ops, np.array(is_fused)[names.codes] & rows_named(ops, "kind", "compute"))


# Tables of all ranks, worked out rank by rank.


def by_rank(work: Callable[..., pd.DataFrame], *tables: pd.DataFrame) -> pd.DataFrame:
    """What `work` makes of each rank's rows of these tables, under each other in order of rank."""
    own = [dict(iter(table.groupby("rank"))) for table in tables]
    ranks = sorted({rank for rows in own for rank in rows}) or [NONE]
    made = [work(*(rows.get(rank, table.iloc[:0]) for rows, table in zip(own, tables, strict=True))) for rank in ranks]
    return under_each_other(made)


# Which stretches of each rank's GPU time are looked at, for figures that are not of complete steps.


def stretches(steps: Result, ranks: Result) -> pd.DataFrame:
    """Columns `rank`, `step`, `window_start_ns`, `window_ns`: one row for each stretch.

    Of a rank whose steps were chosen each of their windows, under the step's number; of another one its whole window,
    as step -1. Windows of steps that were chosen need not follow each other.
    """
    whole = ranks.table[ranks.table["window_start_ns"].notna()].assign(step=NONE)
    own = steps.table
    if len(own):
        # Only of a whole capture there is a row for what belongs to no step.
        is_chosen = ~own["rank"].isin(own.loc[own["step"].isna(), "rank"])
        own = own[is_chosen & own["start_ns"].notna()].rename(columns={"start_ns": "window_start_ns"})
        whole = whole[~whole["rank"].isin(own["rank"])]
    names = ["rank", "step", "window_start_ns", "window_ns"]
    tables = [table[names].astype("int64") for table in (whole, own) if len(table)]
    return under_each_other(tables) if tables else pd.DataFrame(columns=names, dtype="int64")
