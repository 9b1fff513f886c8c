"""How much each rank of a group receives in all-to-alls, beside the mean rank."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, ratio
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.experts.exchange_sends import ExchangeSends
from traceanalyzer.analyses.names import ExchangeReceiversColumn
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model.tables import without_rows

_KEYS = ["group", "group_ranks", "direction", "peer"]


class ExchangeReceivers(Result[ExchangeReceiversColumn]):
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


def across(_parts: Mapping[int, pd.DataFrame], exchange_sends: ExchangeSends, groups: Groups) -> ExchangeReceivers:
    """Sum over senders."""
    sent = exchange_sends.table
    if sent.empty:
        return ExchangeReceivers(without_rows(ExchangeReceivers.columns))
    told = sent.assign(group_label=labels(groups, exchange_sends.to_frame()))
    sums = told.groupby(["group_label", *_KEYS])["size_bytes"].sum().astype("int64").reset_index()
    mean = sums.groupby(_KEYS[:-1])["size_bytes"].transform("mean")
    return ExchangeReceivers(sums.rename(columns={"peer": "rank"}).assign(mean_bytes=mean))
