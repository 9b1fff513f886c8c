"""How long each rank waits inside each collective."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.analyses.names import CollectiveWaitsColumn
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model.tables import without_rows


class CollectiveWaits(Result[CollectiveWaitsColumn]):
    """One row for each rank and collective of which a wait is known, of all groups and sizes."""

    title: ClassVar[str] = "Waiting, by rank and collective"
    keys: ClassVar[tuple[str, ...]] = ("rank", "collective")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
        "wait_ns": Column.time(
            "Time inside such calls before their last rank came, hidden or not: sum over calls.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "all_wait_ns": Column.time("The same of all the rank's collectives.", adds=Adds.DERIVED, better=Better.LESS),
    }


def across(_parts: Mapping[int, pd.DataFrame], collectives: Collectives) -> CollectiveWaits:
    """Sum what `collectives` has of each group and size class."""
    known = collectives.table[collectives.table["wait_ns"].notna()]
    if known.empty:
        return CollectiveWaits(without_rows(CollectiveWaits.columns))
    waits = known.groupby(list(CollectiveWaits.keys), observed=True)["wait_ns"].sum().astype("Int64")
    table = waits.reset_index()
    return CollectiveWaits(table.assign(all_wait_ns=table.groupby("rank")["wait_ns"].transform("sum")))
