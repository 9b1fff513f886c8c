"""Which communication call, and which phase, each stretch of exposed communication belongs to."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.exposed_comm import transfer_and_wait
from traceanalyzer.analyses.names import ExposedCallsColumn
from traceanalyzer.analyses.phases.op_phases import NAMES
from traceanalyzer.analyses.phases.phase_parts import Share
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.analyses.time.side_by_side import side_by_side
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import known_of, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, table_of, with_columns

PARTS = ("transfer_ns", "wait_ns", "unmatched_ns")
"""Columns that add up to a stretch's length."""


class ExposedCalls(Result[ExposedCallsColumn]):
    """One row for each stretch in which communication but no compute runs, cut by call and at the steps' limits."""

    title: ClassVar[str] = "Exposed communication by call"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "stretch")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "stretch": Column.ident("Position among the rank's stretches."),
        "call": Column.ident(
            "The call that it belongs to: of those that run, the one that started first. Absent for one that was "
            "launched outside the chosen steps and still runs in their window."
        ),
        "phase": Column.text("Phase in which the host launched that call."),
        "step": Column.ident("Step in whose GPU window it lies; absent for none."),
        "start_ns": Column.moment("Its start."),
        "end_ns": Column.moment("Its end."),
        "transfer_ns": Column.time("Time in it in which one of the rank's calls moves data.", is_news_when_zero=True),
        "wait_ns": Column.time(
            "Time in it in which a call waits for another rank and none moves data.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "unmatched_ns": Column.time("The remainder."),
    }


def per_rank(
    trace: RankTrace, calls: pd.DataFrame, steps: pd.DataFrame, phase_of_op: np.ndarray, shares: Mapping[str, Share]
) -> pd.DataFrame:
    """The rank's exposed communication inside its window."""
    share = shares["exposed_comm_ns"]
    if not len(share.row):
        return pd.DataFrame()
    cuts = _cuts(trace, steps)
    owned = Intervals(share.starts, share.ends)
    exposed = Intervals.of(share.starts, share.ends) - share.hidden
    # Between two neighbouring edges nothing changes: neither call, nor step, nor whether it is exposed.
    edges = np.unique(np.concatenate([owned.starts, owned.ends, exposed.starts, exposed.ends, cuts]))
    starts, ends = edges[:-1], edges[1:]
    held = (exposed.covered_ns(starts, ends) > 0) & trace.window.holds(starts)
    starts, ends = starts[held], ends[held]
    row = share.row[np.searchsorted(owned.starts, starts, side="right") - 1]
    phase = np.array(NAMES, dtype=object)[phase_of_op[row]]
    told = {"call": _numbers(trace, calls, row), "phase": phase, "start_ns": starts, "end_ns": ends}
    return table_of(told | {"stretch": np.arange(len(starts)), "step": _step_of(steps, starts)})


def across(parts: Mapping[int, pd.DataFrame], call_waits: CallWaits) -> ExposedCalls:
    """Split each stretch in the order transfer, wait, remainder."""
    table = stack(parts, tuple(ExposedCalls.columns))
    return ExposedCalls(side_by_side(_split, table, call_waits.table) if len(table) else table)


def _numbers(trace: RankTrace, calls: pd.DataFrame, row: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """The calls' numbers of rows of `gpu_ops`; absent for operations that are none of the chosen steps' calls."""
    numbers = np.full(len(trace.gpu_ops), NONE, dtype=np.int64)
    if not calls.empty:
        numbers[array_of(calls, "gpu_op")] = array_of(calls, "call")
    return pd.arrays.IntegerArray(numbers[row], numbers[row] == NONE)


def _cuts(trace: RankTrace, steps: pd.DataFrame) -> np.ndarray:
    """Limits of the window and of the steps' windows."""
    starts, ends = _step_windows(steps)
    return np.concatenate([trace.window.starts, trace.window.ends, starts, ends])


def _step_windows(steps: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    if steps.empty:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    has_window = known_of(steps, "start_ns")
    starts, lengths = (whole_of(steps, name)[has_window] for name in ("start_ns", "window_ns"))
    return starts, starts + lengths


def _step_of(steps: pd.DataFrame, times: np.ndarray) -> pd.api.extensions.ExtensionArray:
    starts, ends = _step_windows(steps)
    if not len(starts):
        return pd.array([pd.NA] * len(times), dtype="Int64")
    row = np.searchsorted(starts, times, side="right") - 1
    is_inside = (row >= 0) & (times < ends[row])
    numbers = whole_of(steps, "step")[known_of(steps, "start_ns")]
    return pd.arrays.IntegerArray(numbers[row], ~is_inside)


def _split(stretches: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    starts, ends = array_of(stretches, "start_ns"), array_of(stretches, "end_ns")
    transfer, wait = transfer_and_wait(Intervals.of(starts, ends), calls)
    moving, waiting = transfer.covered_ns(starts, ends), wait.covered_ns(starts, ends)
    rest = ends - starts - moving - waiting
    return with_columns(stretches, transfer_ns=moving, wait_ns=waiting, unmatched_ns=rest)
