"""How uneven each dispatch of each step is, and which rank it loads most."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, ratio
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.experts.exchanges import Exchanges
from traceanalyzer.analyses.experts.split_sizes import DISPATCH
from traceanalyzer.analyses.names import DispatchLoadsColumn
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model.tables import without_rows


class DispatchLoads(Result[DispatchLoadsColumn]):
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


def across(_parts: Mapping[int, pd.DataFrame], exchanges: Exchanges, groups: Groups) -> DispatchLoads:
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
