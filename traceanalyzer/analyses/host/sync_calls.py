"""Which synchronising calls make the GPU run dry, and what each one costs."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host import idle_causes
from traceanalyzer.analyses.host.gaps import step_of_time
from traceanalyzer.analyses.host.host_activity import names_around_launches, user_ranges
from traceanalyzer.analyses.host.idle_causes import Gaps
from traceanalyzer.analyses.host.one_off_calls import one_off_calls
from traceanalyzer.analyses.names import SyncCallsColumn
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, column_of, picked, table_of


class SyncCalls(Result[SyncCallsColumn]):
    """One row for each rank, step, synchronising call, operator and range around it; costliest first within a rank."""

    title: ClassVar[str] = "Synchronising calls"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step", "name", "operator", "range")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step in whose GPU window the calls return; absent for none."),
        "name": Column.text("The call: cudaStreamSynchronize, …, or a copy that blocks.", written=Written.KERNEL),
        "operator": Column.text("The innermost operator around it; absent outside operators."),
        "range": Column.text("The user's innermost range around it.", written=Written.KERNEL),
        "calls": Column.count("How often.", is_aside=True),
        "host_ns": Column.time("Time that the host was blocked."),
        "idle_in_call_ns": Column.time("GPU idle time inside the calls."),
        "idle_after_ns": Column.time(
            "Rest of the gaps that were open when the calls returned: the GPU waited for what the host did then. "
            "It is no part of the calls' cost."
        ),
        "cost_ns": Column.time("What the calls are charged with: the idle time in them."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"cost_ns": table["idle_in_call_ns"]})


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's blocking calls that return inside its window, grouped.

    A gap counts with the last call that returned in it, until the operation that ends the gap starts.
    """
    rows, since = idle_causes.blocking(trace)
    ends = array_of(trace.api_calls, "end_ns")[rows]
    # One that returns when the window ends is in it; `first_calls` has those that block so long but once.
    inside = trace.window.holds(ends - 1) & ~np.isin(rows, one_off_calls(trace))
    rows, since, ends = rows[inside], since[inside], ends[inside]
    if not len(rows):
        return pd.DataFrame()
    gaps = idle_causes.find(trace)
    table = table_of(
        {
            "step": step_of_time(trace, ends),
            "name": column_of(trace.api_calls, "name").take(rows).astype("object"),
            "operator": names_around_launches(trace.host_ops, trace, rows),
            "range": names_around_launches(user_ranges(trace), trace, rows),
            "host_ns": ends - since,
            "idle_in_call_ns": _idle_within(gaps, since, ends),
            "idle_after_ns": _idle_after(gaps, ends),
        }
    )
    groups = Groups.of(table, ["step", "name", "operator", "range"], with_absent=True)
    sums = {name: groups.sums(array_of(table, name)) for name in ("host_ns", "idle_in_call_ns", "idle_after_ns")}
    order = np.lexsort((-sums["host_ns"], -sums["idle_in_call_ns"]))
    return picked(groups.table(**sums, calls=groups.counts()), order)


def across(parts: Mapping[int, pd.DataFrame]) -> SyncCalls:
    """The ranks' rows under each other."""
    return SyncCalls(stack(parts, tuple(SyncCalls.columns)))


def _idle_within(gaps: Gaps, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    return Intervals(gaps.starts, gaps.ends).covered_ns(starts, ends)


def _idle_after(gaps: Gaps, ends: np.ndarray) -> np.ndarray:
    """From each call's return to the end of the gap that is open then; once a gap, for its last call."""
    if not len(gaps):
        return np.zeros(len(ends), dtype=np.int64)
    at = np.searchsorted(gaps.starts, ends, side="right") - 1
    is_open = (at >= 0) & (ends < gaps.ends[at])
    latest = pd.Series(np.where(is_open, ends, -1)).groupby(np.where(is_open, at, -1)).transform("max").to_numpy()
    return np.where(is_open & (ends == latest), gaps.ends[at] - ends, 0)
