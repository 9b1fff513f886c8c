"""Groups whose links are slower than their sister groups'."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.communication.clocks import hosts_of
from traceanalyzer.analyses.communication.collectives import transfer_kinds
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.statistics import SIGMAS
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

Ranks = frozenset[int]


class Owner(Struct, frozen=True):
    """The ranks whose links are slow; `is_most` where that is so of most of their groups, and not of all."""

    ranks: Ranks
    is_most: bool = False


def whose_links(slow: Collection[Ranks], every: Collection[Ranks], hosts: Mapping[int, str]) -> Mapping[Ranks, Owner]:
    """For each slow group whose links are slow: of the ranks of a host, or of one rank; nothing where that is open.

    All groups that lead from there to others are slow, with several partners, and none of them may be another rank's
    (host's) for the same reason. Groups are compared with all, then with those that stay within hosts, or leave them.
    At last a rank's of which more than half are slow, three at the least (fewer may be so many links by themselves),
    and no other rank's are so.

    Args:
        slow: the ranks of groups that move data for longer.
        every: of all groups that are compared with others, those among them.
        hosts: the host of each rank.
    """
    found: dict[Ranks, Owner] = {}
    of_host: dict[str, set[int]] = defaultdict(set)
    for rank in frozenset[int]().union(*every):
        of_host[hosts[rank]].add(rank)
    whole = [frozenset(ranks) for ranks in of_host.values() if len(ranks) > 1]
    alone = [frozenset({rank}) for rank in sorted(frozenset[int]().union(*slow))]
    within = {group for group in every if len({hosts[rank] for rank in group}) == 1}
    for owners in (whole, alone):
        for held in (every, within, {*every} - within):
            left = {group for group in slow if group in held and group not in found}
            beyond = {owner: [group for group in held if group & owner and group - owner] for owner in owners}
            partners = hosts if owners is whole else {}
            found |= _alone({owner: own for owner, own in beyond.items() if _fits(owner, own, left, partners)})
    left = {group for group in slow if group not in found}
    mostly: dict[Ranks, list[Ranks]] = {}
    for owner in alone:
        own = [group for group in every if owner < group]
        if 2 * len(lasting := [group for group in own if group in left]) > len(own) and len(lasting) > 2:
            mostly[owner] = lasting
    return found | _alone(mostly, is_most=True)


def _alone(fits: Mapping[Ranks, list[Ranks]], *, is_most: bool = False) -> dict[Ranks, Owner]:
    """The slow groups of each owner, none of which is another owner's too."""
    holders = Counter(group for groups in fits.values() for group in groups)
    unshared = {owner: own for owner, own in fits.items() if all(holders[group] == 1 for group in own)}
    return {group: Owner(owner, is_most) for owner, own in unshared.items() for group in own}


def _fits(owner: Ranks, beyond: Iterable[Ranks], slow: AbstractSet[Ranks], hosts: Mapping[int, str]) -> bool:
    """Whether all groups that lead from the owner to several partners, by their hosts where given, are slow.

    Of one partner alone the link may be either one's; of several ranks those through one of them are that one's.
    """
    partners = {frozenset(hosts.get(rank, rank) for rank in group - owner) for group in beyond}
    through = frozenset[int]().union(*beyond) & owner
    return len(partners) > 1 and len(through) >= min(2, len(owner)) and slow >= {*beyond}


_ALIKE = ("job", "kind", "ranks", "hosts", "size_bytes")
"""What transfers that are held against each other have in common, within a step."""


def instances_of(members: pd.DataFrame, ranks: pd.DataFrame, jobs: Mapping[int, int]) -> pd.DataFrame:
    """A row for each instance of `Members` of which transfer and size are known; `jobs` are the ranks' (`jobs_of`).

    Columns `instance`, `job`, `kind` (`transfer_kinds`), `ranks` and `hosts` (how many), `among` (the ranks), `step`
    (-1 without), `size_bytes`, `transfer_ns`.

    What a call waited for one of its peers is no other one's transfer. It ends with the last of its messages; at the
    other end of each stands another call, so that the shorter of the two tells a slow message from those beside it.
    """
    if members.empty:
        return pd.DataFrame()
    is_held = members[["instance", "transfer_ns", "size_bytes"]].notna().all(axis=1) & members["is_timed"].astype(bool)
    is_held &= ~(members["is_only_wait"] | members["moves_only"]).astype(bool)
    held = members[is_held].sort_values(["instance", "rank"], kind="stable")
    if held.empty:
        return pd.DataFrame()
    held = held.assign(
        job=held["rank"].map(jobs),
        kind=transfer_kinds(held["collective"]),
        host=held["rank"].map(hosts_of(ranks)),
        step=held["step"].fillna(NONE),
        among=held["rank"].astype("str"),
        transfer_ns=held.groupby(["rank", "call"])["transfer_ns"].transform("min"),
    )
    first = {name: (name, "first") for name in ("job", "kind", "step")}
    table = held.groupby("instance").agg(
        ranks=("rank", "size"),
        hosts=("host", "nunique"),
        size_bytes=("size_bytes", "max"),
        transfer_ns=("transfer_ns", "min"),
        among=("among", ",".join),
        **first,
    )
    whole = ("instance", "job", "ranks", "hosts", "step", "size_bytes", "transfer_ns")
    return table[table["ranks"] > 1].reset_index().astype(dict.fromkeys(whole, "int64"))


def usual_ns(instances: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """For each instance the mean transfer of its group's calls of that kind, size and step; and the sister groups'.

    Of these the median, of two in the middle the shorter: links are never too fast. NaN without sister groups that move
    as many bytes.
    """
    cells = Groups.of(instances, [*_ALIKE, "step", "among"])
    own_ns = cells.sums(array_of(instances, "transfer_ns")) / np.maximum(cells.counts(), 1)
    beside_ns = _median_of_others(Groups.of(cells.keys, [*_ALIKE, "step"]).of_row, own_ns)
    return own_ns[cells.of_row], beside_ns[cells.of_row]


def is_beyond_chance(instances: pd.DataFrame, own_ns: np.ndarray, beside_ns: np.ndarray) -> np.ndarray:
    """Which instances' times, as `usual_ns` has them, chance does not explain: in their step, or in all together."""
    own, cells = np.log(np.maximum(own_ns, 1.0)), Groups.of(instances, [*_ALIKE, "step", "among"])
    more = own - np.log(np.where(beside_ns > 0, beside_ns, np.nan))
    table = cells.table(own=own[cells.first], more=more[cells.first], is_beyond=True)
    for _, alike in table.groupby(list(_ALIKE)):
        spread = _spread(alike.pivot_table(values="own", index="step", columns="among").to_numpy())
        by_group = alike["more"].fillna(0).groupby(alike["among"])
        is_always = by_group.transform("mean") >= SIGMAS * spread / np.sqrt(by_group.transform("size"))
        table.loc[alike.index, "is_beyond"] = (alike["more"] >= SIGMAS * spread) | is_always
    return array_of(table, "is_beyond")[cells.of_row]


def _spread(wide: np.ndarray) -> float:
    """How transfers (steps by groups) differ by chance, as a deviation of their logarithms.

    By those that are quicker than their step's usual one, for links are slow, never too fast: the median without the
    longest, of two the lesser. Where these are fewer than three (of two groups none), by those quicker than their own
    group's usual one, of which two differ by more than one from several; else nothing is known, and all counts.
    """
    for values, times in ((wide, 1.0), (wide.T, np.sqrt(2))):
        middle = np.maximum(np.count_nonzero(~np.isnan(values), axis=1) - 2, 0) // 2
        usual = np.take_along_axis(np.sort(values, axis=1), middle[:, None], axis=1)
        quicker = (usual - values)[usual > values]
        if len(quicker) > 2:
            return float(times * np.sqrt(np.mean(quicker**2)))
    return 0.0


def _median_of_others(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each value the median of the others of its group, of two the lesser; NaN for one alone."""
    order = np.lexsort((values, group))
    sizes = np.bincount(group)
    start = (np.cumsum(sizes) - sizes)[group[order]]
    size, place = sizes[group[order]], np.arange(len(values)) - start
    middle = np.maximum(size - 2, 0) // 2
    taken = np.minimum(start + np.where(place > middle, middle, middle + 1), len(values) - 1)
    found = np.empty(len(values))
    found[order] = np.where(size > 1, values[order][taken], np.nan)
    return found


def at_most_ns(size_bytes: float, sizes: np.ndarray, times_ns: np.ndarray) -> np.ndarray:
    """What so many bytes take at most over links that move each of these sizes in that time.

    Fewer take no longer, more no longer than at the same rate.
    """
    most_ns: np.ndarray = times_ns * np.maximum(1.0, size_bytes / np.maximum(sizes, 1))
    return most_ns
