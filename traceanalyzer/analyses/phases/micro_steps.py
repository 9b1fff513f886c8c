"""How many micro-steps each optimizer step has, and in how many of them gradients were exchanged."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.names import MicroStepsColumn
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named, rows_named_so, whole_of
from traceanalyzer.model.schema import NONE, XLA_PHASES
from traceanalyzer.model.tables import array_of, column_of, table_of
from traceanalyzer.selection import step_at

GRADIENT_COLLECTIVES = ("all_reduce", "reduce_scatter")
"""What data parallelism and sharding exchange gradients with."""

# "backward", "## backward ##", "Backward pass": but not "FSDP::pre_backward" or "backward_prefetch".
_BACKWARD = re.compile(r"[\W_]*backward(?:[\W_]+pass)?[\W_]*", re.IGNORECASE)
_FORWARD = re.compile(r"[\W_]*forward(?:[\W_]+pass)?[\W_]*|DistributedDataParallel\.forward", re.IGNORECASE)


class MicroSteps(Result[MicroStepsColumn]):
    """One row for each rank and step of the selection."""

    title: ClassVar[str] = "Micro-steps and gradient exchange"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step's number."),
        "micro_steps": Column.count(
            "Ranges called backward (else forward) on the host in the step; n/a when nothing marks them.",
            is_compared=False,
        ),
        "synchronising_micro_steps": Column.count(
            "Micro-steps after whose beginning, and before the next one's, an all-reduce or "
            "reduce-scatter was launched.",
            is_compared=False,
        ),
        "optimizer_steps": Column.count(
            "Updates that the step began: calls of optimizers (Optimizer.step ranges), those with no micro-step "
            "between them as one; n/a when nothing marks them, or micro-steps.",
            is_compared=False,
        ),
        "gradient_calls": Column.count("All-reduces and reduce-scatters that the step launched.", is_compared=False),
        "gradient_bytes": Column.size("Sum of their sizes; n/a when one is unknown."),
    }


def per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """Count the micro-steps of each step, and those that launched gradient collectives."""
    steps = trace.steps
    if trace.window.steps is not None:
        steps = steps[steps["step"].isin(trace.window.steps)]
    if steps.empty:
        return pd.DataFrame()
    starts, ends = array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns")
    begins = _begins(trace)
    updates = _updates(trace)
    # Several optimizers that step with no micro-step between them update one model together.
    is_first = np.diff(np.searchsorted(begins, updates), prepend=NONE) != 0
    of_step, of_update = step_at(starts, ends, begins), step_at(starts, ends, updates[is_first])
    of_call = whole_of(calls, "step") if len(calls) else np.empty(0, dtype=np.int64)
    gradients = np.isin(array_of(calls, "collective"), GRADIENT_COLLECTIVES) if len(calls) else of_call == NONE
    rows = [
        _row(trace, number, begins[of_step == row], int((of_update == row).sum()),
             calls, np.flatnonzero(gradients & (of_call == number)))
        for row, number in enumerate(array_of(steps, "step").tolist())
    ]  # fmt: skip
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return table_of(columns | {name: pd.array(columns[name], dtype="Int64") for name in _NUMBERS})


_NUMBERS = tuple(MicroSteps.columns)[2:]


def across(parts: Mapping[int, pd.DataFrame]) -> MicroSteps:
    """The ranks' rows under each other."""
    return MicroSteps(stack(parts, tuple(MicroSteps.columns)))


def _begins(trace: RankTrace) -> np.ndarray:
    """Starts of the ranges that mark micro-steps, in order; nested ones count once."""
    ranges = trace.ranges
    is_own = ~rows_named(ranges, "domain", XLA_PHASES)
    starts, ends = array_of(ranges, "start_ns"), array_of(ranges, "end_ns")
    for pattern in (_BACKWARD, _FORWARD):
        rows = np.flatnonzero(is_own & rows_named_so(ranges, pattern.fullmatch))
        if len(rows):
            reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(ends[rows])[:-1])
            begins: np.ndarray = starts[rows][starts[rows] >= reach]
            return begins
    return np.empty(0, dtype=np.int64)


def _updates(trace: RankTrace) -> np.ndarray:
    """Starts of the ranges that PyTorch puts around every optimizer's step, in order."""
    return np.sort(array_of(trace.ranges, "start_ns")[rows_named_so(trace.ranges, _is_update)])


def _is_update(name: str) -> bool:
    return name.startswith("Optimizer.step")


def _row(
    trace: RankTrace, number: int, begins: np.ndarray, updates: int, calls: pd.DataFrame, own: np.ndarray
) -> dict[str, object]:
    """A step's row; `own` are its gradient calls."""
    sizes: Any = column_of(calls, "size_bytes")[own] if len(own) else ()
    is_known = len(own) == 0 or not sizes.isna().any()
    return {
        "step": number,
        "micro_steps": len(begins) or None,
        "synchronising_micro_steps": _synchronising(trace, begins, calls, own) if len(begins) else None,
        "optimizer_steps": (updates or None) if len(begins) else None,
        "gradient_calls": len(own),
        "gradient_bytes": (int(sizes.sum()) if len(own) else 0) if is_known else None,
    }


def _synchronising(trace: RankTrace, begins: np.ndarray, calls: pd.DataFrame, own: np.ndarray) -> int:
    if not len(own):
        return 0
    launch = array_of(trace.gpu_ops, "launch")[array_of(calls, "gpu_op")[own]]
    times = array_of(trace.api_calls, "start_ns")[launch[launch != NONE]]
    held = np.searchsorted(begins, times, side="right") - 1
    return len(np.unique(held[held >= 0]))
