"""Times in which another process has the GPU: kernels of any kind that now and then take longer by the same time."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, ratio
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, rows_named, without_rows

LEAST_NS = 300_000
"""Less has many causes; slices that were seen (an H100 that two processes use) take 2.0 to 2.7 ms."""

_USUAL = 0.5
"""Of what a kernel usually takes: it is longer by so much at least."""

_ALIKE, _MOST = 0.2, 0.7
"""Slices differ by so much of their median, and at least so many of the kernels that are longer are so by one."""

_LEAST_KERNELS, _LEAST_NAMES = 5, 3

_LONG_STEP = 0.5
"""Of a step's kernels: where more are longer than usual, the step has more to do, or its GPU is slower."""


class TimeSlices(Result):
    """One row for each rank and step whose kernels stand still while, by all signs, another process has its GPU."""

    title = "Times in which another process has the GPU"
    keys = ("rank", "step")
    columns = {
        "rank": RANK,
        "step": Column.ident("Step that launched them; absent without steps."),
        "slices": Column.count(
            "Compute kernels that take longer than others that do the same work, at least 0.3 ms and half of the "
            "median of these, by a time that is the same for at least 7 of 10 (within a fifth), whichever they are: 5 "
            "or more of at least 3 names in what is counted."
        ),
        "names": Column.count("How many names these have.", adds=Adds.NONE),
        "taken_ns": Column.time("By how much they are longer, in all.", leads=True),
        "slice_ns": Column.time("taken_ns / slices.", adds=Adds.DERIVED),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(slice_ns=ratio(table["taken_ns"], table["slices"]))


def per_rank(trace: RankTrace, same_work: np.ndarray) -> pd.DataFrame:
    """The rank's steps with such kernels."""
    ops = trace.gpu_ops
    rows = np.flatnonzero(rows_named(ops, "kind", "compute") & trace.counted)
    step = trace.op_step[rows] if len(trace.steps) else np.zeros(len(rows), dtype=np.int64)
    taken_ns = taken_of(ops, rows, step, same_work[rows])
    rows, taken_ns = rows[taken_ns > 0], taken_ns[taken_ns > 0]
    if not len(rows):
        return without_rows(("step", "slices", "names", "taken_ns"))
    numbers = np.append(array_of(trace.steps, "step"), NONE)
    steps = pd.Series(numbers[trace.op_step[rows]] if len(trace.steps) else np.full(len(rows), NONE), dtype="Int64")
    groups = Groups.of({"step": steps.mask(steps == NONE).array}, ["step"], with_absent=True)
    return groups.table(
        slices=groups.counts(),
        names=groups.distinct(ops["name"].array.codes[rows].astype(np.int64)),
        taken_ns=groups.sums(taken_ns),
    )


def taken_of(ops: pd.DataFrame, rows: np.ndarray, step: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Of each of these compute kernels by how much another process' time slice makes it longer; 0 elsewhere.

    A slice comes to whichever kernel runs, so that kernels of several names are longer by one time. Kernels that are
    slow by themselves (memory's clock, what their data ask for) are so by their own measure, and most that do the same
    `work` are, or most of a `step`, whose batch is larger in as many blocks.
    """
    nothing = np.zeros(len(rows), dtype=np.int64)
    spent_ns = (array_of(ops, "end_ns") - array_of(ops, "start_ns"))[rows]
    if np.count_nonzero(spent_ns > LEAST_NS) < _LEAST_KERNELS:
        return nothing
    alike = Groups.of_numbers(work)
    usual_ns = np.where(work == NONE, spent_ns, alike.medians(spent_ns)[alike.of_row])
    more_ns = spent_ns - usual_ns
    is_longer = (more_ns >= np.maximum(LEAST_NS, _USUAL * usual_ns)) & ~_are_of_long_steps(more_ns, usual_ns, step)
    if not is_longer.any():
        return nothing
    slice_ns = np.median(more_ns[is_longer])
    is_slice = is_longer & (np.abs(more_ns - slice_ns) <= _ALIKE * slice_ns)
    names = ops["name"].array.codes[rows][is_slice]
    is_told = len(names) >= max(_LEAST_KERNELS, _MOST * is_longer.sum()) and len({*names.tolist()}) >= _LEAST_NAMES
    return np.where(is_longer, more_ns, 0).round().astype(np.int64) if is_told else nothing


def _are_of_long_steps(more_ns: np.ndarray, usual_ns: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Kernels of steps in which most are longer than usual, short ones too: a slice hits one here, one there."""
    steps = Groups.of_numbers(step)
    longer = steps.sums((more_ns >= _USUAL * usual_ns).astype(np.int64))
    return (longer > _LONG_STEP * steps.counts())[steps.of_row]
