"""All-to-alls with split sizes: who sends how much to whom, and what uneven loads cost."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import (
    CALL,
    GPU_START,
    GROUP_LABEL,
    GROUP_NAME,
    GROUP_RANKS,
    INNERMOST_RANGE,
    RANK,
    STEP_OF_LAUNCH,
    Result,
    percent,
    plain_rows,
    ratio,
    stack,
)
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.waits import Members
from traceanalyzer.analyses.host.activity import names_around_launches, user_ranges
from traceanalyzer.kinds import dtype_bytes
from traceanalyzer.meaning.columns import Column, declared, numbers
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, table_of, under_each_other

GROUP = ("group", "group_ranks")

DISPATCH, COMBINE, EXCHANGE = "dispatch", "combine", "exchange"


def of_calls(calls: pd.DataFrame) -> pd.DataFrame:
    """The rank's all-to-alls that carry split sizes in full and whose group is known, and its ranks or their number.

    `sends` and `receives` are tuples of bytes, one for each rank of the group; `group_ranks` is empty where the trace
    does not name them (`_ranks_of`); `direction` is dispatch, combine or exchange. A list that PyTorch leaves out is an
    even split. Splits of calls whose size is what they send together are bytes.
    """
    if not len(calls):
        return calls
    own = calls[(calls["collective"] == "all_to_all") & (calls["in_split"].notna() | calls["out_split"].notna())]
    if own.empty:
        return own
    own = own.assign(group_ranks=own["group_ranks"].astype("object").fillna(""))
    for name, way in (("sends", "in"), ("receives", "out")):
        splits = [_bytes(row, way) for row in plain_rows(own)]
        own = own.assign(**{name: pd.Series(splits, own.index, dtype="object")})
    own = own[own[["group", "sends", "receives"]].notna().all(axis=1)]
    return own.assign(direction=_directions(own))


def _bytes(row: Mapping[str, Any], way: str) -> tuple[int, ...] | None:
    """Bytes to or from each rank of the group, in proportion to the sizes; `None` where they are not known."""
    listed, text, sent = numbers(row["group_ranks"]), row[f"{way}_split"], numbers(row["in_split"])
    count = len(listed) or (0 if row["group_ranks"] else row["group_size"] or 0)
    parts = text.split(",") if text else ["1"] * count
    if not count or len(parts) != count or not all(part.isdecimal() for part in parts):
        return None
    sizes, element, elements = [int(part) for part in parts], dtype_bytes(row["dtype"]), row[f"{way}_elements"]
    if element and elements is not None:
        total = elements * element
    elif row["in_elements"] is None and sum(sent) == row["size_bytes"]:
        total = sum(numbers(text))
    else:
        return None
    return tuple(total * size // (sum(sizes) or 1) for size in sizes)


def _ranks_of(table: pd.DataFrame, members: pd.DataFrame) -> list[tuple[int, ...]]:
    """The ranks of each row's group, in order; where no trace names them those that call it."""
    bare = members[members["group"].notna() & members["group_ranks"].isna()]
    called = {str(group): tuple(sorted({*ranks})) for group, ranks in bare.groupby("group", observed=True)["rank"]}
    pairs = zip(table["group"], table["group_ranks"], strict=True)
    return [numbers(text) or called.get(str(group), ()) for group, text in pairs]


def _directions(own: pd.DataFrame) -> np.ndarray:
    """dispatch, combine or exchange for each all-to-all, each group's in order.

    A combine takes back what the all-to-all before it has brought: its splits are those of the other way round. Layers
    of equal splits look alike from dispatch to combine and from combine to dispatch; a step begins with a dispatch, so
    that outside steps nothing is told.
    """
    found = np.full(len(own), EXCHANGE, dtype=object)
    splits = list(zip(own["in_split"].astype("object"), own["out_split"].astype("object"), strict=True))
    for rows in own.groupby([*GROUP, "step"], observed=True).indices.values():
        for before, row in pairwise(rows):
            if found[before] != COMBINE and splits[row] == splits[before][::-1]:
                found[before], found[row] = DISPATCH, COMBINE
    return found


class Exchanges(Result):
    """One row for each rank and all-to-all whose split sizes the trace has."""

    title = "All-to-alls: bytes"
    is_detail = True
    keys = ("rank", "call")
    columns = declared(
        rank=RANK,
        call=CALL,
        step=STEP_OF_LAUNCH,
        place="How many all-to-alls of its group the step had before, on this rank; absent outside steps.",
        direction="dispatch, or the combine that takes back what a dispatch brought; else exchange.",
        range=INNERMOST_RANGE,
        group=GROUP_NAME,
        group_ranks=GROUP_RANKS,
        start_ns=GPU_START,
        duration_ns="End − start.",
        sent_bytes="To the other ranks.",
        received_bytes="From the other ranks.",
        sends="Bytes to each rank of the group, in its order, what it keeps included.",
        load_bytes="Received, its own part included.",
        gbps="Decimal GB/s: the larger of sent and received / duration.",
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        moved = table[_EITHER].max(axis=1)  # links carry both ways at once
        return table.assign(gbps=ratio(moved, table["duration_ns"]))


def exchanges_per_rank(trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """The rank's all-to-alls with split sizes, in order; what it keeps counts as sent and received yet."""
    own = of_calls(calls)
    if own.empty:
        return pd.DataFrame()
    load = own["receives"].map(sum).astype("int64")
    table = own[["call", "step", "group", "group_ranks", "direction", "start_ns"]].assign(
        range=names_around_launches(user_ranges(trace), trace, trace.launch[array_of(own, "gpu_op")]),
        sent_bytes=own["sends"].map(sum).astype("int64"),
        received_bytes=load,
        load_bytes=load,
        sends=own["sends"].map(lambda sends: ",".join(map(str, sends))),
        duration_ns=own["end_ns"] - own["start_ns"],
    )
    place = table.groupby([*GROUP, "step"], observed=True).cumcount().astype("Int64")
    return table.assign(place=place.where(table["step"].notna())).sort_values("call", ignore_index=True)


def exchanges_across(parts: Mapping[int, pd.DataFrame], members: Members) -> Exchanges:
    """The ranks' rows of groups whose ranks are known, without what a rank keeps in what it sends and receives."""
    table = stack(parts, tuple(name for name in Exchanges.columns if name != "gbps"))
    ranks, sends = _ranks_of(table, members.table), [numbers(text) for text in table["sends"]]
    kept = [to[of.index(rank)] if rank in of and len(of) == len(to) else 0
            for of, to, rank in zip(ranks, sends, table["rank"], strict=True)]  # fmt: skip
    is_known = [len(of) == len(to) for of, to in zip(ranks, sends, strict=True)]
    table = table.assign(**{name: table[name] - np.array(kept, dtype=np.int64) for name in _EITHER})
    return Exchanges(table[np.array(is_known, dtype=bool)].reset_index(drop=True))


_EITHER = ["sent_bytes", "received_bytes"]


class ExchangeSends(Result):
    """One row for each group, direction, sender and receiver."""

    title = "All-to-alls: who sends to whom"
    keys = (*GROUP, "direction", "rank", "peer")
    columns = declared(
        group_label=GROUP_LABEL,
        group=GROUP_NAME,
        group_ranks=GROUP_RANKS,
        direction="dispatch, the combine that takes back what a dispatch brought, or exchange.",
        rank="Global rank that sends.",
        peer="Global rank that receives; the sender itself for what it keeps.",
        calls="All-to-alls that are looked at.",
        size_bytes="Bytes that they send from the one to the other.",
        share_pct="100 · bytes / all that the group sends in this direction.",
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        sums = table.groupby([*GROUP, "direction"])["size_bytes"].transform("sum")
        return table.assign(share_pct=percent(table["size_bytes"], sums))


def exchange_sends_across(exchanges: Exchanges, members: Members, groups: Groups) -> ExchangeSends:
    """Add up what each rank sends; peers of groups whose ranks no trace names are the ranks that call them."""
    held, keys = exchanges.table, [*GROUP, "direction", "rank"]
    tables = []
    for key, own in held.assign(peers=_ranks_of(held, members.table)).groupby(keys, observed=True):
        sums = np.array([numbers(text) for text in own["sends"]], dtype=np.int64).sum(axis=0)
        sent = {"peer": np.array(own["peers"].iloc[0]), "calls": len(own), "size_bytes": sums}
        tables.append(table_of({**dict(zip(keys, key, strict=True)), **sent}))
    if not tables:
        return ExchangeSends.without_rows()
    table = under_each_other(tables).sort_values("rank", kind="stable", ignore_index=True)
    return ExchangeSends(table.assign(group_label=labels(groups, table)))


class ExpertLayers(Result):
    """One row for each group, all-to-all of a step, in order, and step."""

    title = "All-to-alls of a step, one by one"
    keys = (*GROUP, "place", "step")
    derived = {"load_max_over_mean": "max_load_bytes / mean_load_bytes"}
    columns = declared(
        place="Position among the step's all-to-alls of the group.",
        step="Step.",
        direction="dispatch, the combine that takes back what a dispatch brought, or exchange.",
        range=INNERMOST_RANGE,
        group_label=GROUP_LABEL,
        group=GROUP_NAME,
        group_ranks=GROUP_RANKS,
        ranks="Ranks whose calls were captured.",
        load_bytes="What they receive, their own parts included.",
        mean_load_bytes="Mean over ranks.",
        max_load_bytes="Of the rank that receives most.",
        hot_rank="That rank (the first of several); absent where all receive as much.",
        load_max_over_mean=Column.number("Largest load / mean load.", label="load max / mean"),
        longest_ns="Longest duration over ranks.",
        gbps="Best rate of a rank in it, decimal GB/s: the larger of sent and received / duration.",
    )

    def dispatches(self) -> pd.DataFrame:
        """The rows of those that bring tokens."""
        table = self.to_frame()
        return table[(table["direction"] == DISPATCH) & (table["load_bytes"] > 0)]


def expert_layers_across(exchanges: Exchanges, groups: Groups) -> ExpertLayers:
    """Compare the ranks in each all-to-all of each step; not in steps where ranks have unequal counts of them."""
    held = exchanges.to_frame().dropna(subset=["place"])
    if held.empty:
        return ExpertLayers.without_rows()
    calls = held.groupby([*ExpertLayers.keys])
    loads = calls["load_bytes"]
    hot = pd.Series(held["rank"][loads.idxmax()].array, loads.size().index, dtype="Int64")
    table = loads.agg(ranks="size", load_bytes="sum", mean_load_bytes="mean", max_load_bytes="max").assign(
        hot_rank=hot.where(loads.max() > loads.min()), longest_ns=calls["duration_ns"].max(), gbps=calls["gbps"].max()
    )
    table = table.join(calls[["direction", "range"]].first()).reset_index()
    # Where fewer ranks have a later all-to-all, places do not mean the same on each rank.
    ranks = table.groupby([*GROUP, "step"])["ranks"]
    table = table[ranks.transform("min") == ranks.transform("max")].reset_index(drop=True)
    return ExpertLayers(table.assign(group_label=labels(groups, table)))
