"""What instances that end at one moment on all their ranks tell of the ranks' clocks."""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.matching import LEAST_UNCERTAINTY_NS

_PAIR = ["base", "rank"]

NAMES = ["reference", "offset_ns", "spread_ns", "instances"]


def chained_offsets(members: pd.DataFrame, hosts: Mapping[int, str], *, by_last_message: bool = True) -> pd.DataFrame:
    """By rank its `reference`, offset to it, spread (largest on the way) and instances (fewest on the way).

    Calls that exchange messages with several peers end with the last of these: only where nothing else ties two ranks
    together do they tell of their clocks. Those of one host are then one clock, where no message ends before both of
    its calls have begun; of others, `by_last_message`, the ends are as if they were one message's, where that
    scatters less than `_between` is unsure.
    """
    pairs = _pairs(members[members["wait_ns"].notna()])
    edges = _medians(pairs[pairs["ends_together"]])
    rest = _others(pairs[~pairs["ends_together"]], edges)
    if len(rest):
        rest = rest.assign(host=rest["rank"].map(hosts), base_host=rest["base"].map(hosts))
        one_clock = _on_one_clock(rest[rest["host"] == rest["base_host"]])
        rest = _others(rest, one_clock)
        ways = [_between(rest[rest["host"] != rest["base_host"]]), *([_medians(rest)] if by_last_message else [])]
        surest = pd.concat(ways).sort_values("spread_ns", kind="stable").drop_duplicates(_PAIR)
        edges = pd.concat([edges, one_clock, surest], ignore_index=True)
    return _chained(edges)


def _pairs(members: pd.DataFrame) -> pd.DataFrame:
    """A row for each instance and rank but its lowest, `base`: the `difference` of ends, and by how much they overlap.

    `ahead_ns` and `behind_ns` are by how much later each one's call ends than the other's begins.
    """
    held = members[["instance", "rank", "start_ns", "end_ns"]].assign(
        ends_together=is_true(members["ends_together"]), is_single=~members.duplicated(["rank", "call"], keep=False)
    )
    lowest = held.sort_values("rank").drop_duplicates("instance").set_index("instance").reindex(held["instance"])
    base, start_ns, end_ns, is_single = (
        lowest[name].to_numpy() for name in ("rank", "start_ns", "end_ns", "is_single")
    )
    held = held.assign(
        base=base,
        is_base_single=is_single,
        difference=held["end_ns"] - end_ns,
        ahead_ns=held["end_ns"] - start_ns,
        behind_ns=end_ns - held["start_ns"],
    )
    return held[held["rank"] != held["base"]]


def _others(pairs: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """The rows of ranks that are not in a row of the other table together."""
    of, others = (pd.MultiIndex.from_frame(table[_PAIR]) for table in (pairs, known))
    return pairs[~of.isin(others)]


def _medians(pairs: pd.DataFrame) -> pd.DataFrame:
    """For every two ranks of which one is an instance's lowest: median difference of ends, its spread, instances."""
    by_pair = pairs.groupby(_PAIR)["difference"]
    off = (pairs["difference"] - by_pair.transform("median")).abs().groupby([pairs[name] for name in _PAIR])
    found = {"offset_ns": by_pair.median(), "spread_ns": off.quantile(0.95), "instances": by_pair.size()}
    return pd.DataFrame(found).round().astype("int64").reset_index()


def _on_one_clock(pairs: pd.DataFrame) -> pd.DataFrame:
    """Ranks of which no message ends before both calls have begun: an offset of 0, as sure as that is."""
    by_pair = pairs.groupby(_PAIR)[["ahead_ns", "behind_ns"]]
    least = by_pair.min()
    found = least.assign(offset_ns=0, spread_ns=least.max(axis=1).clip(lower=0), instances=by_pair.size())
    return found[least.min(axis=1) >= -LEAST_UNCERTAINTY_NS].reset_index()


def _between(pairs: pd.DataFrame) -> pd.DataFrame:
    """Ranks of two hosts, each of one clock: no message ends before both of its calls have begun, whoever is last.

    A host's clock is so much ahead at most as its calls end after the others begin, and at least as these end after its
    own begin; a call with one message ends no later than that of several which holds this one. The offset is in the
    middle, and off by half of what is between.
    """
    later, ahead, behind = pairs["difference"], pairs["ahead_ns"], pairs["behind_ns"]
    ahead = ahead.where(~pairs["is_base_single"] | (ahead < later), later)
    behind = behind.where(~pairs["is_single"] | (behind < -later), -later)
    is_back = pairs["base_host"] > pairs["host"]
    sides = [pairs["base_host"].where(~is_back, pairs["host"]), pairs["host"].where(~is_back, pairs["base_host"])]
    most = ahead.where(~is_back, behind).groupby(sides).transform("min")
    least = behind.where(~is_back, ahead).groupby(sides).transform("min")
    own = pairs.assign(
        offset_ns=np.where(is_back, least - most, most - least) // 2,
        spread_ns=((most + least) // 2).clip(lower=0),
        instances=1,
    )
    by_pair = own[most + least >= -LEAST_UNCERTAINTY_NS].groupby(_PAIR)
    return by_pair.agg({"offset_ns": "first", "spread_ns": "first", "instances": "sum"}).reset_index()


def _chained(pairs: pd.DataFrame) -> pd.DataFrame:
    """The same along the pairs of least spread, from the lowest rank of those that share instances."""
    neighbours: dict[int, list[tuple[int, int, int, int]]] = {}
    for base, rank, offset, spread, instances in pairs[[*_PAIR, *NAMES[1:]]].astype(int).itertuples(index=False):
        neighbours.setdefault(base, []).append((spread, rank, offset, instances))
        neighbours.setdefault(rank, []).append((spread, base, -offset, instances))
    found: dict[int, tuple[int, int, int, int]] = {}
    for reference in sorted(neighbours):
        if reference in found:
            continue
        found[reference] = (reference, 0, 0, max(instances for *_, instances in neighbours[reference]))
        waiting = [(*pair, reference) for pair in neighbours[reference]]
        heapify(waiting)
        while waiting:
            spread, rank, offset, count, source = heappop(waiting)
            if rank not in found:
                _, base, widest, fewest = found[source]
                found[rank] = (reference, base + offset, max(widest, spread), min(fewest, count))
                for pair in neighbours[rank]:
                    heappush(waiting, (*pair, rank))
    return pd.DataFrame.from_dict(found, orient="index", columns=NAMES, dtype="Int64")
