"""Every collective that was seen on all its ranks: transfer, waits, who came last."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.clocks import LEAST_UNCERTAINTY_NS, Clocks
from traceanalyzer.analyses.communication.members import Members


class Instances(Result):
    """One row for each collective, or exchange of messages between two ranks, in order of start."""

    title: ClassVar[str] = "Collectives seen on all their ranks"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("instance",)
    columns: ClassVar[Mapping[str, str]] = {
        "instance": "Number, in order of first start.",
        "collective": "Collective or point-to-point operation.",
        "group": "Process group; absent when the trace does not say.",
        "group_ranks": "Global ranks of the group.",
        "step": "Step that launched it; absent for none.",
        "ranks": "Ranks that take part.",
        "size_bytes": "Size of the full array; absent when unknown or not the same on all ranks.",
        "start_ns": "First start.",
        "end_ns": "Last end.",
        "transfer_ns": "Shortest duration over ranks; absent for one root or uneven splits.",
        "mean_wait_ns": "Mean of duration − transfer over ranks.",
        "max_wait_ns": "Longest of them.",
        "max_wait_rank": "Rank with the longest.",
        "last_rank": "Rank that came last: the least wait.",
        "skew_ns": "Last start − first start on the aligned clocks; absent when within their uncertainty.",
        "first_rank": "Rank that came first on these clocks; absent where the skew is.",
        "skew_uncertainty_ns": "What the skew is sure to.",
        "matched_by": "How it was found.",
        "is_ambiguous": "The clock offset that decided had a rival with 90 % of its votes.",
    }


def across(_parts: Mapping[int, pd.DataFrame], members: Members, clocks: Clocks) -> Instances:
    """Gather the members of each instance."""
    held = members.table[members.table["instance"].notna()] if len(members) else members.table
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
    ranks = ordered.astype({"rank": "Int64"}).groupby("instance")["rank"]
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
    first = ordered.astype({"rank": "Int64"}).groupby("instance")["rank"].first()
    return {"skew_ns": skew, "first_rank": first.where(skew.notna()), "skew_uncertainty_ns": sure}
