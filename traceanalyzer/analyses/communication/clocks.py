"""By how much each rank's clock differs from the others', and how sure that is."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.alignment import LEAST_UNCERTAINTY_NS
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Column

_SPREAD_QUANTILE = 0.95


class Clocks(Result):
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
            "difference of the ends of shared synchronising instances.",
            adds=Adds.DERIVED,
        ),
        "spread_ns": Column.time("95 % of those differences are within this of their median.", adds=Adds.DERIVED),
        "uncertainty_ns": Column.time(
            "The spread, never less than 30 µs: what a figure that depends on clocks is sure to.", adds=Adds.DERIVED
        ),
        "is_significant": Column.flag("The offset is larger than its uncertainty."),
        "instances": Column.count("Instances that the offset comes from.", is_compared=False),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        uncertainty = table["spread_ns"].clip(lower=LEAST_UNCERTAINTY_NS)
        is_significant = (table["offset_ns"].abs() > uncertainty).where(table["offset_ns"].notna())
        return table.assign(uncertainty_ns=uncertainty, is_significant=is_significant.astype("boolean"))


def across(_parts: Mapping[int, pd.DataFrame], members: Members, ranks: Ranks) -> Clocks:
    """Median differences of each rank to the lowest rank of an instance, chained over groups, closest first."""
    table = pd.DataFrame({"rank": ranks.table["rank"].astype("int64")})
    found = _chained(_differences(members.table)) if len(members) else {}
    names = ("reference", "offset_ns", "spread_ns", "instances")
    columns = {
        name: [found.get(rank, (pd.NA,) * 4)[place] for rank in table["rank"]] for place, name in enumerate(names)
    }
    table = table.assign(**{name: pd.array(values, dtype="Int64") for name, values in columns.items()})
    return Clocks(table.assign(offset_ns=_centred(table)))


def _differences(members: pd.DataFrame) -> pd.DataFrame:
    """For every two ranks of which one is an instance's lowest: median difference of ends, its spread, instances."""
    held = members[members["transfer_ns"].notna()][["instance", "rank", "end_ns"]]
    lowest = held.sort_values("rank").drop_duplicates("instance").set_index("instance")
    held = held.assign(base=held["instance"].map(lowest["rank"]), difference=held["end_ns"]
                       - held["instance"].map(lowest["end_ns"]))  # fmt: skip
    held = held[held["rank"] != held["base"]]
    pairs = [held["base"], held["rank"]]
    median = held["difference"].groupby(pairs).median().round().astype("int64").rename("offset_ns")
    off = (held["difference"] - held["difference"].groupby(pairs).transform("median")).abs()
    spread = off.groupby(pairs).quantile(_SPREAD_QUANTILE).round().astype("int64").rename("spread_ns")
    return pd.concat([median, spread, off.groupby(pairs).size().rename("instances")], axis=1).reset_index()


def _chained(pairs: pd.DataFrame) -> dict[int, tuple[int, int, int, int]]:
    """For each rank its reference, offset to it, spread (largest on the way) and instances (fewest on the way)."""
    neighbours: dict[int, list[tuple[int, int, int, int]]] = {}
    for base, rank, offset, spread, instances in pairs.astype(int).itertuples(index=False):
        neighbours.setdefault(base, []).append((spread, rank, offset, instances))
        neighbours.setdefault(rank, []).append((spread, base, -offset, instances))
    found: dict[int, tuple[int, int, int, int]] = {}
    for reference in sorted(neighbours):
        if reference not in found:
            found |= _reached(reference, neighbours)
    return found


def _reached(
    reference: int, neighbours: Mapping[int, list[tuple[int, int, int, int]]]
) -> dict[int, tuple[int, int, int, int]]:
    """Ranks that share instances with the reference, directly or not, along the pairs of least spread."""
    most = max(instances for _, _, _, instances in neighbours[reference])
    found = {reference: (reference, 0, 0, most)}
    waiting = [(spread, rank, offset, count, reference) for spread, rank, offset, count in neighbours[reference]]
    while waiting:
        nearest = min(waiting)
        waiting.remove(nearest)
        spread, rank, offset, count, source = nearest
        if rank in found:
            continue
        _, base, widest, fewest = found[source]
        found[rank] = (reference, base + offset, max(widest, spread), min(fewest, count))
        waiting += [(*pair, rank) for pair in neighbours[rank] if pair[1] not in found]
    return found


def _centred(table: pd.DataFrame) -> pd.Series:
    """Offsets against the median rank of those that are connected, once there are more than two."""
    groups = table.groupby("reference", dropna=True)["offset_ns"]
    median = groups.transform(
        lambda offsets: int(np.median(offsets.to_numpy(dtype=np.int64))) if len(offsets) > 2 else 0
    )
    return (table["offset_ns"] - median).astype("Int64")
