"""Hosts by steps: how much longer than the median host's each one's slowest rank needs for its own part of a step."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, typed
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.step_parts import OWN_PARTS
from traceanalyzer.analyses.names import HostStepsColumn
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.meaning.vocabulary import TRANSFER
from traceanalyzer.model.tables import without_rows

_OWN = (*OWN_PARTS, TRANSFER.column)


class HostSteps(Result[HostStepsColumn]):
    """One row for each step that is not partial, and host: its rank that needs most, for which the others wait.

    What a rank needs is its compute, copies, idle time and exposed transfers: waits for others are not its own.
    """

    title: ClassVar[str] = "Hosts by steps"
    keys: ClassVar[tuple[str, ...]] = ("step", "host")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "step": Column.ident("Step."),
        "host": Column.text("Host, as `ranks` has it."),
        "slowest_rank": Column.ident("Its rank that needs most in this step (the first of several)."),
        "needs_ns": Column.time("What that one needs.", adds=Adds.EXTREME, better=Better.LESS),
        "median_ns": Column.time("The same, of the median host.", adds=Adds.DERIVED),
        "longer_pct": Column.share("100 · (needs − median) / median.", better=Better.LESS),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        longer = percent(table["needs_ns"] - table["median_ns"], table["median_ns"].where(table["median_ns"] > 0))
        return self._with(table, {"longer_pct": longer})


def across(_parts: Mapping[int, pd.DataFrame], step_needs: StepNeeds, ranks: Ranks) -> HostSteps:
    """The slowest rank of each host in each step; no rows of a single host, or where hosts or steps are not known."""
    hosts = ranks.table.dropna(subset="host").sort_values("rank").set_index("rank")["host"].astype("str")
    needs = step_needs.table
    if hosts.nunique() < 2 or needs.empty:
        return HostSteps(without_rows(HostSteps.columns))
    held = needs[needs["step"].notna() & ~needs["is_partial"].astype(bool) & needs["rank"].isin(hosts.index)]
    own = held[list(_OWN)].astype("float64").sum(axis=1)
    table = pd.DataFrame({"step": held["step"].astype("int64"), "host": held["rank"].map(hosts)})
    table = table.assign(slowest_rank=held["rank"], needs_ns=own)
    table = table.sort_values(["needs_ns", "slowest_rank"], ascending=[False, True], kind="stable")
    table = table.drop_duplicates(["step", "host"])
    order = {host: place for place, host in enumerate(hosts.unique())}
    table = table.sort_values(["step", "host"], key=lambda own: own.map(order) if own.name == "host" else own)
    table = table.assign(median_ns=table.groupby("step")["needs_ns"].transform("median")).reset_index(drop=True)
    return HostSteps(typed(table, {"host": "str", "slowest_rank": "int64", "needs_ns": "float64"}))
