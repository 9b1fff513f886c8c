"""What instances that end at one moment on all their ranks tell of the ranks' clocks."""

from collections.abc import Mapping

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.model.tables import rows_where, under_each_other

_SPREAD_QUANTILE = 0.95


def chained_offsets(members: pd.DataFrame) -> dict[int, tuple[int, int, int, int]]:
    """For each rank its reference, offset to it, spread (largest on the way) and instances (fewest on the way).

    Calls that exchange messages with several peers end with the last of these: only where nothing else ties two ranks
    together do they tell of their clocks.
    """
    held = rows_where(members, members["wait_ns"].notna())
    together = is_true(held["ends_together"])
    sure = _differences(held[together])
    if together.all():
        return _chained(sure)
    rest = _differences(held[~together])
    known = set(zip(sure["base"], sure["rank"], strict=True))
    is_new = [pair not in known for pair in zip(rest["base"], rest["rank"], strict=True)]
    return _chained(under_each_other([sure, rest[is_new]]))


def _differences(members: pd.DataFrame) -> pd.DataFrame:
    """For every two ranks of which one is an instance's lowest: median difference of ends, its spread, instances."""
    held = members[["instance", "rank", "end_ns"]]
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
