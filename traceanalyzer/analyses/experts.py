"""All-to-alls with split sizes: who sends how much to whom, and what uneven loads cost."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack
from traceanalyzer.analyses.communication.clocks import Clocks
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.waits import Members
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.grouping import rows_of_each
from traceanalyzer.analyses.host.activity import names_around_launches, user_ranges
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.intervals import unions
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.kinds import dtype_bytes
from traceanalyzer.meaning.columns import Adds, Column, Written, numbers
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, only, table_of, under_each_other, without_rows

# What the split sizes of an all-to-all say: bytes that each rank sends to, keeps for, and receives from each one.


GROUP = ("group", "group_ranks")

DISPATCH, COMBINE, EXCHANGE = "dispatch", "combine", "exchange"


def of_calls(_trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """The rank's all-to-alls that carry split sizes in full and whose group is known, and its ranks or their number.

    `sends` and `receives` are tuples of bytes, one for each rank of the group (`ranks`, where the trace names them:
    `group_ranks` is empty else, see `ranks_of`); `direction` is dispatch, combine or exchange. A list that PyTorch
    leaves out is an even split.
    """
    if not len(calls) or not (calls["collective"] == "all_to_all").any():
        return calls.iloc[:0]
    own = calls[(calls["collective"] == "all_to_all") & (calls["in_split"].notna() | calls["out_split"].notna())]
    element = own["dtype"].astype("object").map(dtype_bytes, na_action="ignore").astype("Int64")
    own = own.assign(
        ranks=own["group_ranks"].astype("object").map(lambda text: numbers(text) or None),
        sent_bytes=own["in_elements"] * element,
        received_bytes=own["out_elements"] * element,
    )
    own = own.assign(**_said_in_bytes(own))
    count = own["ranks"].map(len, na_action="ignore").astype("Int64")
    own = own.assign(count=count.fillna(own["group_size"].where(own["group_ranks"].isna())))
    own = own[own[["group", "count", "sent_bytes", "received_bytes"]].notna().all(axis=1)]
    own = own.assign(
        group_ranks=own["group_ranks"].astype("object").fillna(""),
        sends=_shared(own["in_split"], own["sent_bytes"], own["count"]),
        receives=_shared(own["out_split"], own["received_bytes"], own["count"]),
    )
    own = own[own["sends"].notna() & own["receives"].notna()]
    return own.assign(direction=_directions(own))


def ranks_of(members: pd.DataFrame) -> dict[str, tuple[int, ...]]:
    """The ranks that call each group whose ranks no trace names, in order: all of them where they are as many."""
    own = members[members["group"].notna() & members["group_ranks"].isna()]
    return {str(group): tuple(sorted(set(ranks))) for group, ranks in own.groupby("group", observed=True)["rank"]}


def _said_in_bytes(own: pd.DataFrame) -> dict[str, pd.Series]:
    """`sent_bytes` and `received_bytes`, from splits that are bytes: of calls whose size is what they send together."""
    sums = [
        own[name].astype("object").map(_sum, na_action="ignore").astype("Int64") for name in ("in_split", "out_split")
    ]
    is_bytes = (own["in_elements"].isna() & (sums[0] == own["size_bytes"])).fillna(value=False)
    names = ("sent_bytes", "received_bytes")
    return {name: own[name].fillna(total.where(is_bytes)) for name, total in zip(names, sums, strict=True)}


def _sum(split: str) -> int | None:
    sizes = numbers(split)
    return sum(sizes) if sizes else None


def _directions(own: pd.DataFrame) -> np.ndarray:
    """dispatch, combine or exchange for each all-to-all, each group's in order.

    A combine takes back what the all-to-all before it has brought: its splits are those of the other way round. Layers
    of equal splits look alike from dispatch to combine and from combine to dispatch; a step begins with a dispatch, so
    that outside steps nothing is told.
    """
    found = np.full(len(own), EXCHANGE, dtype=object)
    step = own["step"].fillna(NONE).to_numpy(dtype=np.int64)
    sends, receives = (own[name].astype("object").to_numpy() for name in ("in_split", "out_split"))
    groups = Rows.of({**{name: column_of(own, name) for name in GROUP}, "step": step}, [*GROUP, "step"]).of_row
    for rows in rows_of_each(groups):
        if step[rows[0]] != NONE:
            found[rows] = _of_step(sends[rows].tolist(), receives[rows].tolist())
    return found


def _of_step(sends: Sequence[object], receives: Sequence[object]) -> list[str]:
    is_back = [
        place > 0 and (sends[place], receives[place]) == (receives[place - 1], sends[place - 1])
        for place in range(len(sends))
    ]
    return _alternating(is_back)


def _alternating(is_back: Sequence[bool]) -> list[str]:
    found: list[str] = []
    for back in is_back:
        if back and found[-1] != COMBINE:
            found[-1] = DISPATCH
            found.append(COMBINE)
        else:
            found.append(EXCHANGE)
    return found


def _shared(splits: pd.Series, total_bytes: pd.Series, counts: pd.Series) -> pd.Series:
    """Bytes by rank: the total in proportion to the sizes; `None` where the list is cut or of another length."""
    rows = zip(splits.astype("object"), total_bytes.tolist(), counts.tolist(), strict=True)
    shared = [_bytes(text, total, count) for text, total, count in rows]
    return pd.Series(shared, index=splits.index, dtype="object")


def _bytes(text: object, total_bytes: int, count: int) -> tuple[int, ...] | None:
    parts = text.split(",") if isinstance(text, str) and text else ["1"] * count
    if len(parts) != count or not all(part.isdecimal() for part in parts):
        return None
    sizes = [int(part) for part in parts]
    return tuple(total_bytes * size // (sum(sizes) or 1) for size in sizes)


# What each rank moves in each all-to-all, and between which bounds its transfer and its wait lie.


class Exchanges(Result):
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


def exchanges_per_rank(trace: RankTrace, all_to_alls: pd.DataFrame) -> pd.DataFrame:
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


def exchanges_across(parts: Mapping[int, pd.DataFrame], members: Members, clocks: Clocks) -> Exchanges:
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
    called = ranks_of(members)
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


# How uneven each dispatch of each step is, and which rank it loads most.


class DispatchLoads(Result):
    """One row for each group, all-to-all of a step that brings tokens, and step in which it brings any."""

    title: ClassVar[str] = "Dispatches of each step"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("group", "group_ranks", "place", "step")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "group": Column.text("Process group.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "place": Column.ident("Position among the step's all-to-alls of the group."),
        "step": Column.ident("Step."),
        "load_bytes": Column.size("What all ranks receive, their own parts included."),
        "mean_load_bytes": Column.size("Mean over ranks.", adds=Adds.DERIVED),
        "max_load_bytes": Column.size("Of the rank that receives most.", adds=Adds.EXTREME),
        "hot_rank": Column.ident("That rank (the first of several)."),
        "load_max_over_mean": Column.number("Largest load / mean load.", label="load max / mean"),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"load_max_over_mean": ratio(table["max_load_bytes"], table["mean_load_bytes"])})


def dispatch_loads_across(_parts: Mapping[int, pd.DataFrame], exchanges: Exchanges, groups: Groups) -> DispatchLoads:
    """Compare the ranks' loads in each dispatch."""
    rows: pd.DataFrame = exchanges.to_frame()
    if len(rows):
        rows = rows[(rows["direction"] == DISPATCH) & rows["place"].notna() & rows["step"].notna()]
    if rows.empty:
        return DispatchLoads(without_rows(DispatchLoads.columns))
    keys = ["group_label", *DispatchLoads.keys]
    told = rows.assign(group_label=labels(groups, rows))
    by_rank = told.groupby([*keys, "rank"])["load_bytes"].sum().astype("int64").reset_index()
    loads = by_rank.groupby(keys)["load_bytes"]
    hot = by_rank.loc[loads.idxmax().to_numpy()].set_index(keys)["rank"]
    table = pd.DataFrame(
        {"load_bytes": loads.sum(), "mean_load_bytes": loads.mean(), "max_load_bytes": loads.max(), "hot_rank": hot}
    )
    return DispatchLoads(table[table["load_bytes"] > 0].reset_index())


# Who sends how much to whom in all-to-alls with split sizes.


KEYS = ("group", "group_ranks", "direction", "rank", "peer")


class ExchangeSends(Result):
    """One row for each group, direction, sender and receiver."""

    title: ClassVar[str] = "All-to-alls: who sends to whom"
    keys: ClassVar[tuple[str, ...]] = KEYS
    columns: ClassVar[Mapping[str, Column]] = {
        "group": Column.text("Process group.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "direction": Column.text("dispatch, the combine that takes back what a dispatch brought, or exchange."),
        "rank": Column.ident("Global rank that sends."),
        "peer": Column.ident("Global rank that receives; the sender itself for what it keeps."),
        "calls": Column.count("All-to-alls that are looked at.", is_aside=True),
        "size_bytes": Column.size("Bytes that they send from the one to the other.", is_aside=True),
        "share_pct": Column.share("100 · bytes / all that the group sends in this direction."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        keys = ["group", "group_ranks", "direction"]
        return self._with(
            table, {"share_pct": percent(table["size_bytes"], table.groupby(keys)["size_bytes"].transform("sum"))}
        )


def exchange_sends_per_rank(_trace: RankTrace, all_to_alls: pd.DataFrame) -> pd.DataFrame:
    """What the rank sends to each rank of its groups."""
    if all_to_alls.empty:
        return pd.DataFrame()
    groups = Rows.of(all_to_alls, [*GROUP, "direction"])
    keys = zip(*(column.tolist() for column in groups.keys.values()), strict=True)
    columns = {name: array_of(all_to_alls, name) for name in ("sends", "ranks")}
    tables = [_sums(key, *(values[rows] for values in columns.values()))
              for key, rows in zip(keys, rows_of_each(groups.of_row), strict=True)]  # fmt: skip
    return under_each_other(tables)


def exchange_sends_across(parts: Mapping[int, pd.DataFrame], members: Members) -> ExchangeSends:
    """The senders' rows under each other; peers of groups whose ranks no trace names are the ranks that call them."""
    table = stack(parts, (*KEYS, "calls", "size_bytes"))
    is_bare = (table["group_ranks"] == "").to_numpy(dtype=bool)
    if not is_bare.any():
        return ExchangeSends(table)
    called = ranks_of(members.table)
    own = table[is_bare]
    most = own.groupby("group")["peer"].transform("max")
    ranks = [called.get(str(group), ()) for group in own["group"]]
    is_known = np.array([len(of) == top + 1 for of, top in zip(ranks, most, strict=True)], dtype=bool)
    peers = [of[peer] if known else NONE for of, peer, known in zip(ranks, own["peer"], is_known, strict=True)]
    told = own.assign(peer=np.array(peers, dtype=np.int64))[is_known]
    return ExchangeSends(pd.concat([table[~is_bare], told]).sort_index(ignore_index=True))


def _sums(key: tuple[object, ...], sends: np.ndarray, ranks: np.ndarray) -> pd.DataFrame:
    """Bytes to each rank of the group, or to each place in it where the trace does not name its ranks."""
    group, group_ranks, direction = key
    sums = np.array(sends.tolist(), dtype=np.int64).sum(axis=0)
    peers = np.array(ranks[0], dtype=np.int64) if isinstance(ranks[0], tuple) else np.arange(len(sums))
    return table_of(
        {"group": group, "group_ranks": group_ranks, "direction": direction, "peer": peers,
         "calls": len(sends), "size_bytes": sums}
    )  # fmt: skip


# How much each rank of a group receives in all-to-alls, beside the mean rank.


_EXCHANGE_RECEIVERS_KEYS = ["group", "group_ranks", "direction", "peer"]


class ExchangeReceivers(Result):
    """One row for each group, direction and receiver: what all of the group whose traces are here send it."""

    title: ClassVar[str] = "All-to-alls: who receives how much"
    keys: ClassVar[tuple[str, ...]] = ("group", "group_ranks", "direction", "rank")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "group": Column.text("Process group.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "direction": ExchangeSends.columns["direction"],
        "rank": Column.ident("Global rank that receives."),
        "size_bytes": Column.size("What it receives, what it keeps included."),
        "mean_bytes": Column.size("The same, of the mean rank.", adds=Adds.DERIVED),
        "of_mean": Column.number("Received / mean.", label="received / mean"),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"of_mean": ratio(table["size_bytes"], table["mean_bytes"])})


def exchange_receivers_across(
    _parts: Mapping[int, pd.DataFrame], exchange_sends: ExchangeSends, groups: Groups
) -> ExchangeReceivers:
    """Sum over senders."""
    sent = exchange_sends.table
    if sent.empty:
        return ExchangeReceivers(without_rows(ExchangeReceivers.columns))
    told = sent.assign(group_label=labels(groups, exchange_sends.to_frame()))
    sums = told.groupby(["group_label", *_EXCHANGE_RECEIVERS_KEYS])["size_bytes"].sum().astype("int64").reset_index()
    mean = sums.groupby(_EXCHANGE_RECEIVERS_KEYS[:-1])["size_bytes"].transform("mean")
    return ExchangeReceivers(sums.rename(columns={"peer": "rank"}).assign(mean_bytes=mean))


# How uneven each all-to-all of a step is, which rank it loads most, and what even ones could save at most.


_EXPERT_LAYERS_KEYS: list[str] = ["group", "group_ranks", "place"]


class ExpertLayers(Result):
    """One row for each group and all-to-all of a step, in order: means over the steps."""

    title: ClassVar[str] = "All-to-alls of a step, one by one"
    keys: ClassVar[tuple[str, ...]] = ("group", "group_ranks", "place")
    columns: ClassVar[Mapping[str, Column]] = {
        "place": Column.ident("Position among the step's all-to-alls of the group."),
        "direction": Column.text("dispatch, the combine that takes back what a dispatch brought, or exchange."),
        "range": Column.text("The user's innermost range around the launch.", written=Written.KERNEL),
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "group": Column.text("Process group.", replaced_by="group_label"),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "steps": Column.count(
            "Steps that the means are of: complete ones that all ranks share, else all.", adds=Adds.NONE
        ),
        "ranks": Column.count("Ranks whose calls were captured.", is_compared=False),
        "mean_load_bytes": Column.size(
            "What a rank receives, its own part included: mean over ranks.", adds=Adds.DERIVED
        ),
        "max_load_bytes": Column.size("The same, of the rank that receives most.", adds=Adds.EXTREME),
        "hot_rank": Column.ident("That rank; absent where all receive as much."),
        "load_max_over_mean": Column.number("Largest load / mean load.", label="load max / mean"),
        "sent_max_over_mean": Column.number(
            "What the rank that sends most sends to others / mean over ranks.", label="sent max / mean"
        ),
        "longest_ns": Column.time("Longest duration over ranks.", adds=Adds.EXTREME),
        "gbps": Column.rate("Best rate of a rank in it, decimal GB/s: the larger of sent and received / duration."),
        "transfer_at_least_ns": Column.time(
            "What the rank that moves most needs at the best rate of the group's all-to-alls.", adds=Adds.DERIVED
        ),
        "wait_at_least_ns": Column.time("Of the rank that waits most: it certainly waits so long.", adds=Adds.DERIVED),
        "wait_at_most_ns": Column.time("Of the same rank: duration − its bytes at the best rate.", adds=Adds.DERIVED),
        "saved_transfer_ns": Column.time(
            "At most saved if all ranks moved the same: (most of the larger of sent and received − their mean, for all "
            "that is sent is received) at that rate.",
            adds=Adds.DERIVED,
        ),
        "saved_compute_ns": Column.time(
            "At most saved if all ranks computed as long from a dispatch to the next all-to-all: "
            "longest − mean. Absent for others.",
            adds=Adds.DERIVED,
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(
            table,
            {
                "load_max_over_mean": ratio(table["max_load_bytes"], table["mean_load_bytes"]),
                "sent_max_over_mean": ratio(table["max_sent_bytes"], table["mean_sent_bytes"]),
            },
        )


_STORED = ("max_sent_bytes", "mean_sent_bytes")


def expert_layers_across(
    _parts: Mapping[int, pd.DataFrame], exchanges: Exchanges, steps: Steps, groups: Groups
) -> ExpertLayers:
    """Compare the ranks in each all-to-all of a step; unequal counts of all-to-alls are not compared."""
    held = exchanges.to_frame()
    held = held[held["place"].notna()]
    complete = complete_steps(steps.table)
    shared = shared_steps(complete, set(held["rank"])) if len(complete) else []
    held = held[held["step"].isin(shared)] if shared else held
    # A step whose ranks have not as many all-to-alls as in the others has no places that mean the same.
    counts = held.groupby(["group", "group_ranks", "rank", "step"]).size()
    by_group = counts.groupby(["group", "group_ranks"])
    if counts.empty or (by_group.min() != by_group.max()).any():
        return ExpertLayers(without_rows([*ExpertLayers.columns, *_STORED]))
    rows = [_row(own) for _, own in held.groupby(_EXPERT_LAYERS_KEYS)]
    table = pd.DataFrame(rows)
    first = (
        held.drop_duplicates(_EXPERT_LAYERS_KEYS)
        .sort_values(_EXPERT_LAYERS_KEYS)[["rank", "group", "group_ranks"]]
        .reset_index(drop=True)
    )
    table = table.assign(group_label=labels(groups, first))
    return ExpertLayers(table.astype({"hot_rank": "Int64", "saved_compute_ns": "Int64", "place": "int64"}))


_EITHER = ["sent_bytes", "received_bytes"]


def _row(own: pd.DataFrame) -> dict[str, object]:
    """One all-to-all of a step, over ranks and steps."""
    moved = own[_EITHER].max(axis=1)
    by_rank = own.assign(moved=moved).groupby("rank")
    means = by_rank[["load_bytes", "sent_bytes", "moved", "duration_ns", "least_transfer_ns",
                     "least_wait_ns", "most_wait_ns"]].mean()  # fmt: skip
    rate = float((own["least_transfer_ns"] / moved.where(moved > 0)).mean()) if (moved > 0).any() else 0.0
    compute = by_rank["compute_after_ns"].mean()
    waits = means["least_wait_ns"].idxmax() if means["least_wait_ns"].any() else means["most_wait_ns"].idxmax()
    load = means["load_bytes"]
    is_dispatch = (own["direction"] == DISPATCH).all() and compute.notna().all()
    return {
        **own.iloc[0][[*_EXPERT_LAYERS_KEYS, "range"]].to_dict(),
        "direction": own["direction"].iloc[0],
        "steps": own["step"].nunique(),
        "ranks": len(means),
        "mean_load_bytes": round(load.mean()),
        "max_load_bytes": round(load.max()),
        "hot_rank": int(load.idxmax()) if load.max() > load.min() else pd.NA,
        "mean_sent_bytes": round(means["sent_bytes"].mean()),
        "max_sent_bytes": round(means["sent_bytes"].max()),
        "longest_ns": round(means["duration_ns"].max()),
        "gbps": own["gbps"].astype("Float64").max(),  # absent when no exchange takes any time
        "transfer_at_least_ns": round(means["least_transfer_ns"].max()),
        "wait_at_least_ns": round(means.loc[waits, "least_wait_ns"]),
        "wait_at_most_ns": round(means.loc[waits, "most_wait_ns"]),
        "saved_transfer_ns": round(rate * (means["moved"].max() - own[_EITHER].to_numpy(dtype=float).mean())),
        "saved_compute_ns": round(float(compute.max() - compute.mean())) if is_dispatch else pd.NA,
    }
