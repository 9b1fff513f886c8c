"""Whose links are slow: of groups that move data for longer than their sister groups the rank, or host, in them all."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from msgspec import Struct

Ranks = frozenset[int]

_SEVERAL = 2
"""Partners: of one alone the link may be either one's."""

_MOST = 3
"""Slow groups of a rank that leaves some in time: fewer may be so many links by themselves."""


class Owner(Struct, frozen=True):
    """The ranks whose links are slow; `is_most` where that is so of most of their groups, and not of all."""

    ranks: Ranks
    is_most: bool = False


def whose_links(slow: Collection[Ranks], every: Collection[Ranks], hosts: Mapping[int, str]) -> Mapping[Ranks, Owner]:
    """For each slow group whose links are slow: of the ranks of a host, or of one rank; nothing where that is open.

    All groups that lead from there to others are slow, with several partners, and none of them may be another rank's
    (host's) for the same reason. Groups are held against all, then against those that stay within hosts, or leave them.
    At last a rank's of which more than half are slow, three at the least, and no other rank's are so.

    Args:
        slow: the ranks of groups that move data for longer.
        every: of all groups that are held against others, those among them.
        hosts: the host of each rank.
    """
    found: dict[Ranks, Owner] = {}
    of_host: dict[str, set[int]] = defaultdict(set)
    for rank in frozenset[int]().union(*every):
        of_host[hosts[rank]].add(rank)
    whole = [frozenset(ranks) for ranks in of_host.values() if len(ranks) > 1]
    alone = [frozenset({rank}) for rank in sorted(frozenset[int]().union(*slow))]
    for owners in (whole, alone):
        for held in _kinds(every, hosts):
            left = {group for group in slow if group in held and group not in found}
            found |= _told(left, held, owners, hosts if owners is whole else {})
    return found | _of_most({group for group in slow if group not in found}, every, alone)


def _of_most(slow: AbstractSet[Ranks], every: Collection[Ranks], alone: Iterable[Ranks]) -> dict[Ranks, Owner]:
    """The slow groups of a rank that most of its groups are, where no other rank's are."""
    fits: dict[Ranks, list[Ranks]] = {}
    for owner in alone:
        own = [group for group in every if owner < group]
        if 2 * len(held := [group for group in own if group in slow]) > len(own) and len(held) >= _MOST:
            fits[owner] = held
    holders = Counter(group for groups in fits.values() for group in groups)
    told = {owner: own for owner, own in fits.items() if all(holders[group] == 1 for group in own)}
    return {group: Owner(owner, is_most=True) for owner, own in told.items() for group in own}


def _kinds(every: Collection[Ranks], hosts: Mapping[int, str]) -> Iterator[Collection[Ranks]]:
    """All groups; those within a host; those of several."""
    within = {group for group in every if len({hosts[rank] for rank in group}) == 1}
    yield every
    yield within
    yield {*every} - within


def _told(
    slow: AbstractSet[Ranks], every: Collection[Ranks], owners: Iterable[Ranks], hosts: Mapping[int, str]
) -> dict[Ranks, Owner]:
    """The slow groups of which one of `owners` has slow links; partners count by their hosts, where these are given."""
    fits: dict[Ranks, list[Ranks]] = {}
    for owner in owners:
        beyond = [group for group in every if group & owner and group - owner]
        partners = {frozenset(hosts.get(rank, rank) for rank in group - owner) for group in beyond}
        through = frozenset[int]().union(*beyond) & owner  # of one rank alone they are that one's
        if len(partners) >= _SEVERAL and len(through) >= min(_SEVERAL, len(owner)) and slow >= {*beyond}:
            fits[owner] = beyond
    holders = Counter(group for groups in fits.values() for group in groups)
    told = {owner: own for owner, own in fits.items() if all(holders[group] == 1 for group in own)}
    return {group: Owner(owner) for owner, own in told.items() for group in own}
