"""Which ranks the others wait for, what it costs them, and why."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, typed
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.breakdown import Headline
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.waits import Members, Waits
from traceanalyzer.analyses.intervals import Intervals, overlapping
from traceanalyzer.analyses.replay.critical_path import PathStretches
from traceanalyzer.meaning.columns import Adds, Column, Written, declared
from traceanalyzer.model.tables import array_of, picked, table_of, without_rows


class Stragglers(Result):
    """One row for each rank that others wait for, costliest first.

    Each moment of a wait counts for the rank that the critical path is on; where there is no graph, for the last rank
    of the call. Why a rank is a straggler is what `episodes` says of it.
    """

    title = "Stragglers"
    keys = ("rank",)
    is_of_one_run = True
    columns = declared(
        rank="Global rank that is waited for.",
        window_ns="Mean length of a step's GPU window over ranks and steps, or of the capture's.",
        cost_max_ns=Column.time(
            "Exposed wait for it a step (or in the capture), of the rank that waits most.", adds=Adds.EXTREME
        ),
        cost_max_rank="That rank.",
        cost_pct="100 · largest cost / window.",
        waiting_ranks=Column.count("Ranks that wait for it.", is_compared=False),
        total_wait_ns="Sum over ranks and steps of the exposed wait for it.",
        collective="The collective in which they wait most.",
        episode="The costliest episode (see episodes) that the rank is part of; absent when it is in none: it needs no "
            "more than its peers (of a pipeline those of its stage), beyond jitter, or than every host does.",
        cause="What its ranks need more of: that episode's cause.",
        cause_ns=Column.time("What they need more, a step of it: that episode's excess.", adds=Adds.DERIVED),
        operation=Column.text("What takes most longer in it; absent when nothing explains half of it.",
                                 written=Written.KERNEL),
    )  # fmt: skip

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"cost_pct": percent(table["cost_max_ns"], table["window_ns"])})


def across(
    _parts: Mapping[int, pd.DataFrame],
    waits: Waits,
    path_stretches: PathStretches,
    members: Members,
    clocks: Clocks,
    episodes: Episodes,
    headline: Headline,
) -> Stragglers:
    """Put every exposed wait, moment by moment, to the rank that the critical path is on meanwhile."""
    pieces = _on_path(waits.table, path_stretches.table, clocks.offsets_ns())
    if pieces.empty:
        return Stragglers(without_rows([name for name in Stragglers.columns if name != "cost_pct"]))
    names = members.table.drop_duplicates(["instance", "rank"]).set_index(["instance", "rank"])["collective"]
    # What the waiting rank calls it: what is a send to one rank is a receive to the other.
    collective = names.reindex(pd.MultiIndex.from_frame(pieces[["instance", "rank"]])).to_numpy()
    costs = _costs(pieces.assign(collective=collective), headline.table)
    table = costs.join(_of_episodes(episodes.table)).reset_index(names="rank")
    return Stragglers(table.sort_values("cost_max_ns", ascending=False, kind="stable", ignore_index=True))


def _on_path(waits: pd.DataFrame, path: pd.DataFrame, offsets: Mapping[int, int]) -> pd.DataFrame:
    """The waits, cut by the ranks that the critical path is on: `rank`, `instance`, `root_rank`, `wait_ns`.

    Args:
        waits: table of `Waits`, on each rank's own clock.
        path: table of `PathStretches`, on the common clock.
        offsets: by how much each rank's clock is ahead.
    """
    ahead = waits["rank"].map(offsets).fillna(0).to_numpy(dtype=np.int64)
    starts, ends = (array_of(waits, name) - ahead for name in ("start_ns", "end_ns"))
    if path.empty:
        pieces = waits.assign(root_rank=waits["waits_for"], wait_ns=ends - starts)
    else:
        ranks = array_of(path, "rank")
        first = np.flatnonzero(np.append(True, ranks[1:] != ranks[:-1]))
        begins = array_of(path, "start_ns")[first]
        stays = Intervals(begins, np.append(begins[1:], array_of(path, "end_ns")[-1]))
        row, stay = overlapping(starts, ends, stays)
        shared_ns = np.minimum(ends[row], stays.ends[stay]) - np.maximum(starts[row], stays.starts[stay])
        pieces = picked(waits, row).assign(root_rank=ranks[first][stay], wait_ns=shared_ns)
    return pieces[pieces["root_rank"].notna() & (pieces["root_rank"] != pieces["rank"])]


def _costs(pieces: pd.DataFrame, headline: pd.DataFrame) -> pd.DataFrame:
    """Columns of the cost, indexed by the rank that is waited for."""
    steps = headline["steps"].fillna(1).max()
    waited = pieces.groupby(["root_rank", "rank"])["wait_ns"].sum() / steps
    by_root = waited.groupby("root_rank")
    most = pieces.groupby(["root_rank", "collective"])["wait_ns"].sum().reset_index("collective")
    return table_of(
        {
            "window_ns": round(headline["window_ns"].mean() / steps),
            "cost_max_ns": by_root.max().round().astype("int64"),
            "cost_max_rank": by_root.idxmax().map(lambda pair: pair[1]).astype("int64"),
            "waiting_ranks": by_root.size(),
            "total_wait_ns": pieces.groupby("root_rank")["wait_ns"].sum(),
            "collective": most.sort_values("wait_ns").groupby("root_rank")["collective"].last(),
        }
    )


def _of_episodes(episodes: pd.DataFrame) -> pd.DataFrame:
    """For each rank the costliest episode that it is part of."""
    names = {"episode": "episode", "cause": "cause", "excess_ns": "cause_ns", "name": "operation"}
    own = episodes[["ranks", *names]].explode("ranks").drop_duplicates("ranks").set_index("ranks")
    own = typed(own, {"episode": "Int64", "excess_ns": "Int64", "cause": "object"})
    return own.set_axis(own.index.astype("int64")).rename(columns=names)
