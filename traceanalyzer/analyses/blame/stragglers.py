"""Which ranks make the others wait, what it costs them, since when, and why."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, is_true, percent, plain_rows, typed
from traceanalyzer.analyses.blame.awaited import awaited
from traceanalyzer.analyses.blame.episode_rows import is_of_every_host
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.communication.waits import Waits
from traceanalyzer.analyses.names import StragglersColumn
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.time.stretches import stretches
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, columns_of, only, table_of, without_rows
from traceanalyzer.selection import steps_text

_HIDDEN = 0.1


class Stragglers(Result[StragglersColumn]):
    """One row for each rank that others wait for, costliest first, acquitted ones last.

    Each moment of a wait counts for its root.

    Whom a rank waits for while the awaited one is in a call of unknown partners is not known, and counts for nobody.
    Why a rank is late is what `episodes` says of it.
    """

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
        "direct_wait_ns": Column.time("The same where it came last to the call that waits, roots not followed."),
        "instances": Column.count("Collectives or exchanges in which others wait for it.", is_compared=False),
        "collective": Column.text("The collective in which they wait most.", written=Written.COLLECTIVE),
        "first_step": Column.ident("First step in which it costs at least 1 % of the step."),
        "steps_affected": Column.count("Number of such steps.", is_compared=False),
        "affected_wait_ns": Column.time(
            "Mean over such steps of the exposed wait for it of the rank that waits most.", adds=Adds.DERIVED
        ),
        "episode": Column.ident(
            "The costliest episode (see episodes) that the rank is part of; absent when it is in none: it needs no "
            "more than its peers (of a pipeline those of its stage), beyond jitter, or than every host does; or "
            "mending it gains less than a tenth of its cost."
        ),
        "is_acquitted": Column.flag(
            "Late only by its host, which needs no more for a step than hosts do where none is slow: nobody's fault."
        ),
        "cause": Column.text("What its ranks need more of: that episode's cause; of acquitted ones their host."),
        "cause_ns": Column.time("What they need more, a step of it: that episode's excess.", adds=Adds.DERIVED),
        "operation": Column.text("What takes most longer in it; absent when nothing explains half of it.",
                                 written=Written.KERNEL),
    }  # fmt: skip

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"cost_pct": percent(table["cost_max_ns"], table["window_ns"])})


def per_rank(_trace: RankTrace, exposed_comm: pd.DataFrame) -> pd.DataFrame:
    """The stretches in which communication but no compute runs, as `exposed_comm` has them."""
    return exposed_comm


def across(
    parts: Mapping[int, pd.DataFrame],
    members: Members,
    waits: Waits,
    call_waits: CallWaits,
    clocks: Clocks,
    episodes: Episodes,
    steps: Steps,
    ranks: Ranks,
    straggler_step_pct: float = 1.0,
) -> Stragglers:
    """Follow every exposed wait of the shared complete steps, moment by moment, to the rank that is waited for."""
    if waits.table.empty:
        return Stragglers(without_rows([name for name in Stragglers.columns if name != "cost_pct"]))
    windows = _windows(steps, ranks)
    pieces = _clipped(awaited(waits.table, parts, call_waits.table, clocks.offsets_ns()), windows)
    pieces = pieces.assign(collective=_collective(pieces, members.table))
    costs = _costs(pieces[pieces["root_rank"] != NONE], windows, straggler_step_pct)
    table = costs.join(pieces.groupby("waits_for")["wait_ns"].sum().rename("direct_wait_ns"))
    table = table.fillna({"direct_wait_ns": 0}).join(_of_episodes(episodes.table)).reset_index(names="rank")
    table["is_acquitted"] = table["is_acquitted"].eq(True).astype("boolean")
    order = table.assign(costs=-table["cost_max_ns"]).sort_values(["is_acquitted", "costs"], kind="stable").index
    return Stragglers(table.loc[order].reset_index(drop=True))


def _of_episodes(episodes: pd.DataFrame) -> pd.DataFrame:
    """For each rank the costliest episode that it is part of and that is its own fault.

    One whose mending gains less than a tenth of its cost is hidden, as loading is in a pipeline's bubble: no reason.
    """
    is_acquitted = np.array([is_of_every_host(row) for row in plain_rows(only(episodes, [*_OF_A_HOST]))], dtype=bool)
    gained = only(episodes, ["gain_ns", "joint_gain_ns"]).astype("Float64").max(axis=1)
    is_hidden = (_HIDDEN * episodes["cost_ns"] > gained) & ~episodes["gain_is_bound"].astype("boolean")
    is_told = is_acquitted | ~is_true(is_hidden)
    ranks = array_of(episodes, "ranks").tolist()
    first: dict[int, int] = {}
    for place in np.argsort(is_acquitted, kind="stable").tolist():
        for rank in numbers(ranks[place]) if is_told[place] else ():
            first.setdefault(rank, place)
    rows = np.array([*first.values()], dtype=np.int64)
    told = typed(only(episodes, [*_OF_EPISODES]), {"episode": "Int64", "excess_ns": "Int64", "cause": "object"})
    places = np.where(is_acquitted[rows], NONE, rows)
    own = {new: column_of(told, name).take(rows) for name, new in _OF_EPISODES.items()}
    own["episode"] = column_of(told, "episode").take(places, allow_fill=True)
    index = pd.Index(np.array([*first], dtype=np.int64), name="rank")
    return table_of({**own, "is_acquitted": is_acquitted[rows]}, index)


_OF_A_HOST = ("cause", "own_host_ns", "apart_host_ns", "name")
_OF_EPISODES = {"episode": "episode", "cause": "cause", "excess_ns": "cause_ns", "name": "operation"}


def _windows(steps: Steps, ranks: Ranks) -> pd.DataFrame:
    """The shared complete steps of every rank, else the stretches that are looked at as step -1."""
    whole = ranks.table[ranks.table["window_start_ns"].notna()]
    table = steps.table
    complete = complete_steps(table)
    shared = shared_steps(complete, set(whole["rank"]))
    if shared:
        table = complete[complete["step"].isin(shared)].rename(columns={"start_ns": "window_start_ns"})
    else:
        table = stretches(steps, ranks).assign(step=NONE)
    return only(table, ["rank", "step", "window_start_ns", "window_ns"]).astype("int64").reset_index(drop=True)


def _clipped(waits: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """Each stretch of wait inside each window of its rank, with `step` and `wait_ns`."""
    wait, window = columns_of(waits), columns_of(windows)
    order = np.argsort(window["rank"], kind="stable")
    first, end = (np.searchsorted(window["rank"][order], wait["rank"], side=side) for side in ("left", "right"))
    rows = np.repeat(np.arange(len(waits)), end - first)
    own = order[np.arange(len(rows)) + np.repeat(first - (np.cumsum(end - first) - (end - first)), end - first)]
    begins = window["window_start_ns"][own]
    starts = np.maximum(wait["start_ns"][rows], begins)
    lengths = np.minimum(wait["end_ns"][rows], begins + window["window_ns"][own]) - starts
    held = lengths > 0
    names = ("rank", "instance", "waits_for", "root_rank")
    pieces = {name: wait[name].take(rows[held]) for name in names}
    return table_of({**pieces, "step": window["step"][own[held]], "wait_ns": lengths[held]})


def _collective(pieces: pd.DataFrame, members: pd.DataFrame) -> np.ndarray:
    """What the waiting rank calls it: what is a send to one rank is a receive to the other."""
    names = members.drop_duplicates(["instance", "rank"]).set_index(["instance", "rank"])["collective"]
    found: np.ndarray = names.reindex(pd.MultiIndex.from_frame(pieces[["instance", "rank"]])).to_numpy()
    return found


def _costs(pieces: pd.DataFrame, windows: pd.DataFrame, least_pct: float) -> pd.DataFrame:
    """Columns of the cost, indexed by the rank at the root."""
    steps = sorted(windows["step"].unique())
    count = len(steps)
    window_ns = round(windows.groupby(["rank", "step"])["window_ns"].sum().mean())
    waited = pieces.groupby(["root_rank", "rank"])["wait_ns"].sum() / count
    by_root = waited.groupby("root_rank")
    totals = pieces.groupby("root_rank")
    by_step = pieces.groupby(["root_rank", "step", "rank"])["wait_ns"].sum()
    longest = by_step.groupby(["root_rank", "step"]).transform("max")
    in_affected = by_step[longest >= window_ns * least_pct / 100].reset_index()
    affected = in_affected.groupby("root_rank")["step"]
    most = pieces.groupby(["root_rank", "collective"])["wait_ns"].sum().reset_index("collective")
    has_steps = steps != [NONE]
    table = table_of(
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
        basis=steps_text(steps) if has_steps else "whole capture",
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
