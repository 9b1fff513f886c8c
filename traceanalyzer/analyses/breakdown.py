"""How GPU time splits: each rank's window, its steps, and the complete steps that speak for it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import RANK, Result, is_true
from traceanalyzer.analyses.grouping import memoized_by_tables, memoized_by_trace
from traceanalyzer.analyses.intervals import EMPTY, Intervals, of_rows, unions
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning import vocabulary
from traceanalyzer.meaning.columns import Adds, Better, Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    known_of,
    nowhere,
    nullable,
    rows_named,
    rows_where,
    table_of,
    text_array,
    texts_of,
    under_each_other,
    whole_of,
)
from traceanalyzer.selection import steps_text

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


class Steps(OfKnownWork):
    """One row for each rank and step, and one for the operations of no step (`step` absent)."""

    title = "Steps"
    keys = ("rank", "step")
    is_of_one_run = True
    derived = OVERLAPPED
    columns = declared(
        rank=RANK,
        step="Number in the step's name, else its position; absent for operations of no step.",
        name="The range that marks the step on the host.",
        is_complete="Its range is closed, and all operations launched in it ended inside the capture: counts in means.",
        is_partial=Column.flag(
            "The capture misses its end, or operations of it or of the step before; or its file is cut off.",
            is_secondary=True,
        ),
        host_start_ns=Column.moment("Start of the range that marks the step on the host.", is_secondary=True),
        host_end_ns=Column.moment("Its end.", is_secondary=True),
        start_ns=(
            "The later of its range's start and the end of the last operation launched before that. Absent for a "
            "step that launched nothing."
        ),
        **DEFINITIONS,
        operations="GPU operations that the host launched in the step.",
    ) | declared(
        window_ns="From there to where the next step begins; of the last one before recording ends or pauses, to the "
        "later of its range's end and its last operation's end."
    )


def step_numbers(trace: RankTrace, rows: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """The steps that launched these of the rank's GPU operations; absent for none, and for row -1."""
    step = np.append(trace.op_step, NONE)[rows]
    if not len(trace.steps):
        return pd.array([pd.NA] * len(rows), dtype="Int64")
    numbers = array_of(trace.steps, "step")[np.maximum(step, 0)]
    return nullable(numbers.astype(np.int64), step == NONE)


@memoized_by_tables
def complete_steps(steps: pd.DataFrame) -> pd.DataFrame:
    """Of a table of steps those that count in means."""
    return rows_where(steps, is_true(steps["is_complete"])) if len(steps) else steps


def steps_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Breakdown of each step's window.

    A step belongs to the host range in which its operations were launched; everything that runs inside its
    window counts in the breakdown, whoever launched it. Steps outside the selection are left out. Of a capture without
    GPU work it is known when the host was in them, and nothing else.
    """
    if trace.steps.empty:
        return pd.DataFrame()
    steps, chosen = trace.steps, trace.window.steps
    rows = np.arange(len(steps)) if chosen is None else np.flatnonzero(steps["step"].isin(chosen))
    if chosen is None and len(trace.gpu_ops):  # a row for the operations of no step
        rows = np.append(rows, NONE)
    counts = np.bincount(trace.op_step + 1, minlength=len(steps) + 1)  # of no step first
    held = np.flatnonzero(known_of(steps, "start_ns"))
    place = nowhere(len(steps) + 1)
    place[held] = np.arange(len(held))
    windows = split(trace, *(whole_of(steps, name)[held] for name in ("start_ns", "end_ns")))
    columns = columns_of(steps) | {"is_complete": is_complete(steps)}
    return table_of(
        {
            **{name: pd.array(own).take(rows, allow_fill=True) for name, own in columns.items()},
            "name": text_array(np.append(texts_of(columns["name"]), "(no step)")[rows]),
            **{name: pd.array(own).take(place[rows], allow_fill=True) for name, own in windows.items()},
            "operations": nullable(counts[rows + 1], np.full(len(rows), not len(trace.gpu_ops))),
        }
    )


def is_complete(steps: pd.DataFrame) -> np.ndarray:
    """Steps that count in means: they have a window, and the capture holds all of it."""
    return steps["start_ns"].notna().to_numpy() & ~array_of(steps, "is_partial")


_SUMMED = ("window_ns", *PARTS, "comm_ns", "fused_ns")


class Headline(OfKnownWork):
    """One row for each rank, over the steps that are complete on every rank that has steps."""

    title = "Headline figures"
    keys = ("rank",)
    is_of_one_run = True
    derived = {
        **OVERLAPPED,
        **{part.share: f"{part.column} / window_ns" for part in (*vocabulary.PARTS, vocabulary.FUSED)},
        "step_mean_ns": "window_ns / steps",
    }
    columns = declared(
        rank=RANK,
        basis="What the row is of: complete steps that all ranks share; without any, what is looked at.",
        steps="Number of those steps; absent for a whole capture.",
        step_mean_ns=Column.spent("Mean length of the steps' GPU windows.", adds=Adds.DERIVED, alias="step_ns"),
        step_std_ns=Column.time(
            "Sample standard deviation of the same; absent with fewer than two steps.", adds=Adds.DERIVED
        ),
        **DEFINITIONS,
        compute_pct=Column.share("100 · compute / window.", better=Better.MORE),
        fused_pct="100 · fused / window: a part of compute.",
        exposed_comm_pct=Column.share("100 · exposed communication / window.", better=Better.LESS),
        exposed_copy_pct=Column.share("100 · exposed copies / window.", better=Better.LESS),
        opaque_pct="100 · unknown / window.",
        idle_pct="100 · idle / window.",
    ) | declared(window_ns="Sum of the steps' GPU windows, or the capture's window.")


def headline_across(breakdown: Breakdown, steps: Steps, ranks: Ranks) -> Headline:
    """Sum the complete steps that every rank has; without such steps take the breakdown of what is looked at."""
    complete = complete_steps(steps.table)
    shared = shared_steps(complete, set(breakdown.table["rank"]))
    if not shared:
        window = ranks.table.set_index("rank")["window"]
        table = breakdown.table.assign(basis=breakdown.table["rank"].map(window), steps=pd.NA, step_std_ns=pd.NA)
        return Headline(table.astype({"steps": "Int64", "step_std_ns": "Float64"}))
    chosen = complete[complete["step"].isin(shared)]
    by_rank = chosen.groupby("rank")
    table = by_rank[list(_SUMMED)].sum().astype("int64")
    table["steps"] = by_rank.size().astype("Int64")
    table["step_std_ns"] = by_rank["window_ns"].std(ddof=1).astype("Float64")
    return Headline(table.reset_index().assign(basis=steps_text(shared)))


def steps_of(headline: Result, steps: Result) -> list[int]:
    """Numbers of the steps that the headline is of; none when it is of the whole capture."""
    rows, steps_rows = headline.table, steps.table
    if rows.empty or steps_rows.empty or rows["steps"].isna().all():
        return []
    complete = complete_steps(steps_rows)
    return shared_steps(complete, set(rows["rank"]))


def shared_steps(complete: pd.DataFrame, ranks: set[int]) -> list[int]:
    """Numbers of the steps that are complete on every rank."""
    if complete.empty:
        return []
    # Not grouped by pandas: of a few rows that takes fifty times as long.
    pairs = zip(complete["step"].tolist(), complete["rank"].tolist(), strict=True)
    holders = Counter(step for step, _ in {pair for pair in pairs if not pd.isna(pair[0])})
    return sorted(int(step) for step, count in holders.items() if count == len(ranks))
