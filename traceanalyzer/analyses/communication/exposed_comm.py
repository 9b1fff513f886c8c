"""How each rank's exposed communication splits into transfer, waiting for others, and what cannot be told."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, typed
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.names import ExposedCommColumn
from traceanalyzer.analyses.time.breakdown import Breakdown, known_only
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, unions
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import table_of, under_each_other

PARTS = ("exposed_transfer_ns", "exposed_wait_ns", "exposed_unmatched_ns")
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
        shares = {part.replace("_ns", "_pct"): percent(table[part], table["window_ns"]) for part in PARTS}
        return table.assign(**shares)


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The disjoint stretches of the capture in which communication but no compute runs, cut at the window's limits."""
    comm, compute = (unions(trace)[kind] for kind in ("comm", "compute"))
    exposed = comm - compute
    inside = exposed.inside(trace.window)
    outside = exposed - inside
    starts, ends = (np.concatenate([getattr(inside, name), getattr(outside, name)]) for name in ("starts", "ends"))
    table = table_of({"start_ns": starts, "end_ns": ends, "is_looked_at": np.arange(len(starts)) < len(inside)})
    return table.sort_values("start_ns", ignore_index=True)


def across(
    parts: Mapping[int, pd.DataFrame], call_waits: CallWaits, breakdown: Breakdown, steps: Steps, ranks: Ranks
) -> ExposedComm:
    """Split each window's exposed communication, in the order compute, transfer, wait."""
    windows = _windows(breakdown, steps, ranks)
    split = dict(by_rank(parts, call_waits))
    looked_at = {rank: exposed_of(part[part["is_looked_at"]]) for rank, part in parts.items() if len(part)}
    tables = [
        _row_parts(rows, split.get(int(rank), NOTHING), looked_at.get(int(rank), EMPTY))
        for rank, rows in windows.groupby("rank", sort=True)
    ]
    if not tables:
        return ExposedComm(windows.reindex(columns=[*windows, *PARTS]))
    table = under_each_other(tables)
    assert (table[list(PARTS)].sum(axis=1) == table["exposed_comm_ns"]).all(), "parts must add up to exposed comm"
    return ExposedComm(table)


Split = tuple[Intervals, Intervals, Intervals]
"""Exposed communication of a rank, and of it transfer and wait."""

NOTHING: Split = (EMPTY, EMPTY, EMPTY)


def by_rank(parts: Mapping[int, pd.DataFrame], call_waits: CallWaits) -> Iterator[tuple[int, Split]]:
    """Each rank's exposed communication, exposed transfer and exposed wait."""
    waits = dict(iter(call_waits.table.groupby("rank"))) if len(call_waits) else {}
    for rank, part in parts.items():
        exposed = exposed_of(part)
        calls = waits.get(rank)
        yield rank, (exposed, EMPTY, EMPTY) if calls is None else (exposed, *transfer_and_wait(exposed, calls))


def exposed_of(part: pd.DataFrame) -> Intervals:
    """A rank's table of `per_rank` as intervals."""
    return Intervals(part["start_ns"].to_numpy(), part["end_ns"].to_numpy()) if len(part) else EMPTY


def transfer_and_wait(exposed: Intervals, calls: pd.DataFrame) -> tuple[Intervals, Intervals]:
    """Parts of the exposed stretches in which one of the calls moves data, and in which they only wait."""
    moving, waiting = moves_and_waits(calls)
    transfer = moving & exposed
    return transfer, (waiting & exposed) - transfer


def moves_and_waits(calls: pd.DataFrame) -> tuple[Intervals, Intervals]:
    """When a rank's calls move data, and when they wait: first, of those of which it is known."""
    starts, ends = (calls[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns"))
    transfer, wait = (calls[name].to_numpy(dtype=np.int64, na_value=NONE) for name in ("transfer_ns", "wait_ns"))
    moves, waits = transfer != NONE, wait != NONE
    return (
        Intervals.of((ends - transfer)[moves], ends[moves]),
        Intervals.of(starts[waits], (starts + wait)[waits]),
    )


def _windows(breakdown: Breakdown, steps: Steps, ranks: Ranks) -> pd.DataFrame:
    whole = breakdown.table[["rank", "window_ns", "exposed_comm_ns", "opaque_ns"]]
    whole = whole.merge(ranks.table[["rank", "window_start_ns"]].rename(columns={"window_start_ns": "start_ns"}))
    whole = whole.assign(step=pd.NA, is_complete=pd.NA)
    names = list(whole)
    own = steps.table[steps.table["start_ns"].notna()] if len(steps) else steps.table
    table = pd.concat([typed(frame.reindex(columns=names), _TYPES) for frame in (whole, own) if len(frame)] or [whole])
    return table.sort_values(["rank", "step"], na_position="first", ignore_index=True)


_TYPES = {
    "rank": "int64", "step": "Int64", "is_complete": "boolean", "start_ns": "int64", "window_ns": "int64",
    "exposed_comm_ns": "int64", "opaque_ns": "int64",
}  # fmt: skip


def _row_parts(windows: pd.DataFrame, split: Split, looked_at: Intervals) -> pd.DataFrame:
    """The parts of each row: of the step's window, and of all that is looked at where the step is absent."""
    starts = windows["start_ns"].to_numpy()
    ends = starts + windows["window_ns"].to_numpy()
    is_whole = windows["step"].isna().to_numpy()
    exposed, transfer, wait = (
        np.where(is_whole, (intervals & looked_at).total_ns, intervals.covered_ns(starts, ends)) for intervals in split
    )
    return windows.assign(
        exposed_transfer_ns=transfer, exposed_wait_ns=wait, exposed_unmatched_ns=exposed - transfer - wait
    )
