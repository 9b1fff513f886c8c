"""Every collective that was seen on all its ranks: transfer, waits, who came last."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.alignment import LEAST_UNCERTAINTY_NS
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.names import InstancesColumn
from traceanalyzer.meaning.columns import Adds, Column, Written


class Instances(Result[InstancesColumn]):
    """One row for each collective, or exchange of messages between two ranks, in order of start."""

    title: ClassVar[str] = "Collectives seen on all their ranks"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("instance",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "instance": Column.ident("Number, in order of first start."),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "step": Column.ident("Step that launched it; absent for none."),
        "ranks": Column.count("Ranks that take part.", is_compared=False),
        "size_bytes": Column.size(
            "Size of the full array; absent when unknown or not the same on all ranks.", is_aside=True
        ),
        "start_ns": Column.moment("First start."),
        "end_ns": Column.moment("Last end."),
        "transfer_ns": Column.time(
            "Shortest duration over ranks; absent for one root or uneven splits.", is_news_when_zero=True
        ),
        "mean_wait_ns": Column.time("Mean of duration − transfer over ranks.", adds=Adds.DERIVED),
        "max_wait_ns": Column.time("Longest of them.", adds=Adds.EXTREME),
        "max_wait_rank": Column.ident("Rank with the longest."),
        "last_rank": Column.ident("Rank that came last: the least wait."),
        "skew_ns": Column.time(
            "Last start − first start on the aligned clocks; absent when within their uncertainty.", adds=Adds.DERIVED
        ),
        "first_rank": Column.ident("Rank that came first on these clocks; absent where the skew is."),
        "skew_uncertainty_ns": Column.time("What the skew is sure to.", adds=Adds.DERIVED),
        "matched_by": Column.text("How it was found."),
        "is_ambiguous": Column.flag("The clock offset that decided had a rival with 90 % of its votes."),
    }


def across(_parts: Mapping[int, pd.DataFrame], members: Members, clocks: Clocks) -> Instances:
    """Gather the members of each instance."""
    held = members.table[members.table["is_whole"].fillna(value=False)] if len(members) else members.table
    if held.empty:
        return Instances(held.reindex(columns=list(Instances.columns)))
    groups = held.groupby("instance")
    shared = groups[["collective", "group", "group_ranks", "step", "transfer_ns", "matched_by", "is_ambiguous"]]
    sizes = groups["size_bytes"]
    table = shared.first().assign(
        ranks=groups["rank"].nunique(),
        size_bytes=sizes.first().where((sizes.min() == sizes.max()) & (sizes.count() == groups.size())),
        start_ns=groups["start_ns"].min(),
        end_ns=groups["end_ns"].max(),
        mean_wait_ns=groups["wait_ns"].mean().round().astype("Int64"),
        max_wait_ns=groups["wait_ns"].max(),
        **_extremes(held),
        **_skew(held, clocks),
    )
    return Instances(table.reset_index())


def _extremes(held: pd.DataFrame) -> dict[str, pd.Series]:
    ordered = held[held["wait_ns"].notna()].sort_values(["instance", "wait_ns", "rank"])
    ranks = ordered["rank"].astype("Int64").groupby(ordered["instance"])
    return {"max_wait_rank": ranks.last(), "last_rank": ranks.first()}


def _skew(held: pd.DataFrame, clocks: Clocks) -> dict[str, pd.Series]:
    """Spread of the starts, where it is more than the clocks' uncertainty."""
    clock = clocks.to_frame().set_index("rank")
    starts = held["start_ns"] - held["rank"].map(clock["offset_ns"])
    groups = starts.astype("Int64").groupby(held["instance"])
    skew = (groups.max() - groups.min()).where(groups.count() == groups.size())
    sure = held["rank"].map(clock["uncertainty_ns"]).groupby(held["instance"]).max()
    sure = sure.clip(lower=np.int64(LEAST_UNCERTAINTY_NS)).astype("Int64")
    skew = skew.where((skew > sure).fillna(value=False))
    ordered = held.loc[starts.sort_values(kind="stable").index]
    first = ordered["rank"].astype("Int64").groupby(ordered["instance"]).first()
    return {"skew_ns": skew, "first_rank": first.where(skew.notna()), "skew_uncertainty_ns": sure}
