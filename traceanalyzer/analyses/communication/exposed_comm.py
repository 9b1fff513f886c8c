"""How each rank's exposed communication splits into transfer, waiting for others, and what cannot be told."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack, typed
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.names import ExposedCommColumn
from traceanalyzer.analyses.time.breakdown import Breakdown, known_only
from traceanalyzer.analyses.time.intervals import Intervals, unions
from traceanalyzer.analyses.time.side_by_side import side_by_side
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.meaning.vocabulary import COMM_PARTS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, columns_of, only, rows_where, table_of, with_columns

PARTS = tuple(part.column for part in COMM_PARTS)
"""Columns that add up to `exposed_comm_ns`."""


class ExposedComm(Result[ExposedCommColumn]):
    """One row for each rank's whole window (`step` absent) and for each step; the parts add up, exactly."""

    title: ClassVar[str] = "Exposed communication: transfer and wait"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step; absent for the rank's whole window."),
        "is_complete": Column.flag("Neither open nor partial: counts in means. Absent for the whole window."),
        "window_ns": Column.time("Length of the step's GPU window, or of the rank's.", better=Better.LESS),
        "exposed_comm_ns": Column.time(
            "Time in which communication but no compute runs: |∪comm − ∪compute|.", better=Better.LESS
        ),
        "exposed_transfer_ns": Column.time(
            "Part in which data moves: |∪transfer − ∪compute|.", is_news_when_zero=True, better=Better.LESS
        ),
        "exposed_wait_ns": Column.time(
            "Part in which a call waits for another rank and none moves data: |∪wait − ∪compute − ∪transfer|.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "exposed_unmatched_ns": Column.time(
            "The remainder: calls without a known instance, what follows the last rank of a group of which another has "
            "no trace, collectives with one root, uneven all-to-alls, peer-to-peer copies.",
            better=Better.LESS,
        ),
        "exposed_transfer_pct": Column.share("100 · exposed transfer / window."),
        "exposed_wait_pct": Column.share("100 · exposed wait / window."),
        "exposed_unmatched_pct": Column.share("100 · exposed unmatched / window."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        table = known_only(table, names=PARTS)
        shares = {part.share: percent(table[part.column], table["window_ns"]) for part in COMM_PARTS}
        return table.assign(**shares)  # names of the vocabulary


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The disjoint stretches of the capture in which communication but no compute runs, cut at the window's limits."""
    comm, compute = (unions(trace)[kind] for kind in ("comm", "compute"))
    exposed = comm - compute
    inside = exposed.inside(trace.window)
    outside = exposed - inside
    starts, ends = (np.concatenate([getattr(inside, name), getattr(outside, name)]) for name in ("starts", "ends"))
    order, is_looked_at = np.argsort(starts), np.arange(len(starts)) < len(inside)
    return table_of({"start_ns": starts[order], "end_ns": ends[order], "is_looked_at": is_looked_at[order]})


def across(
    parts: Mapping[int, pd.DataFrame], call_waits: CallWaits, breakdown: Breakdown, steps: Steps, ranks: Ranks
) -> ExposedComm:
    """Split each window's exposed communication, in the order compute, transfer, wait."""
    windows = _windows(breakdown, steps, ranks)
    if windows.empty:
        return ExposedComm(windows.reindex(columns=[*windows, *PARTS]))
    exposed = stack(parts, STRETCH)
    split = side_by_side(_row_parts, _queries(windows, exposed), exposed, call_waits.table)
    table = with_columns(windows, **{name: split[name] for name in PARTS})
    assert (only(table, list(PARTS)).sum(axis=1) == table["exposed_comm_ns"]).all(), "parts must add up to exposed comm"
    return ExposedComm(table)


STRETCH = ("rank", "start_ns", "end_ns", "is_looked_at")
"""Columns of a rank's table of `per_rank` once the ranks' are under each other."""


def exposed_of(part: pd.DataFrame) -> Intervals:
    """A table of disjoint stretches, in order, as intervals."""
    return Intervals(*(part[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns")))


def transfer_and_wait(exposed: Intervals, calls: pd.DataFrame) -> tuple[Intervals, Intervals]:
    """Parts of the exposed stretches in which one of the calls moves data, and in which they only wait."""
    moving, waiting = moves_and_waits(calls)
    transfer = moving & exposed
    return transfer, (waiting & exposed) - transfer


def moves_and_waits(calls: pd.DataFrame) -> tuple[Intervals, Intervals]:
    """When calls, of one rank or side by side, move data, and when they wait: first, of those of which it is known."""
    starts, ends = (calls[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    transfer, wait = (calls[name].to_numpy(dtype=np.int64, na_value=NONE) for name in ("transfer_ns", "wait_ns"))
    moves, waits = transfer != NONE, wait != NONE
    return (
        Intervals.of((ends - transfer)[moves], ends[moves]),
        Intervals.of(starts[waits], (starts + wait)[waits]),
    )


def _windows(breakdown: Breakdown, steps: Steps, ranks: Ranks) -> pd.DataFrame:
    whole = only(breakdown.table, ["rank", "window_ns", "exposed_comm_ns", "opaque_ns"])
    whole = whole.merge(only(ranks.table, ["rank", "window_start_ns"]).rename(columns={"window_start_ns": "start_ns"}))
    whole = whole.assign(step=pd.NA, is_complete=pd.NA)
    names = list(whole)
    own = rows_where(steps.table, steps.table["start_ns"].notna()) if len(steps) else steps.table
    table = pd.concat([typed(frame.reindex(columns=names), _TYPES) for frame in (whole, own) if len(frame)] or [whole])
    return table.sort_values(["rank", "step"], na_position="first", ignore_index=True)


_TYPES = {
    "rank": "int64", "step": "Int64", "is_complete": "boolean", "start_ns": "int64", "window_ns": "int64",
    "exposed_comm_ns": "int64", "opaque_ns": "int64",
}  # fmt: skip


def _queries(windows: pd.DataFrame, exposed: pd.DataFrame) -> pd.DataFrame:
    """From when to when each row is: the step's window, and of the whole one all stretches of the rank."""
    columns = columns_of(windows)
    is_whole = columns["step"].isna()
    starts, ends = columns["start_ns"].copy(), columns["start_ns"] + columns["window_ns"]
    of_rank, begins, reach = (exposed[name].to_numpy(dtype=np.int64) for name in STRETCH[:3])
    first, past = (np.searchsorted(of_rank, columns["rank"][is_whole], side=side) for side in ("left", "right"))
    has_any = past > first
    rows = np.flatnonzero(is_whole)
    ends[rows] = starts[rows]
    starts[rows[has_any]], ends[rows[has_any]] = begins[first[has_any]], reach[past[has_any] - 1]
    return table_of({"rank": columns["rank"], "start_ns": starts, "end_ns": ends, "is_whole": is_whole})


def _row_parts(rows: pd.DataFrame, stretches: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """The parts of each row; of the whole windows what is looked at."""
    starts, ends, is_whole = (array_of(rows, name) for name in ("start_ns", "end_ns", "is_whole"))
    exposed = exposed_of(stretches)
    looked_at = exposed_of(stretches[stretches["is_looked_at"].to_numpy(dtype=bool)])
    every, transfer, wait = (
        np.where(is_whole, (intervals & looked_at).covered_ns(starts, ends), intervals.covered_ns(starts, ends))
        for intervals in (exposed, *transfer_and_wait(exposed, calls))
    )
    return with_columns(
        rows, exposed_transfer_ns=transfer, exposed_wait_ns=wait, exposed_unmatched_ns=every - transfer - wait
    )
