"""What each training step of each rank consists of, and what belongs to no step."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses import breakdown
from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.intervals import of_rows
from traceanalyzer.model import NONE, RankTrace


class Steps(Result):
    """One row for each rank and step, and one for the operations of no step (`step` absent)."""

    title: ClassVar[str] = "Steps"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step")
    columns: ClassVar[Mapping[str, str]] = {
        "rank": "Global rank.",
        "step": "Number in the step's name, else its position; absent for operations of no step.",
        "name": "The range that marks the step on the host.",
        "is_complete": "Neither open nor partial: counts in means.",
        "is_open": "The capture's last step: its window ends with its own last operation.",
        "is_partial": "The capture misses operations that this step launched.",
        "start_ns": "Start of the step's first GPU operation.",
        **breakdown.DEFINITIONS,
        "window_ns": "The step's first GPU operation's start to the next step's first one's start.",
        "operations": "GPU operations that the host launched in the step.",
        "operations_ns": "Time in which at least one of them runs, wherever it lies.",
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return breakdown.with_overlap(table)


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Breakdown of each step's GPU window.

    A step belongs to the host range in which its operations were launched; everything that runs inside its
    window counts in the breakdown, whoever launched it. Steps outside the selection are left out.
    """
    if trace.gpu_ops.empty or trace.steps.empty:
        return pd.DataFrame()
    rows = [_step_row(trace, row) for row in range(len(trace.steps))]
    chosen = trace.steps if trace.window.steps is None else trace.steps[trace.steps["step"].isin(trace.window.steps)]
    table = pd.concat([chosen, _windows(trace, chosen)], axis=1)
    owned = pd.DataFrame([rows[row] for row in chosen.index], index=chosen.index)
    table = pd.concat([table, owned], axis=1)
    table["is_complete"] = is_complete(table)
    if trace.window.steps is None:
        table = pd.concat([table, _of_no_step(trace)], ignore_index=True)
    return table.astype({"step": "Int64", "name": "str", "is_complete": "boolean", "is_open": "boolean",
                         "is_partial": "boolean"})  # fmt: skip


def across(parts: Mapping[int, pd.DataFrame]) -> Steps:
    """The ranks' steps under each other."""
    return Steps(stack(parts, tuple(Steps.columns)))


def is_complete(steps: pd.DataFrame) -> pd.Series:
    """Steps that count in means: they have a window, and the capture neither opens nor cuts it."""
    return steps["start_ns"].notna() & ~steps["is_open"] & ~steps["is_partial"]


def _windows(trace: RankTrace, steps: pd.DataFrame) -> pd.DataFrame:
    held = steps[steps["start_ns"].notna()]
    starts, ends = (held[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    table = breakdown.split(trace, starts, ends).set_index(held.index)
    return table.reindex(steps.index).astype("Int64")


def _step_row(trace: RankTrace, step: int) -> dict[str, int]:
    mask = trace.op_step == step
    return {"operations": int(mask.sum()), "operations_ns": of_rows(trace.gpu_ops, mask).total_ns}


def _of_no_step(trace: RankTrace) -> pd.DataFrame:
    row = {"step": pd.NA, "name": "(no step)", **_step_row(trace, NONE)}
    return pd.DataFrame([row])
