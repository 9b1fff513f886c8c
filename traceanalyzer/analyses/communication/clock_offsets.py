"""What instances that end at one moment on all their ranks tell of the ranks' clocks."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.matching import LEAST_UNCERTAINTY_NS
from traceanalyzer.model.tables import rows_where, under_each_other, without_rows

_SPREAD_QUANTILE = 0.95


def chained_offsets(
    members: pd.DataFrame, hosts: Mapping[int, str], *, by_last_message: bool = True
) -> dict[int, tuple[int, int, int, int]]:
    """For each rank its reference, offset to it, spread (largest on the way) and instances (fewest on the way).

    Calls that exchange messages with several peers end with the last of these: only where nothing else ties two ranks
    together do they tell of their clocks. Those of one host are then one clock, where no message ends before both of
    its calls have begun; of others, `by_last_message`, the ends are as if they were one message's, where that
    scatters less than `_between` is unsure.
    """
    held = rows_where(members, members["wait_ns"].notna())
    held = held.assign(is_single=~held.duplicated(["rank", "call"], keep=False))
    together = is_true(held["ends_together"])
    sure = _told(_pairs(held[together]))
    if together.all():
        return _chained(sure)
    rest = _without(_pairs(held[~together]), sure)
    one_clock = _on_one_clock(rest[(rest["base"].map(hosts) == rest["rank"].map(hosts)).to_numpy(dtype=bool)])
    others = _without(rest, one_clock)
    told = [_between(others, hosts), *([_told(others)] if by_last_message else [])]
    surest = pd.concat([each for each in told if len(each)] or told[:1]).sort_values("spread_ns", kind="stable")
    return _chained(under_each_other([sure, one_clock, surest.drop_duplicates(["base", "rank"])]))


def _without(pairs: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """The rows of ranks that are not in a row of the other table together."""
    of, others = (pd.MultiIndex.from_frame(table[["base", "rank"]]) for table in (pairs, known))
    return pairs[~of.isin(others)]


def _on_one_clock(pairs: pd.DataFrame) -> pd.DataFrame:
    """Ranks of which no message ends before both calls have begun: an offset of 0, as sure as that is."""
    ranks = [pairs["base"], pairs["rank"]]
    least = pairs.assign(instances=1).groupby(ranks).agg({"ahead_ns": "min", "behind_ns": "min", "instances": "sum"})
    both = least[["ahead_ns", "behind_ns"]]
    least = least.assign(offset_ns=0, spread_ns=both.max(axis=1).clip(lower=0))[
        both.min(axis=1) >= -LEAST_UNCERTAINTY_NS
    ]
    return least[["offset_ns", "spread_ns", "instances"]].reset_index()


def _between(pairs: pd.DataFrame, hosts: Mapping[int, str]) -> pd.DataFrame:
    """Ranks of two hosts, each of one clock: no message ends before both of its calls have begun, whoever is last.

    A host's clock is so much ahead at most as its calls end after the others begin, and at least as these end after its
    own begin; a call with one message ends no later than that of several which holds this one. The offset is in the
    middle, and off by half of what is between.
    """
    own = pairs.assign(one=pairs["base"].map(hosts), other=pairs["rank"].map(hosts))
    own = rows_where(own, own["one"].notna() & own["other"].notna() & (own["one"] != own["other"]))
    if own.empty:
        return without_rows(("base", "rank", "offset_ns", "spread_ns", "instances"))
    later = own["difference"]
    ahead_ns = np.where(own["is_base_single"], np.minimum(own["ahead_ns"], later), own["ahead_ns"])
    behind_ns = np.where(own["is_single"], np.minimum(own["behind_ns"], -later), own["behind_ns"])
    is_back = (own["one"] > own["other"]).to_numpy()
    own = own.assign(
        low=np.where(is_back, own["other"], own["one"]),
        high=np.where(is_back, own["one"], own["other"]),
        ahead_ns=np.where(is_back, behind_ns, ahead_ns),
        behind_ns=np.where(is_back, ahead_ns, behind_ns),
        sign=np.where(is_back, -1, 1),
        instances=1,
    )
    ahead, behind = (own.groupby(["low", "high"])[name].transform("min") for name in ("ahead_ns", "behind_ns"))
    own = own.assign(offset_ns=own["sign"] * (ahead - behind) // 2, spread_ns=((ahead + behind) // 2).clip(lower=0))
    own = rows_where(own, ahead + behind >= -LEAST_UNCERTAINTY_NS)
    made = own.groupby(["base", "rank"]).agg({"offset_ns": "first", "spread_ns": "first", "instances": "sum"})
    return made.reset_index()


def _pairs(members: pd.DataFrame) -> pd.DataFrame:
    """A row for each instance and rank but its lowest, `base`: the `difference` of ends, and by how much they overlap.

    `ahead_ns` and `behind_ns` are by how much later each one's call ends than the other's begins.
    """
    held = members[["instance", "rank", "start_ns", "end_ns", "is_single"]]
    lowest = held.sort_values("rank").drop_duplicates("instance").set_index("instance").reindex(held["instance"])
    base, start_ns, end_ns = (lowest[name].to_numpy() for name in ("rank", "start_ns", "end_ns"))
    held = held.assign(
        base=base,
        is_base_single=lowest["is_single"].to_numpy(),
        difference=held["end_ns"] - end_ns,
        ahead_ns=held["end_ns"] - start_ns,
        behind_ns=end_ns - held["start_ns"],
    )
    return held[held["rank"] != held["base"]]


def _told(held: pd.DataFrame) -> pd.DataFrame:
    """For every two ranks of which one is an instance's lowest: median difference of ends, its spread, instances."""
    pairs = [held["base"], held["rank"]]
    median = held["difference"].groupby(pairs).median().round().astype("int64").rename("offset_ns")
    off = (held["difference"] - held["difference"].groupby(pairs).transform("median")).abs()
    spread = off.groupby(pairs).quantile(_SPREAD_QUANTILE).round().astype("int64").rename("spread_ns")
    return pd.concat([median, spread, off.groupby(pairs).size().rename("instances")], axis=1).reset_index()


def _chained(pairs: pd.DataFrame) -> dict[int, tuple[int, int, int, int]]:
    """The same along the pairs of least spread, from the lowest rank of those that share instances."""
    neighbours: dict[int, list[tuple[int, int, int, int]]] = {}
    for base, rank, offset, spread, instances in pairs.astype(int).itertuples(index=False):
        neighbours.setdefault(base, []).append((spread, rank, offset, instances))
        neighbours.setdefault(rank, []).append((spread, base, -offset, instances))
    found: dict[int, tuple[int, int, int, int]] = {}
    for reference in sorted(neighbours):
        if reference in found:
            continue
        found[reference] = (reference, 0, 0, max(instances for *_, instances in neighbours[reference]))
        waiting = [(*pair, reference) for pair in neighbours[reference]]
        while waiting:
            nearest = min(waiting)
            waiting.remove(nearest)
            spread, rank, offset, count, source = nearest
            if rank not in found:
                _, base, widest, fewest = found[source]
                found[rank] = (reference, base + offset, max(widest, spread), min(fewest, count))
                waiting += [(*pair, rank) for pair in neighbours[rank] if pair[1] not in found]
    return found
