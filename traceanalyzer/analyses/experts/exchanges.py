"""What each rank moves in each all-to-all, and between which bounds its transfer and its wait lie."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, ratio, stack
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.experts import split_sizes
from traceanalyzer.analyses.host.host_activity import names_around_launches, user_ranges
from traceanalyzer.analyses.names import ExchangesColumn
from traceanalyzer.analyses.time.intervals import unions
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, only


class Exchanges(Result[ExchangesColumn]):
    """One row for each rank and all-to-all whose split sizes the trace has.

    Ranks of an uneven all-to-all do not wait alike, so that no call's duration is another one's transfer. What is sure:
    a rank moves its bytes no faster than the best rate of its group's all-to-alls, and until the first other rank has
    come it does nothing but wait.
    """

    title: ClassVar[str] = "All-to-alls: bytes, and bounds of transfer and wait"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "call")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "call": Column.ident("Position among the rank's communication operations."),
        "step": Column.ident("Step that launched it; absent for none."),
        "place": Column.ident(
            "How many all-to-alls of its group the step had before, on this rank; absent outside steps."
        ),
        "direction": Column.text("dispatch, or the combine that takes back what a dispatch brought; else exchange."),
        "range": Column.text("The user's innermost range around the launch.", written=Written.KERNEL),
        "group": Column.text("Process group.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "start_ns": Column.moment("Start on the GPU."),
        "duration_ns": Column.time("End − start."),
        "sent_bytes": Column.size("To the other ranks."),
        "received_bytes": Column.size("From the other ranks."),
        "sends": Column.text("Bytes to each rank of the group, in its order, what it keeps included."),
        "load_bytes": Column.size("Received, its own part included."),
        "gbps": Column.rate("Decimal GB/s: the larger of sent and received / duration."),
        "least_transfer_ns": Column.time("The larger of sent and received at the best such rate of the group."),
        "least_wait_ns": Column.time(
            "From its start until the first other rank starts, on the aligned clocks, less what they are "
            "sure to; 0 where they tell nothing."
        ),
        "most_wait_ns": Column.time("Duration − least transfer."),
        "compute_after_ns": Column.time(
            "Time in which compute runs between its end and the next all-to-all of its group; absent for the last."
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"gbps": ratio(_moved(table), table["duration_ns"])})


def per_rank(trace: RankTrace, all_to_alls: pd.DataFrame) -> pd.DataFrame:
    """The rank's all-to-alls with split sizes, in order."""
    own = all_to_alls
    if own.empty:
        return pd.DataFrame()
    launch = array_of(trace.gpu_ops, "launch")[array_of(own, "gpu_op")]
    kept = np.array(
        [_kept(sends, ranks, trace.rank) for sends, ranks in zip(own["sends"], own["ranks"], strict=True)],
        dtype=np.int64,
    )
    load = own["receives"].map(sum).astype("int64")
    table = own[["call", "step", "group", "group_ranks", "start_ns", "end_ns"]].assign(
        range=names_around_launches(user_ranges(trace), trace, launch),
        sent_bytes=own["sends"].map(sum).astype("int64") - kept,
        received_bytes=load - kept,
        load_bytes=load,
        sends=own["sends"].map(lambda sends: ",".join(map(str, sends))),
        duration_ns=own["end_ns"] - own["start_ns"],
    )
    groups = table.groupby(["group", "group_ranks"], observed=True)
    parts = [_in_order(trace, part, own["direction"].loc[part.index]) for _, part in groups]
    return pd.concat(parts).sort_values("call", ignore_index=True).drop(columns="end_ns")


def across(parts: Mapping[int, pd.DataFrame], members: Members, clocks: Clocks) -> Exchanges:
    """Bound each call's transfer by the best rate of its group, and its wait by the start of the first other rank."""
    table = stack(parts, tuple(name for name in Exchanges.columns if name != "gbps"))
    table = _with_callers(table, members.table)
    if table.empty:
        return Exchanges(table.reindex(columns=[*Exchanges.columns]))
    moved = _moved(table)
    rate = (moved / table["duration_ns"]).where(table["duration_ns"] > 0)
    best = rate.groupby([table["group"], table["group_ranks"]]).transform("max")
    least = pd.Series(np.ceil(moved / best.where(best > 0))).fillna(0).astype("int64").clip(upper=table["duration_ns"])
    most_wait = table["duration_ns"] - least
    early = _early(table, members.table, clocks.to_frame())
    return Exchanges(
        table.assign(
            least_transfer_ns=least,
            most_wait_ns=most_wait,
            least_wait_ns=early.clip(lower=0).fillna(0).astype("int64").clip(upper=most_wait),
        )
    )


def _kept(sends: tuple[int, ...], ranks: tuple[int, ...] | None, rank: int) -> int:
    """What a rank of a group sends to itself."""
    return sends[ranks.index(rank)] if ranks is not None and rank in ranks and len(ranks) == len(sends) else 0


def _with_callers(table: pd.DataFrame, members: pd.DataFrame) -> pd.DataFrame:
    """Calls of groups whose ranks no trace names, less what each rank keeps; without those of unknown ranks."""
    is_bare = (table["group_ranks"] == "").to_numpy(dtype=bool)
    if not is_bare.any():
        return table
    called = split_sizes.ranks_of(members)
    own = table[is_bare]
    ranks = [called.get(str(group), ()) for group in own["group"]]
    sends = [numbers(text) for text in own["sends"]]
    is_known = np.array([len(of) == len(to) for of, to in zip(ranks, sends, strict=True)], dtype=bool)
    kept = np.array(
        [_kept(to, of, rank) for to, of, rank in zip(sends, ranks, own["rank"], strict=True)], dtype=np.int64
    )
    told = own.assign(sent_bytes=own["sent_bytes"] - kept, received_bytes=own["received_bytes"] - kept)
    return pd.concat([table[~is_bare], told[is_known]]).sort_index(ignore_index=True)


def _moved(table: pd.DataFrame) -> pd.Series:
    """The larger of sent and received: links carry both ways at once."""
    return only(table, ["sent_bytes", "received_bytes"]).max(axis=1)


def _in_order(trace: RankTrace, table: pd.DataFrame, direction: pd.Series) -> pd.DataFrame:
    """Place in the step, direction, and the compute that follows, of one group's calls."""
    compute = unions(trace)["compute"]
    ends, following = array_of(table, "end_ns"), array_of(table, "start_ns")[1:]
    after = pd.array([*compute.covered_ns(ends[:-1], following), pd.NA], dtype="Int64")
    place = table.groupby("step").cumcount().astype("Int64").where(table["step"].notna())
    return table.assign(place=place, direction=direction, compute_after_ns=after)


def _early(table: pd.DataFrame, members: pd.DataFrame, clocks: pd.DataFrame) -> pd.Series:
    """By how much each call surely starts before every other rank's of its instance; NA where clocks are not known."""
    known = clocks.set_index("rank")
    whole = members.loc[members["is_whole"].fillna(value=False), ["rank", "call", "instance"]]
    whole = whole.drop_duplicates(["rank", "call"])
    instance = table[["rank", "call"]].merge(whole, on=["rank", "call"], how="left")["instance"].set_axis(table.index)
    start = (table["start_ns"] - table["rank"].map(known["offset_ns"])).where(instance.notna()).astype("Int64")
    groups = start.groupby(instance)
    first = groups.transform("min")
    is_first = start == first
    second = start.mask(is_first.fillna(value=False)).groupby(instance).transform("min")
    is_whole = groups.transform("count") == groups.transform("size")
    unsure = table["rank"].map(known["uncertainty_ns"]).groupby(instance).transform("max")
    return (second - start - unsure).where(is_first & is_whole).astype("Int64")
