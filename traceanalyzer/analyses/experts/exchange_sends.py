"""Who sends how much to whom in all-to-alls with split sizes."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.experts import split_sizes
from traceanalyzer.analyses.names import ExchangeSendsColumn
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import table_of, under_each_other

KEYS = ("group", "group_ranks", "direction", "rank", "peer")


class ExchangeSends(Result[ExchangeSendsColumn]):
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
        return table.assign(share_pct=percent(table["size_bytes"], table.groupby(keys)["size_bytes"].transform("sum")))


def per_rank(_trace: RankTrace, calls: pd.DataFrame) -> pd.DataFrame:
    """What the rank sends to each rank of its groups."""
    own = split_sizes.of_calls(calls)
    if own.empty:
        return pd.DataFrame()
    parts = [
        part.assign(direction=split_sizes.directions(part))
        for _, part in own.groupby(["group", "group_ranks"], observed=True)
    ]
    rows = pd.concat(parts)
    tables = [_sums(key, part) for key, part in rows.groupby(["group", "group_ranks", "direction"], observed=True)]
    return under_each_other(tables)


def across(parts: Mapping[int, pd.DataFrame], members: Members) -> ExchangeSends:
    """The senders' rows under each other; peers of groups whose ranks no trace names are the ranks that call them."""
    table = stack(parts, (*KEYS, "calls", "size_bytes"))
    is_bare = (table["group_ranks"] == "").to_numpy(dtype=bool)
    if not is_bare.any():
        return ExchangeSends(table)
    called = split_sizes.ranks_of(members.table)
    own = table[is_bare]
    most = own.groupby("group")["peer"].transform("max")
    ranks = [called.get(str(group), ()) for group in own["group"]]
    is_known = np.array([len(of) == top + 1 for of, top in zip(ranks, most, strict=True)], dtype=bool)
    peers = [of[peer] if known else NONE for of, peer, known in zip(ranks, own["peer"], is_known, strict=True)]
    told = own.assign(peer=np.array(peers, dtype=np.int64))[is_known]
    return ExchangeSends(pd.concat([table[~is_bare], told]).sort_index(ignore_index=True))


def _sums(key: tuple[object, ...], calls: pd.DataFrame) -> pd.DataFrame:
    group, group_ranks, direction = key
    sums = np.array(calls["sends"].tolist(), dtype=np.int64).sum(axis=0)
    return table_of(
        {"group": group, "group_ranks": group_ranks, "direction": direction, "peer": _peers(calls),
         "calls": len(calls), "size_bytes": sums}
    )  # fmt: skip


def _peers(calls: pd.DataFrame) -> tuple[int, ...]:
    """The ranks of the calls' group; their places in it where the trace does not name them."""
    ranks = calls["ranks"].iloc[0]
    return ranks if isinstance(ranks, tuple) else tuple(range(len(calls["sends"].iloc[0])))
