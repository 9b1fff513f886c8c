"""By how much each rank's clock differs from the others', and how sure that is."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.alignment import LEAST_UNCERTAINTY_NS
from traceanalyzer.analyses.communication.clock_offsets import chained_offsets
from traceanalyzer.analyses.communication.hosts import hosts_of
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.names import ClocksColumn
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model.tables import table_of


class Clocks(Result[ClocksColumn]):
    """One row for each rank. A collective that synchronises ends at one moment on all its ranks."""

    title: ClassVar[str] = "Clock offsets"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "reference": Column.ident(
            "Lowest of the ranks that it shares instances with, directly or not; absent without any."
        ),
        "offset_ns": Column.time(
            "Rank's clock − the median of those ranks' clocks (of two ranks: the lower one's): median "
            "difference of the ends of shared synchronising instances; 0 of ranks of one host that share only calls "
            "with several peers, of which none ends before both have begun; of two hosts that share only such calls "
            "the middle of the offsets with which none does, where that is surer.",
            adds=Adds.DERIVED,
        ),
        "spread_ns": Column.time("95 % of those differences are within this of their median.", adds=Adds.DERIVED),
        "uncertainty_ns": Column.time(
            "The spread, never less than 30 µs: what a figure that depends on clocks is sure to.", adds=Adds.DERIVED
        ),
        "is_significant": Column.flag("The offset is larger than its uncertainty."),
        "instances": Column.count("Instances that the offset comes from.", is_compared=False),
    }

    def offsets_ns(self) -> dict[int, int]:
        """By rank how far its clock is ahead, where that is known."""
        known = self.table[self.table["offset_ns"].notna()]
        return dict(zip(known["rank"].astype(int), known["offset_ns"].astype(int), strict=True))

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        uncertainty = table["spread_ns"].clip(lower=LEAST_UNCERTAINTY_NS)
        is_significant = (table["offset_ns"].abs() > uncertainty).where(table["offset_ns"].notna())
        return self._with(table, {"uncertainty_ns": uncertainty, "is_significant": is_significant.astype("boolean")})


def across(_parts: Mapping[int, pd.DataFrame], members: Members, ranks: Ranks) -> Clocks:
    """Median differences of each rank to the lowest rank of an instance, chained over groups, closest first."""
    table = table_of({"rank": ranks.table["rank"].astype("int64")})
    found = chained_offsets(members.table, hosts_of(ranks.table)) if len(members) else {}
    names = ("reference", "offset_ns", "spread_ns", "instances")
    columns = {
        name: [found.get(rank, (pd.NA,) * 4)[place] for rank in table["rank"]] for place, name in enumerate(names)
    }
    table = table.assign(**{name: pd.array(values, dtype="Int64") for name, values in columns.items()})
    return Clocks(table.assign(offset_ns=_centred(table)))


def _centred(table: pd.DataFrame) -> pd.Series:
    """Offsets against the median rank of those that are connected, once there are more than two."""
    groups = table.groupby("reference", dropna=True)["offset_ns"]
    median = groups.transform(
        lambda offsets: int(np.median(offsets.to_numpy(dtype=np.int64))) if len(offsets) > 2 else 0
    )
    return (table["offset_ns"] - median).astype("Int64")
