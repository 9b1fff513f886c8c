"""Who sends how much to whom in all-to-alls with split sizes."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.experts import split_sizes
from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.analyses.names import ExchangeSendsColumn
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, table_of, under_each_other

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
        return self._with(
            table, {"share_pct": percent(table["size_bytes"], table.groupby(keys)["size_bytes"].transform("sum"))}
        )


def per_rank(_trace: RankTrace, all_to_alls: pd.DataFrame) -> pd.DataFrame:
    """What the rank sends to each rank of its groups."""
    if all_to_alls.empty:
        return pd.DataFrame()
    groups = Groups.of(all_to_alls, [*split_sizes.GROUP, "direction"])
    keys = zip(*(column.tolist() for column in groups.keys.values()), strict=True)
    columns = {name: array_of(all_to_alls, name) for name in ("sends", "ranks")}
    tables = [_sums(key, *(values[rows] for values in columns.values()))
              for key, rows in zip(keys, rows_of_each(groups.of_row), strict=True)]  # fmt: skip
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


def _sums(key: tuple[object, ...], sends: np.ndarray, ranks: np.ndarray) -> pd.DataFrame:
    """Bytes to each rank of the group, or to each place in it where the trace does not name its ranks."""
    group, group_ranks, direction = key
    sums = np.array(sends.tolist(), dtype=np.int64).sum(axis=0)
    peers = np.array(ranks[0], dtype=np.int64) if isinstance(ranks[0], tuple) else np.arange(len(sums))
    return table_of(
        {"group": group, "group_ranks": group_ranks, "direction": direction, "peer": peers,
         "calls": len(sends), "size_bytes": sums}
    )  # fmt: skip
