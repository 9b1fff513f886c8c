"""How each rank's GPU time splits into compute, exposed communication, exposed copies and idle."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import Result, is_true, percent, stack
from traceanalyzer.analyses.names import BreakdownColumn
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, of_rows, unions
from traceanalyzer.meaning import vocabulary
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named
from traceanalyzer.model.tables import column_of, table_of

PARTS = tuple(part.column for part in vocabulary.PARTS)
"""Columns of the table that add up to `window_ns`."""

_DOUBTFUL = ("compute_ns", "fused_ns", "exposed_comm_ns", "exposed_copy_ns", "comm_ns")
"""Columns that say nothing of a window in which something unknown runs: of them it may be any."""

OVERLAP = Column.share("100 · (comm − exposed comm) / comm; n/a without communication.", better=Better.MORE)
"""Of communication what compute hides, wherever it is told: of a rank, a step, a kind of communication."""

DEFINITIONS: Mapping[str, Column] = {
    "window_ns": Column.time(
        "First start to last end of the rank's GPU operations (or of the steps looked at).", better=Better.LESS
    ),
    "compute_ns": Column.time("Time in which at least one compute kernel runs: |∪compute|.", better=Better.LESS),
    "fused_ns": Column.time(
        "Part of compute in which a kernel runs that computes and communicates at once (mega-MoE, GEMM with a "
        "collective inside): how much of it is communication cannot be told."
    ),
    "exposed_comm_ns": Column.time(
        "Time in which communication but no compute runs: |∪comm − ∪compute|.", better=Better.LESS
    ),
    "exposed_copy_ns": Column.time(
        "Time in which a copy or memset but no compute or communication runs.", better=Better.LESS
    ),
    "opaque_ns": Column.time(
        "Time in which nothing but CUDA graphs runs that were recorded as one operation each: what they hold is not "
        "known. Compute, communication and copies are then n/a; capture with --cuda-graph-trace=node."
    ),
    "idle_ns": Column.time("Time in which nothing runs on the GPU.", is_news_when_zero=True, better=Better.LESS),
    "comm_ns": Column.time(
        "Time in which at least one communication operation runs: |∪comm|.", is_secondary=True, better=Better.LESS
    ),
    "overlapped_comm_ns": Column.time(
        "Communication time that is hidden under compute: comm − exposed comm.", is_secondary=True
    ),
    "overlap_pct": OVERLAP,
}


class Breakdown(Result[BreakdownColumn]):
    """One row for each rank; compute, exposed communication, exposed copy, unknown and idle add up to the window."""

    title: ClassVar[str] = "GPU time of each rank's window by kind"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {"rank": Column.ident("Global rank."), **DEFINITIONS}

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return with_overlap(table)


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Split the rank's window; no row without GPU operations."""
    if trace.gpu_ops.empty:
        return pd.DataFrame()
    parts = split(trace, trace.window.starts, trace.window.ends)
    return table_of({name: [int(times.sum())] for name, times in parts.items()})


def across(parts: Mapping[int, pd.DataFrame]) -> Breakdown:
    """The ranks' rows under each other."""
    return Breakdown(stack(parts, tuple(DEFINITIONS)))


def split(trace: RankTrace, starts: np.ndarray, ends: np.ndarray) -> dict[str, np.ndarray]:
    """The breakdown of each window [start, end), by column: operations are clipped to it.

    Communication is exposed while no compute runs; a copy while neither does.
    """
    covered = {name: own.covered_ns(starts, ends) for name, own in _times(trace).items()}
    columns = {"window_ns": ends - starts, **covered}
    columns["idle_ns"] = columns["window_ns"] - columns.pop("busy_ns")
    names = (
        "window_ns",
        "compute_ns",
        "exposed_comm_ns",
        "exposed_copy_ns",
        "opaque_ns",
        "idle_ns",
        "comm_ns",
        "fused_ns",
    )
    assert (sum(columns[name] for name in PARTS) == columns["window_ns"]).all(), "the parts must add up to the window"
    return {name: columns[name] for name in names}


@once_a_trace
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


def known_only(
    table: pd.DataFrame, unknown: pd.Series | None = None, names: Sequence[str] = (), dtype: str = "Int64"
) -> pd.DataFrame:
    """The table without figures of windows in which something unknown runs: those of `names` too are absent there.

    `unknown` is how long it runs; the column `opaque_ns` unless given. `dtype` is theirs where any is absent.
    """
    hides = is_true((table["opaque_ns"] if unknown is None else unknown) > 0)
    if not hides.any():
        return table
    held = [name for name in (*_DOUBTFUL, *names) if name in table]
    return table.assign(**{name: table[name].astype(dtype).mask(hides) for name in held})


def fused(ops: pd.DataFrame) -> Intervals:
    """Union of the compute kernels that communicate too."""
    names: Any = column_of(ops, "name")
    is_fused = [*(kinds.is_fused(str(name)) for name in names.categories.tolist()), False]
    if not any(is_fused):
        return EMPTY
    return of_rows(ops, np.array(is_fused)[names.codes] & rows_named(ops, "kind", "compute"))


def with_overlap(table: pd.DataFrame) -> pd.DataFrame:
    """Add the columns that follow from `comm_ns` and `exposed_comm_ns`, where those are known."""
    table = known_only(table)
    overlapped = table["comm_ns"] - table["exposed_comm_ns"]
    made: dict[BreakdownColumn, pd.Series] = {
        "overlapped_comm_ns": overlapped,
        "overlap_pct": overlap_of(overlapped, table["comm_ns"]),
    }
    return table.assign(**made)


def overlap_of(hidden_ns: pd.Series, comm_ns: pd.Series) -> pd.Series:
    """What `OVERLAP` defines."""
    return percent(hidden_ns, comm_ns)
