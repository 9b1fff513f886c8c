"""Which ranks are of one job, and which host each is on."""

from collections.abc import Iterable, Mapping

import pandas as pd

from traceanalyzer.meaning.columns import numbers


def jobs_of(members: pd.DataFrame, ranks: Iterable[int], meeting: Iterable[tuple[int, ...]] = ()) -> Mapping[int, int]:
    """For each rank the lowest rank of its job; all are one where a call tells neither its group nor its partners.

    Args:
        members: of `Members`.
        ranks: those that are asked for.
        meeting: ranks whose hosts meet in a collective of their CPUs, at least one each.
    """
    asked, meeting = [int(rank) for rank in ranks], tuple(meeting)
    if (members.empty and not meeting) or not asked:
        return {rank: rank for rank in asked}
    texts = members["group_ranks"].astype("object").where(members["group_ranks"].notna(), None)
    groups = {text: numbers(text) for text in texts.dropna().unique()}
    if (texts.map(groups).isna() & members["instance"].isna()).any() or not all(groups.values()):
        return dict.fromkeys(asked, min(asked))
    jobs = connected([*groups.values(), *_met(members), *meeting, *((rank,) for rank in asked)])
    lowest = {rank: min({*job} & {*asked}) for job in jobs for rank in {*job} & {*asked}}
    return {rank: lowest[rank] for rank in asked}


def _met(members: pd.DataFrame) -> Iterable[tuple[int, ...]]:
    """Ranks that next to each other take part in the same instance: of what the trace names no group for."""
    held = members.loc[members["instance"].notna(), ["instance", "rank"]].drop_duplicates()
    held = held.sort_values(["instance", "rank"])
    pairs = held.assign(before=held.groupby("instance")["rank"].shift()).dropna()[["before", "rank"]]
    return ((int(low), int(high)) for low, high in pairs.drop_duplicates().itertuples(index=False))


def connected(links: Iterable[Iterable[int]]) -> list[list[int]]:
    """The sets of ranks that links join, directly or through others, each in ascending order."""
    sets: list[set[int]] = []
    for link in map(set, links):
        apart = [own for own in sets if own.isdisjoint(link)]
        sets = [*apart, link.union(*(own for own in sets if not own.isdisjoint(link)))]
    return sorted(map(sorted, sets))


HOST_RANKS = 8
"""GPUs of a host, where the trace does not say which rank is where."""


def hosts_of(ranks: pd.DataFrame) -> Mapping[int, str]:
    """The host of each rank of `Ranks`; blocks of 8 neighbours where any is not known."""
    if ranks["host"].isna().any():
        return {int(rank): str(rank // HOST_RANKS) for rank in ranks["rank"]}
    return dict(zip(ranks["rank"].astype(int), ranks["host"].astype(str), strict=True))
