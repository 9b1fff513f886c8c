"""Every collective that was seen on all its ranks: transfer, waits, who came last."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.alignment import LEAST_UNCERTAINTY_NS
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.names import InstancesColumn
from traceanalyzer.analyses.same_keys import places_of
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import column_of


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
    groups = Groups.of(held, ["instance"])
    sizes = column_of(held, "size_bytes")
    plain = sizes.to_numpy(dtype=np.int64, na_value=NONE)
    size, is_one_size = groups.largest(plain), ~groups.any(sizes.isna())
    shared = ("collective", "group", "group_ranks", "step", "transfer_ns", "matched_by", "is_ambiguous")
    table = groups.table(
        **{name: groups.first_known(column_of(held, name)) for name in shared},
        ranks=groups.distinct(held["rank"].to_numpy(dtype=np.int64)),
        size_bytes=_known(size, is_one_size & (groups.smallest(plain) == size)),
        start_ns=groups.smallest(held["start_ns"].to_numpy(dtype=np.int64)),
        end_ns=groups.largest(held["end_ns"].to_numpy(dtype=np.int64)),
        **_waits(held, groups),
        **_skew(held, groups, clocks),
    )
    return Instances(table)


def _known(values: np.ndarray, is_known: np.ndarray) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values, ~is_known)


def _waits(held: pd.DataFrame, groups: Groups) -> dict[str, pd.arrays.IntegerArray]:
    """How long its ranks wait, as far as known, and which of them most and least: of equals the highest, the lowest."""
    waits = held["wait_ns"].to_numpy(dtype=np.int64, na_value=NONE)
    rank, is_known = held["rank"].to_numpy(dtype=np.int64), waits != NONE
    counts = groups.sums(is_known.astype(np.int64))
    mean = np.round(groups.sums(np.where(is_known, waits, 0)) / np.maximum(counts, 1)).astype(np.int64)
    rows = np.flatnonzero(is_known)
    order = rows[np.lexsort((rank[rows], waits[rows], groups.of_row[rows]))]
    most, least = np.full(len(groups), NONE), np.full(len(groups), NONE)
    most[groups.of_row[order]] = rank[order]
    least[groups.of_row[order[::-1]]] = rank[order[::-1]]
    of_each = {"mean_wait_ns": mean, "max_wait_ns": groups.largest(waits), "max_wait_rank": most, "last_rank": least}
    return {name: _known(values, counts > 0) for name, values in of_each.items()}


def _skew(held: pd.DataFrame, groups: Groups, clocks: Clocks) -> dict[str, pd.arrays.IntegerArray]:
    """Spread of the starts, where it is more than the clocks' uncertainty."""
    clock = clocks.to_frame()
    place = places_of(held, clock, ["rank"])
    offset, uncertainty = (clock[name].array.take(place, allow_fill=True) for name in ("offset_ns", "uncertainty_ns"))
    starts = held["start_ns"].to_numpy(dtype=np.int64) - offset.to_numpy(dtype=np.int64, na_value=0)
    sure = groups.largest(uncertainty.to_numpy(dtype=np.int64, na_value=NONE))
    is_sure, sure = sure != NONE, np.maximum(sure, LEAST_UNCERTAINTY_NS)
    skew = groups.largest(starts) - groups.smallest(starts)
    is_known = ~groups.any(offset.isna()) & is_sure & (skew > sure)
    first = held["rank"].to_numpy(dtype=np.int64)[groups.at_largest(-starts)]
    return {
        "skew_ns": _known(skew, is_known),
        "first_rank": _known(first, is_known),
        "skew_uncertainty_ns": _known(sure, is_sure),
    }
