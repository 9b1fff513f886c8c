"""What each rank's steps need of their own, beside how long the rank waits for others in them."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack, typed
from traceanalyzer.analyses.blame.clock_jumps import clock_jumps_ns
from traceanalyzer.analyses.blame.slower_calls import SlowerCalls, is_own
from traceanalyzer.analyses.blame.step_parts import COLUMNS, OWN_PARTS
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.exposed_comm import exposed_of, moves_and_waits
from traceanalyzer.analyses.names import StepNeedsColumn
from traceanalyzer.analyses.pipelines.pipeline import Pipeline, has_known_stages
from traceanalyzer.analyses.time.intervals import Intervals, unions
from traceanalyzer.analyses.time.side_by_side import side_by_side
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_as_they_are,
    picked,
    table_of,
    under_each_other,
    with_columns,
    without_rows,
)

PARTS = (*OWN_PARTS, "transfer_ns")
"""All that a rank's own step consists of; transfer only as far as its calls move data for longer than the peers'."""


class StepNeeds(Result[StepNeedsColumn]):
    """One row for each rank and step (absent without steps); they follow each other without a gap."""

    title: ClassVar[str] = "What each rank's steps need"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "step")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step; absent for a capture without."),
        "begin_ns": Column.moment("Where the step begins."),
        "end_ns": Column.moment("Where it ends."),
        "is_partial": Column.flag("The capture misses its end, or operations of it."),
        "compute_ns": Column.time("Time in which a compute kernel runs."),
        "exposed_copy_ns": Column.time("Time in which a copy runs, but no compute or communication."),
        **{cause.column: Column.time(f"Idle: {cause.label}. {cause.definition}") for cause in IDLE_CAUSES},
        "transfer_ns": Column.time("Time in which a call moves data, hidden by compute or not; it is nobody's own."),
        "exposed_wait_ns": Column.time(
            "Time in which a call waits for another rank and no compute runs, beside a transfer or not; and idle time "
            "in which the host waits for others in a collective of the CPU."
        ),
        "met_ns": Column.time(
            "Idle time in which the host waits in a collective of the CPU, for others or its transfer."
        ),
        "met_in": Column.text("The one in which it waits longest; absent without one."),
        "copy_beside_wait_ns": Column.time(
            "Time of that in which a copy runs and no data moves: the rank's own work, though somebody is late, too."
        ),
        "exposed_transfer_ns": Column.time("Rest of the exposed communication in which data moves."),
        "slower_transfer_ns": Column.time(
            "Time in which a call still moves data that the same call of a sister group (see slower_calls) would have "
            "moved, and no compute runs, beside a wait or not; 0 of ranks whose partner's links are slow."
        ),
        "exposed_unmatched_ns": Column.time("Rest of the exposed communication: may be either."),
        "needed_host_ns": Column.time(
            "Time of the step's range on the host, and up to the next one's, less that in calls that block it or find "
            "the queue full, and in collectives of the CPU while its threads do nothing else."
        ),
        "loading_ns": Column.time(
            "Time of that range, and up to the next one's, in the data loader, less that in which it waits for its GPU "
            "or for peers, as where all ranks count the tokens that they have loaded."
        ),
        "longest_call_ns": Column.time("The longest API call in it that waits for nothing on the GPU."),
        "operations": Column.count("GPU operations that the step launched.", adds=Adds.NONE),
        "clock_jump_ns": Column.time(
            "By how much the rank's clock is set in it: nothing is concluded of that. Absent where it is not.",
            is_secondary=True,
        ),
        "peers": Column.text("Ranks that do the same work: all, or of a pipeline the same stage of each."),
    }


def per_rank(trace: RankTrace, exposed_comm: pd.DataFrame, parts_of_steps: pd.DataFrame) -> pd.DataFrame:
    """The rank's steps, and the stretches in which communication but no compute runs (`is_step` false).

    Those with `is_copy` are when a copy runs beside it.
    """
    if parts_of_steps.empty:
        return pd.DataFrame()
    steps = with_columns(parts_of_steps, is_step=True, is_copy=False)
    if exposed_comm.empty:
        return steps
    exposed = Intervals(*(exposed_comm[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns")))
    copied = unions(trace)["copy"] & exposed
    stretches = [_stretches(parts_of_steps, exposed, is_copy=False), _stretches(parts_of_steps, copied, is_copy=True)]
    return under_each_other([steps, *(own for own in stretches if len(own))])


def host_needs_ns(needs: pd.DataFrame, least: int = 1) -> pd.Series:
    """By rank, what its host needs for a step: the mean of these rows' steps, as far as it is known.

    Ranks of which it is known for fewer than `least` steps are left out.
    """
    known = needs["needed_host_ns"].astype("Float64").groupby(needs["rank"]).agg(["count", "mean"])
    return known.loc[known["count"] >= least, "mean"].astype("float64")


def _stretches(parts_of_steps: pd.DataFrame, own: Intervals, *, is_copy: bool) -> pd.DataFrame:
    """A row for each; every other column is a step's, so that the columns keep their types."""
    times, firsts = {"begin_ns": own.starts, "end_ns": own.ends}, np.zeros(len(own), dtype=np.int64)
    held = columns_as_they_are(parts_of_steps)
    columns = {name: times[name] if name in times else values.take(firsts) for name, values in held.items()}
    return table_of({**columns, "is_step": False, "is_copy": is_copy})


def across(
    parts: Mapping[int, pd.DataFrame], call_waits: CallWaits, slower_calls: SlowerCalls, pipeline: Pipeline
) -> StepNeeds:
    """Split each step's exposed communication, waits first: a wait under a transfer on another stream is one."""
    every = stack(parts, ("rank", *COLUMNS, "is_step", "is_copy"))
    if every.empty:
        return StepNeeds(without_rows(StepNeeds.columns))
    is_step, is_copy = (every[name].to_numpy(dtype=bool) for name in ("is_step", "is_copy"))
    steps = typed(picked(every, is_step, ("rank", *COLUMNS)), _TYPES).rename(columns={"begin_ns": "start_ns"})
    exposed, copied = (
        picked(every, mask, ("rank", "begin_ns", "end_ns")).rename(columns={"begin_ns": "start_ns"})
        for mask in (~is_step & ~is_copy, is_copy)
    )
    table = side_by_side(_split, steps, exposed, copied, call_waits.table, _late_ends(slower_calls.table))
    table = table.rename(columns={"start_ns": "begin_ns"})
    step = table["step"].astype("Int64")
    table = _with_meetings(table).assign(step=step.where(step != NONE), peers=_peers(table["rank"], pipeline))
    return StepNeeds(table.assign(clock_jump_ns=clock_jumps_ns(table, call_waits.table)))


def _late_ends(slower: pd.DataFrame) -> pd.DataFrame:
    """Of each slower call what it takes longer, at its end; not of ranks whose partner's links are slow."""
    slower = slower[is_own(slower)]
    return slower.assign(start_ns=slower["end_ns"] - slower["longer_ns"])[["rank", "start_ns", "end_ns"]]


def _with_meetings(table: pd.DataFrame) -> pd.DataFrame:
    """Idle time in collectives of the CPU as waits and transfers: the least of the ranks is what data takes.

    Of a rank that is alone in them it may be either.
    """
    met = table["met_ns"].where(table["met_ns"] > 0).groupby(table["step"])
    least = met.transform("min").fillna(0).astype("int64")
    is_alone = met.transform("count") < 2
    waited = (table["met_ns"] - least).clip(lower=0)
    return table.assign(
        exposed_wait_ns=table["exposed_wait_ns"] + waited,
        exposed_transfer_ns=table["exposed_transfer_ns"] + (table["met_ns"] - waited).mask(is_alone, 0),
        exposed_unmatched_ns=table["exposed_unmatched_ns"] + table["met_ns"].where(is_alone, 0),
    )


def _split(
    steps: pd.DataFrame, stretches: pd.DataFrame, copied: pd.DataFrame, calls: pd.DataFrame, late: pd.DataFrame
) -> pd.DataFrame:
    exposed = exposed_of(stretches)
    begins, ends = array_of(steps, "start_ns"), array_of(steps, "end_ns")
    transfer, wait = moves_and_waits(calls)
    own_wait = wait & exposed
    own_transfer = (transfer & exposed) - own_wait
    rest = exposed - own_wait - own_transfer
    longer = Intervals.of(*(late[name].to_numpy(dtype=np.int64) for name in ("start_ns", "end_ns")))
    return with_columns(
        steps,
        transfer_ns=transfer.covered_ns(begins, ends),
        **{
            name: intervals.covered_ns(begins, ends)
            for name, intervals in (
                ("exposed_wait_ns", own_wait),
                ("copy_beside_wait_ns", (exposed_of(copied) & own_wait) - transfer),
                ("exposed_transfer_ns", own_transfer),
                ("slower_transfer_ns", longer & exposed),
                ("exposed_unmatched_ns", rest),
            )
        },
    )


_TYPES = {
    **dict.fromkeys(("step", "begin_ns", "end_ns", *OWN_PARTS, "met_ns", "operations"), "int64"),
    **dict.fromkeys(("needed_host_ns", "loading_ns", "longest_call_ns"), "Int64"),
    "is_partial": "bool",
}


def _peers(rank: pd.Series, pipeline: Pipeline) -> pd.Series:
    if not len(pipeline):
        return pd.Series("all", index=rank.index)
    names = "stage " + pipeline.table["stage"].astype("str")
    names = names.where(has_known_stages(pipeline.table), "a stage, rank " + pipeline.table["rank"].astype("str"))
    return rank.map(dict(zip(pipeline.table["rank"], names, strict=True))).fillna("all")
