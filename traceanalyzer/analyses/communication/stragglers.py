"""Which ranks make the others wait, what it costs them, since when, and why."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.communication.exposed_comm import ExposedComm
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.communication.straggler_causes import CAUSES, WAIT, instance_causes
from traceanalyzer.analyses.communication.waits import Waits
from traceanalyzer.analyses.host.step_work import COMPUTE, COPY, OPERATOR, RANGE, step_work
from traceanalyzer.analyses.spread import median_of_others
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.time.stretches import stretches
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE

_LEAST_CAUSE = 0.1
"""An excess below this share of the cost explains nothing."""

UNMATCHED = "unmatched"
"""The cause of a rank that was in communication of which it is not known how much is waiting."""

_NAMED_BY = {"compute": (COMPUTE,), "copies": (COPY,), "transfer": (), UNMATCHED: (), "wait": ()}
"""Whose names can explain a cause; the host's for all others."""


class Stragglers(Result):
    """One row for each rank that others wait for, costliest first; a wait in a chain counts for its root."""

    title: ClassVar[str] = "Stragglers"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank that is waited for."),
        "basis": Column.text(
            "What the row is of: complete steps that all ranks share, or the whole capture.", is_secondary=True
        ),
        "steps": Column.count("Number of those steps; absent for a whole capture.", adds=Adds.NONE),
        "window_ns": Column.time(
            "Mean length of a step's GPU window over ranks and steps, or of the capture's.", better=Better.LESS
        ),
        "cost_mean_ns": Column.time(
            "Exposed wait for it a step (or in the capture): mean over the ranks that wait.", adds=Adds.DERIVED
        ),
        "cost_max_ns": Column.time("The same, of the rank that waits most.", adds=Adds.EXTREME),
        "cost_max_rank": Column.ident("That rank."),
        "cost_pct": Column.share("100 · largest cost / window."),
        "waiting_ranks": Column.count("Ranks that wait for it.", is_compared=False),
        "total_wait_ns": Column.time("Sum over ranks and steps of the exposed wait for it."),
        "direct_wait_ns": Column.time("The same where it was itself the last to come, roots not followed."),
        "instances": Column.count("Collectives or exchanges in which others wait for it.", is_compared=False),
        "collective": Column.text("The collective in which they wait most.", written=Written.COLLECTIVE),
        "first_step": Column.ident("First step in which it costs at least 1 % of the step."),
        "steps_affected": Column.count("Number of such steps.", is_compared=False),
        "affected_wait_ns": Column.time(
            "Mean over such steps of the exposed wait for it of the rank that waits most.", adds=Adds.DERIVED
        ),
        "cause": Column.text(
            "Part of its time that exceeds the others' most: compute, copies, transfer, unmatched (communication "
            "that may be a wait or a transfer), wait, or idle by cause "
            f"({', '.join(cause.key for cause in IDLE_CAUSES)}); absent when none explains a tenth of the cost."
        ),
        "cause_ns": Column.time("That excess a step (or in the capture)."),
        "operation": Column.text(
            "Kernel, copy, range or operator that takes longest beyond the other ranks' median; absent when "
            "none takes a tenth of the cause longer.",
            written=Written.KERNEL,
        ),
        "operation_ns": Column.time("By how much, a step."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(cost_pct=percent(table["cost_max_ns"], table["window_ns"]))


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """What the rank's steps consist of, by name."""
    return step_work(trace)


def across(
    parts: Mapping[int, pd.DataFrame],
    members: Members,
    waits: Waits,
    exposed_comm: ExposedComm,
    steps: Steps,
    ranks: Ranks,
    straggler_step_pct: float = 1.0,
) -> Stragglers:
    """Follow every exposed wait of the shared complete steps to the rank at its root."""
    causes = instance_causes(members.table, waits.table) if len(members) else pd.DataFrame()
    if causes.empty or waits.table.empty:
        return Stragglers(pd.DataFrame(columns=list(Stragglers.columns)))
    windows = _windows(steps, ranks)
    pieces = _rooted(_clipped(waits.table, windows), causes, members.table)
    costs = _costs(pieces[pieces["rank"] != pieces["root_rank"]], windows, straggler_step_pct)
    table = costs.join(_direct(pieces)).join(_causes(causes, members.table, windows))
    explains = (table["cause_ns"] >= _LEAST_CAUSE * table["cost_max_ns"]).fillna(value=False)
    table = table.assign(cause=table["cause"].where(explains, None), cause_ns=table["cause_ns"].where(explains))
    table = table.assign(cause=table["cause"].mask(_may_have_waited(table, exposed_comm, windows), UNMATCHED))
    table = table.assign(cause=table["cause"].mask(_waits_under_transfers(table, members.table, windows), WAIT))
    table = _named(table, stack(parts), windows).reset_index(names="rank")
    return Stragglers(table.sort_values("cost_max_ns", ascending=False, kind="stable", ignore_index=True))


def _windows(steps: Steps, ranks: Ranks) -> pd.DataFrame:
    """The shared complete steps of every rank, else the stretches that are looked at as step -1."""
    whole = ranks.table[ranks.table["window_start_ns"].notna()]
    table = steps.table
    complete = table[table["is_complete"].fillna(value=False).astype(bool)] if len(table) else table
    shared = shared_steps(complete, set(whole["rank"]))
    if shared:
        table = complete[complete["step"].isin(shared)].rename(columns={"start_ns": "window_start_ns"})
    else:
        table = stretches(steps, ranks).assign(step=NONE)
    return table[["rank", "step", "window_start_ns", "window_ns"]].astype("int64").reset_index(drop=True)


def _clipped(waits: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """Length of each stretch of wait inside each window of its rank: `rank`, `step`, `instance`, `wait_ns`."""
    pairs = waits.merge(windows, on="rank")
    starts = pairs[["start_ns", "window_start_ns"]].max(axis=1)
    ends = np.minimum(pairs["end_ns"], pairs["window_start_ns"] + pairs["window_ns"])
    held = pairs.assign(wait_ns=ends - starts)[ends > starts]
    return held[["rank", "step", "instance", "wait_ns"]].reset_index(drop=True)


def _rooted(pieces: pd.DataFrame, causes: pd.DataFrame, members: pd.DataFrame) -> pd.DataFrame:
    """The pieces with the last rank of their instance, and of the instance at the root."""
    known = causes.reindex(pieces["instance"].to_numpy(dtype=np.int64))
    # The waiting rank's own call: what is a send to one rank is a receive to the other.
    names = members.drop_duplicates(["instance", "rank"]).set_index(["instance", "rank"])["collective"]
    return pieces.assign(
        last_rank=known["last_rank"].to_numpy(),
        root=known["root"].to_numpy(),
        root_rank=causes["last_rank"].reindex(known["root"]).to_numpy(),
        collective=names.reindex(pd.MultiIndex.from_frame(pieces[["instance", "rank"]])).to_numpy(),
    )


def _costs(pieces: pd.DataFrame, windows: pd.DataFrame, least_pct: float) -> pd.DataFrame:
    """Columns of the cost, indexed by the rank at the root."""
    numbers = sorted(windows["step"].unique())
    count = len(numbers)
    window_ns = round(windows.groupby(["rank", "step"])["window_ns"].sum().mean())
    waited = pieces.groupby(["root_rank", "rank"])["wait_ns"].sum() / count
    by_root = waited.groupby("root_rank")
    totals = pieces.groupby("root_rank")
    by_step = pieces.groupby(["root_rank", "step", "rank"])["wait_ns"].sum()
    longest = by_step.groupby(["root_rank", "step"]).transform("max")
    in_affected = by_step[longest >= window_ns * least_pct / 100].reset_index()
    affected = in_affected.groupby("root_rank")["step"]
    most = pieces.groupby(["root_rank", "collective"])["wait_ns"].sum().reset_index("collective")
    has_steps = numbers != [NONE]
    table = pd.DataFrame(
        {
            "cost_mean_ns": by_root.mean().round().astype("int64"),
            "cost_max_ns": by_root.max().round().astype("int64"),
            "cost_max_rank": by_root.idxmax().map(lambda pair: pair[1]).astype("int64"),
            "waiting_ranks": by_root.size(),
            "total_wait_ns": totals["wait_ns"].sum(),
            "instances": totals["instance"].nunique(),
            "collective": most.sort_values("wait_ns").groupby("root_rank")["collective"].last(),
        }
    )
    return table.assign(
        basis=_basis(numbers) if has_steps else "whole capture",
        steps=pd.array([count if has_steps else pd.NA] * len(table), dtype="Int64"),
        window_ns=window_ns,
        first_step=_of_steps(affected.min().reindex(table.index), has_steps=has_steps),
        steps_affected=_of_steps(affected.nunique().reindex(table.index, fill_value=0), has_steps=has_steps),
        affected_wait_ns=_of_steps(_of_most_waiting(in_affected, table["cost_max_rank"]), has_steps=has_steps),
    )


def _of_most_waiting(in_affected: pd.DataFrame, most: pd.Series) -> pd.Series:
    """Mean over the affected steps of what the rank that waits most waits; 0 in those in which it does not."""
    own = in_affected[in_affected["rank"] == in_affected["root_rank"].map(most)]
    steps = in_affected.groupby("root_rank")["step"].nunique()
    return (own.groupby("root_rank")["wait_ns"].sum() / steps).reindex(most.index).round()


def _of_steps(values: pd.Series, *, has_steps: bool) -> pd.Series:
    """The values; absent where there are no steps to speak of."""
    return values.astype("Int64").where(pd.Series(has_steps, index=values.index))


def _basis(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"step {numbers[0]}"
    is_run = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"steps {numbers[0]} to {numbers[-1]}" if is_run else "steps " + ", ".join(map(str, numbers))


def _direct(pieces: pd.DataFrame) -> pd.Series:
    return pieces.groupby("last_rank")["wait_ns"].sum().rename("direct_wait_ns")


def _causes(causes: pd.DataFrame, members: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """For each rank the part with the largest excess over all instances to which it came last by its own doing.

    Hidden waits count too: the others may do the same work earlier, so that only the sum over a step tells.
    """
    step = members.drop_duplicates("instance").set_index("instance")["step"].reindex(causes.index)
    has_steps = windows["step"].iloc[0] != NONE
    own = causes[(causes["root"] == causes.index) & (step.isin(windows["step"]) | (not has_steps))]
    excess = own[list(CAUSES)].groupby(own["last_rank"]).sum(min_count=1)
    excess = excess[excess.notna().all(axis=1)].astype("int64")
    steps = windows["step"].nunique()
    return pd.DataFrame(
        {
            "cause": excess.idxmax(axis=1).map(CAUSES).astype("object"),
            "cause_ns": (excess.max(axis=1) / steps).round().astype("Int64"),
        },
        index=excess.index,
    )


def _may_have_waited(table: pd.DataFrame, exposed_comm: ExposedComm, windows: pd.DataFrame) -> pd.Series:
    """Ranks whose longer `transfer` is for the better part communication that could not be split."""
    rows = exposed_comm.table
    has_steps = windows["step"].iloc[0] != NONE
    held = rows[rows["step"].isin(windows["step"])] if has_steps else rows[rows["step"].isna()]
    unmatched = held.groupby("rank")["exposed_unmatched_ns"].sum() / windows["step"].nunique()
    others = pd.Series(unmatched.median(), index=table.index)
    if len(unmatched) > 1:
        beside = median_of_others(unmatched.to_numpy(dtype=np.float64)[:, None])[:, 0]
        others.update(pd.Series(beside, index=unmatched.index))
    excess = unmatched.reindex(table.index, fill_value=0) - others
    is_better_part = 2 * excess.reindex(table.index).astype("float64") >= table["cause_ns"].astype("Float64")
    return (table["cause"] == "transfer") & is_better_part.fillna(value=False).astype(bool)


def _waits_under_transfers(table: pd.DataFrame, members: pd.DataFrame, windows: pd.DataFrame) -> pd.Series:
    """Ranks with longer `transfer` whose calls move data for no longer: waits lie under transfers of other streams."""
    calls = members[members["transfer_ns"].notna()].drop_duplicates(["rank", "call"])
    held = calls[calls["step"].isin(windows["step"])] if windows["step"].iloc[0] != NONE else calls
    moved = held["transfer_ns"].astype("float64").groupby(held["rank"]).sum() / windows["step"].nunique()
    excess = pd.Series(
        {rank: moved.get(rank, 0) - moved.drop(rank, errors="ignore").median() for rank in table.index}, dtype="float64"
    )
    is_less = 2 * excess.reindex(table.index) < table["cause_ns"].astype("Float64")
    return (table["cause"] == "transfer") & is_less.fillna(value=False).astype(bool)


def _named(table: pd.DataFrame, work: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """Name what takes longer on each straggler than on the others."""
    held = work[work["step"].isin(windows["step"])] if windows["step"].iloc[0] != NONE else work
    totals = held.groupby(["what", "name", "rank"])["total_ns"].sum() / windows["step"].nunique()
    wide = totals.unstack("rank", fill_value=0.0)  # noqa: PD010 - keys are unique, nothing is aggregated
    least = (_LEAST_CAUSE * table["cause_ns"]).fillna(0)
    extra = {what: _extra(rows.droplevel("what")) for what, rows in wide.groupby("what")} if wide.shape[1] > 1 else {}
    found = [
        _longest_extra(extra, rank, cause, least_ns)
        for rank, cause, least_ns in zip(table.index, table["cause"], least, strict=True)
    ]
    return table.assign(
        operation=pd.Series([name for name, _ in found], index=table.index, dtype="object"),
        operation_ns=pd.array([extra for _, extra in found], dtype="Int64"),
    )


def _extra(rows: pd.DataFrame) -> pd.DataFrame:
    """What each rank (column) has of each name beyond the other ranks' median."""
    beside = median_of_others(rows.to_numpy(dtype=np.float64).T).T
    return rows - beside


def _longest_extra(
    extra: Mapping[str, pd.DataFrame], rank: int, cause: str | None, least_ns: float
) -> tuple[str | None, int | None]:
    """The name with the largest excess over the other ranks' median, of the kinds that the cause points at.

    Nothing is named for an excess that explains less than a tenth of the cause.
    """
    for what in _NAMED_BY.get(cause, (RANGE, OPERATOR)) if isinstance(cause, str) else ():
        if what in extra and rank in extra[what]:
            own = extra[what][rank]
            if own.max() > least_ns:
                return str(own.idxmax()), round(own.max())
    return None, None
