"""Which ranks the others wait for, what it costs them, since when, and why."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack, typed
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.waits import STRETCH, CallWaits, Members, Waits, cut_by_calls, exposed_of
from traceanalyzer.analyses.time.breakdown import side_by_side, stretches
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.intervals import Intervals, overlapping
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    column_of,
    columns_of,
    only,
    picked,
    table_of,
    under_each_other,
    with_columns,
    without_rows,
)

# For whom each moment of a wait is: the ranks that others wait for, followed through their own waits.


_COLUMNS = ("rank", "start_ns", "end_ns", "instance", "waits_for", "root_rank")


def awaited(
    waits: pd.DataFrame, exposed: Mapping[int, pd.DataFrame], calls: pd.DataFrame, offsets: Mapping[int, int]
) -> pd.DataFrame:
    """The stretches of wait, cut by the rank that each moment of them is waited for.

    While the awaited rank itself only waits for a third one, beside a transfer on another stream or not, the third one
    is awaited. While it is in a call of which nobody can tell how much is waiting, it is not known who is. A circle,
    which clocks that are a little apart can make, ends where it closes.

    Args:
        waits: table of `Waits`, on each rank's own clock.
        exposed: for each rank the stretches in which communication but no compute runs.
        calls: table of `CallWaits`.
        offsets: by how much each rank's clock is ahead.

    Returns:
        columns of `waits` and `root_rank` (`NONE` where it is not known), on the clocks of the ranks that wait; lengths
        add up to the waits'.
    """
    own = _later(side_by_side(_idle_in_calls, stack(exposed, STRETCH), calls), offsets, -1)
    held = _later(waits, offsets, -1)
    pieces = held[held["waits_for"].notna()].assign(root_rank=lambda rows: rows["waits_for"].astype("int64"))
    done = [pieces.iloc[:0]]
    for _ in range(len(exposed)):
        if pieces.empty:
            break
        stays, pieces = _followed(pieces, own)
        done.append(stays)
    return _later(only(under_each_other([*done, pieces]), list(_COLUMNS)), offsets)


def _later(table: pd.DataFrame, offsets: Mapping[int, int], times: int = 1) -> pd.DataFrame:
    """The stretches as many times later as their rank's clock is ahead."""
    by = times * table["rank"].map(offsets).fillna(0).to_numpy(dtype=np.int64)
    return with_columns(table, **{name: table[name].to_numpy(dtype=np.int64) + by for name in ("start_ns", "end_ns")})


def _idle_in_calls(stretches: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Stretches in which a rank computes nothing and waits, or may: `waits_for` is `NONE` where that is not known."""
    exposed = exposed_of(stretches)
    starts, ends = array_of(calls, "start_ns"), array_of(calls, "end_ns")
    is_unknown, has_none = (calls[name].isna().to_numpy() for name in ("wait_ns", "waits_for"))
    wait_ns, waits_for = (calls[name].to_numpy(np.int64, na_value=NONE) for name in ("wait_ns", "waits_for"))
    wait_ns = np.where(is_unknown, ends - starts, wait_ns)
    whom = pd.arrays.IntegerArray(np.where(is_unknown, NONE, waits_for), has_none & ~is_unknown)
    rows = np.flatnonzero(wait_ns > 0)
    waiting = Intervals.of(starts[rows], (starts + wait_ns)[rows])
    held = picked(calls, rows, ["rank", "start_ns", "call", "instance"])
    cut = cut_by_calls(waiting & exposed, held.assign(wait_ns=wait_ns[rows], waits_for=whom[rows]))
    return picked(cut, ~column_of(cut, "waits_for").isna())


def _followed(pieces: pd.DataFrame, own: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What the awaited ranks do of their own, and what they wait for others, who are awaited there instead."""
    at_root = pieces.assign(of_rank=pieces["rank"], rank=pieces["root_rank"])
    at_root = at_root.sort_values("rank", kind="stable", ignore_index=True)
    cut = side_by_side(_cut_by_waits, at_root, own)
    cut = only(cut.assign(rank=cut["of_rank"]), [*pieces.columns, "is_moved"])
    is_moved = cut["is_moved"].to_numpy(dtype=bool)
    stays, moves = (picked(cut, mask, list(pieces.columns)) for mask in (~is_moved, is_moved))
    return stays, moves


def _cut_by_waits(pieces: pd.DataFrame, waiting: pd.DataFrame) -> pd.DataFrame:
    """The pieces, at the ranks that are awaited, cut by these ranks' waits for others: `is_moved` there."""
    inside = Intervals(array_of(waiting, "start_ns"), array_of(waiting, "end_ns"))
    starts, ends = array_of(pieces, "start_ns"), array_of(pieces, "end_ns")
    row, wait = overlapping(starts, ends, inside)
    following = waiting["waits_for"].to_numpy(dtype=np.int64)[wait]
    is_new = following != array_of(pieces, "of_rank")[row]
    row, wait, following = row[is_new], wait[is_new], following[is_new]
    moves = with_columns(
        picked(pieces, row),
        start_ns=np.maximum(starts[row], inside.starts[wait]),
        end_ns=np.minimum(ends[row], inside.ends[wait]),
        root_rank=following,
    )
    stays = _rest(pieces, row, moves)
    return under_each_other([with_columns(stays, is_moved=False), with_columns(moves, is_moved=True)])


def _rest(part: pd.DataFrame, row: np.ndarray, taken: pd.DataFrame) -> pd.DataFrame:
    """The parts of the stretches between what is taken out of them, which is in order."""
    rows = np.concatenate([np.arange(len(part)), row])
    begins = np.concatenate([array_of(part, "start_ns"), array_of(taken, "end_ns")])
    order = np.lexsort((begins, rows))
    rows, begins = rows[order], begins[order]
    ends = np.concatenate([array_of(part, "end_ns"), array_of(taken, "start_ns")])
    # Each stretch begins once more than it is interrupted, and is interrupted, or ends, as often.
    ends = ends[np.lexsort((ends, np.concatenate([np.arange(len(part)), row])))]
    is_left = ends > begins
    return with_columns(picked(part, rows[is_left]), start_ns=begins[is_left], end_ns=ends[is_left])


# Which ranks make the others wait, what it costs them, since when, and why.


class Stragglers(Result):
    """One row for each rank that others wait for, costliest first.

    Each moment of a wait counts for its root.

    Whom a rank waits for while the awaited one is in a call of unknown partners is not known, and counts for nobody.
    Why a rank is late is what `episodes` says of it.
    """

    title: ClassVar[str] = "Stragglers"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank that is waited for."),
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
        "collective": Column.text("The collective in which they wait most.", written=Written.COLLECTIVE),
        "episode": Column.ident(
            "The costliest episode (see episodes) that the rank is part of; absent when it is in none: it needs no "
            "more than its peers (of a pipeline those of its stage), beyond jitter, or than every host does."
        ),
        "cause": Column.text("What its ranks need more of: that episode's cause."),
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
) -> Stragglers:
    """Follow every exposed wait of the shared complete steps, moment by moment, to the rank that is waited for."""
    if waits.table.empty:
        return Stragglers(without_rows([name for name in Stragglers.columns if name != "cost_pct"]))
    windows = _windows(steps, ranks)
    pieces = _clipped(awaited(waits.table, parts, call_waits.table, clocks.offsets_ns()), windows)
    pieces = pieces.assign(collective=_collective(pieces, members.table))
    costs = _costs(pieces[pieces["root_rank"] != NONE], windows)
    table = costs.join(_of_episodes(episodes.table)).reset_index(names="rank")
    return Stragglers(table.sort_values("cost_max_ns", ascending=False, kind="stable", ignore_index=True))


def _of_episodes(episodes: pd.DataFrame) -> pd.DataFrame:
    """For each rank the costliest episode that it is part of."""
    names = {"episode": "episode", "cause": "cause", "excess_ns": "cause_ns", "name": "operation"}
    own = only(episodes, ["ranks", *names]).explode("ranks").drop_duplicates("ranks").set_index("ranks")
    own = typed(own, {"episode": "Int64", "excess_ns": "Int64", "cause": "object"})
    return own.set_axis(own.index.astype("int64")).rename(columns=names)


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


def _costs(pieces: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """Columns of the cost, indexed by the rank at the root."""
    waited = pieces.groupby(["root_rank", "rank"])["wait_ns"].sum() / windows["step"].nunique()
    by_root = waited.groupby("root_rank")
    most = pieces.groupby(["root_rank", "collective"])["wait_ns"].sum().reset_index("collective")
    return table_of(
        {
            "window_ns": round(windows.groupby(["rank", "step"])["window_ns"].sum().mean()),
            "cost_mean_ns": by_root.mean().round().astype("int64"),
            "cost_max_ns": by_root.max().round().astype("int64"),
            "cost_max_rank": by_root.idxmax().map(lambda pair: pair[1]).astype("int64"),
            "waiting_ranks": by_root.size(),
            "total_wait_ns": pieces.groupby("root_rank")["wait_ns"].sum(),
            "collective": most.sort_values("wait_ns").groupby("root_rank")["collective"].last(),
        }
    )
