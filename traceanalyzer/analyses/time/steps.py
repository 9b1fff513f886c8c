"""What each training step of each rank consists of, and what belongs to no step."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, all_known, is_true
from traceanalyzer.analyses.grouping import memoized_by_tables
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.meaning.columns import Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    nowhere,
    nullable,
    picked,
    rows_where,
    table_of,
    whole_of,
)


class Steps(breakdown.OfKnownWork):
    """One row for each rank and step, and one for the operations of no step (`step` absent)."""

    title = "Steps"
    keys = ("rank", "step")
    is_of_one_run = True
    derived = breakdown.OVERLAPPED
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
        **breakdown.DEFINITIONS,
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


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Breakdown of each step's window.

    A step belongs to the host range in which its operations were launched; everything that runs inside its
    window counts in the breakdown, whoever launched it. Steps outside the selection are left out. Of a capture without
    GPU work it is known when the host was in them, and nothing else.
    """
    if trace.steps.empty:
        return pd.DataFrame()
    counts = np.bincount(trace.op_step + 1, minlength=len(trace.steps) + 1)  # of no step first
    operations = nullable(counts, np.full(len(counts), trace.gpu_ops.empty))
    is_chosen = np.ones(len(trace.steps), dtype=bool)
    if trace.window.steps is not None:
        is_chosen = trace.steps["step"].isin(trace.window.steps).to_numpy()
    rows = np.flatnonzero(is_chosen)
    chosen = picked(trace.steps, rows)
    columns = columns_of(chosen) | _windows(trace, chosen)
    columns["is_complete"] = is_complete(chosen)
    columns["name"] = columns["name"].astype("str")
    columns |= {name: all_known(columns[name]) for name in ("step", "host_start_ns", "host_end_ns")}
    for name in ("is_complete", "is_partial"):
        columns[name] = pd.arrays.BooleanArray(columns[name], np.zeros(len(rows), dtype=bool))
    if trace.window.steps is None and len(trace.gpu_ops):  # a row for the operations of no step
        columns = {name: own.take([*rows, NONE], allow_fill=True) for name, own in columns.items()}
        columns["name"][-1], rows = "(no step)", np.append(rows, NONE)
    return table_of(columns | {"operations": operations[rows + 1]})


def is_complete(steps: pd.DataFrame) -> np.ndarray:
    """Steps that count in means: they have a window, and the capture holds all of it."""
    return steps["start_ns"].notna().to_numpy() & ~array_of(steps, "is_partial")


def _windows(trace: RankTrace, steps: pd.DataFrame) -> dict[str, Any]:
    has_window = steps["start_ns"].notna().to_numpy()
    starts, ends = (whole_of(steps, name)[has_window] for name in ("start_ns", "end_ns"))
    row = nowhere(len(steps))
    row[has_window] = np.arange(len(starts))
    parts = breakdown.split(trace, starts, ends)
    return {name: nullable(np.append(times, 1)[row], row == NONE) for name, times in parts.items()}
