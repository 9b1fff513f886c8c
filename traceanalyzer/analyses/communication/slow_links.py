"""Groups whose links are slower than their sister groups'."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.communication.collectives import transfer_kinds
from traceanalyzer.analyses.communication.jobs import hosts_of
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.kinds import MESSAGES
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, table_of

Ranks = frozenset[int]


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
        if 2 * len(lasting := [group for group in own if group in left]) > len(own) and len(lasting) >= _MOST:
            mostly[owner] = lasting
    return found | _alone(mostly, is_most=True)


def _alone(fits: Mapping[Ranks, list[Ranks]], *, is_most: bool = False) -> dict[Ranks, Owner]:
    """The slow groups of each owner, none of which is another owner's too."""
    holders = Counter(group for groups in fits.values() for group in groups)
    told = {owner: own for owner, own in fits.items() if all(holders[group] == 1 for group in own)}
    return {group: Owner(owner, is_most) for owner, own in told.items() for group in own}


def _fits(owner: Ranks, beyond: Iterable[Ranks], slow: AbstractSet[Ranks], hosts: Mapping[int, str]) -> bool:
    """Whether all groups that lead from the owner to several partners, by their hosts where given, are slow.

    Of one partner alone the link may be either one's; of several ranks those through one of them are that one's.
    """
    partners = {frozenset(hosts.get(rank, rank) for rank in group - owner) for group in beyond}
    through = frozenset[int]().union(*beyond) & owner
    return len(partners) > 1 and len(through) >= min(2, len(owner)) and slow >= {*beyond}


_POOL = ("job", "kind", "ranks", "hosts", "size_bytes")
"""What transfers of one spread have in common."""

_ALIKE = ("job", "kind", "ranks", "hosts", "step")

_SIGMAS = 3.0

_LEAST_KNOWN = 3
"""Transfers quicker than the usual ones from which deviations are measured."""


def instances_of(members: pd.DataFrame, ranks: pd.DataFrame, jobs: Mapping[int, int]) -> pd.DataFrame:
    """A row for each instance of `Members` of which transfer and size are known; `jobs` are the ranks' (`jobs_of`).

    Columns `instance`, `job`, `kind` (`transfer_kinds`), `ranks` and `hosts` (how many), `among` (the ranks), `step`
    (-1 without), `size_bytes`, `transfer_ns`.

    What a call waited for one of its peers is no other one's transfer. It ends with the last of its messages; at the
    other end of each stands another call, so that the shorter of the two tells a slow message from those beside it.
    """
    if members.empty:
        return pd.DataFrame()
    is_held = members["instance"].notna() & members["transfer_ns"].notna() & members["size_bytes"].notna()
    is_held &= ~(members["is_only_wait"] | members["moves_only"]).astype(bool)
    held = members[is_held & members["is_timed"].astype(bool)]
    if held.empty:
        return pd.DataFrame()
    own, calls = Groups.of(held, ["instance"]), Groups.of(held, ["rank", "call"])
    rank, first = held["rank"].to_numpy(dtype=np.int64), held.take(own.first)
    shortest = calls.smallest(held["transfer_ns"].to_numpy(dtype=np.int64))[calls.of_row]
    among = np.split(rank[np.lexsort((rank, own.of_row))], np.cumsum(own.counts())[:-1])
    table = table_of(
        {
            "instance": first["instance"].to_numpy(dtype=np.int64),
            "job": first["rank"].map(jobs).to_numpy(dtype=np.int64),
            "kind": transfer_kinds(first["collective"]).to_numpy(dtype=object),
            "ranks": own.counts(),
            "hosts": own.distinct(pd.factorize(pd.Series(rank).map(hosts_of(ranks)))[0]),
            "step": first["step"].to_numpy(dtype=np.int64, na_value=NONE),
            "size_bytes": own.largest(held["size_bytes"].to_numpy(dtype=np.int64)),
            "transfer_ns": own.smallest(shortest),
            "among": np.array([",".join(map(str, each)) for each in among], dtype=object),
        }
    )
    return table[array_of(table, "ranks") > 1]


def usual_ns(instances: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """For each instance the mean transfer of its group's calls of that kind, size and step; and the sister groups'.

    Of these the median, of two in the middle the shorter: links are never too fast. Of groups none of which moves as
    many bytes what each takes for more of them, or for fewer at the same rate; NaN without sister groups.
    """
    cells = Groups.of(instances, [*_ALIKE, "size_bytes", "among"])
    count = cells.counts()
    own_ns = cells.sums(array_of(instances, "transfer_ns")) / np.maximum(count, 1)
    alike = Groups.of({name: np.asarray(cells.keys[name]) for name in (*_ALIKE, "size_bytes")}, [*_ALIKE, "size_bytes"])
    beside_ns = _median_of_others(alike.of_row, own_ns)
    lone = np.isnan(beside_ns)
    if lone.any():
        beside_ns[lone] = _of_other_sizes(cells, own_ns, np.flatnonzero(lone))
    return own_ns[cells.of_row], beside_ns[cells.of_row]


def is_beyond_chance(instances: pd.DataFrame, own_ns: np.ndarray, beside_ns: np.ndarray) -> np.ndarray:
    """Which instances' times, as `usual_ns` has them, chance does not explain: in their step, or in all together.

    How transfers of one kind and size differ is told, as a deviation of their logarithms, by those that are quicker
    than their step's usual one (links are slow, never too fast), of all steps; where these are fewer than three (of two
    groups none), by those that are quicker than their own group's usual one, of which two differ by more than one from
    several. Three deviations are beyond. Of fewer than three such nothing is known, and everything counts.
    """
    cells = Groups.of(instances, [*_POOL, "step", "among"])
    own, beside = np.maximum(own_ns[cells.first], 1.0), beside_ns[cells.first]
    pool, step, group = (Groups.of(cells.keys, [*_POOL, *names]).of_row for names in ((), ("step",), ("among",)))
    known, deviation = _deviation(pool, step, own)
    of_group, in_steps = _deviation(pool, group, own)
    deviation = np.where(known, deviation, np.where(of_group, np.sqrt(2) * in_steps, 0.0))
    more = np.log(own / np.where(beside > 0, beside, np.nan))
    count = np.bincount(group)[group]
    mean = np.bincount(group, np.nan_to_num(more))[group] / count
    is_beyond = np.isnan(more) | (more >= _SIGMAS * deviation) | (mean >= _SIGMAS * deviation / np.sqrt(count))
    found: np.ndarray = is_beyond[cells.of_row]
    return found


def _deviation(pool: np.ndarray, group: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each value whether three of its pool or more are quicker than their group's usual one, and by how much.

    The usual one is what the group's longest is held against: the median without it, of two the lesser.
    """
    order, sizes = np.lexsort((values, group)), np.bincount(group)
    usual = values[order][np.cumsum(sizes) - sizes + np.maximum(sizes - 2, 0) // 2][group]
    under = np.log(np.maximum(usual / values, 1.0))
    count = np.bincount(pool, under > 0)
    return (count >= _LEAST_KNOWN)[pool], np.sqrt(np.bincount(pool, under**2) / np.maximum(count, 1))[pool]


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


def _of_other_sizes(cells: Groups, own_ns: np.ndarray, lone: np.ndarray) -> np.ndarray:
    """What sister groups take at most for as many bytes as each of these cells moves; messages are not scaled."""
    table = cells.table(own_ns=own_ns)
    table = table[table["kind"] != MESSAGES]
    found = pd.Series(np.nan, index=lone)
    for _, alike in table.groupby(list(_ALIKE)):
        for row in alike[alike.index.isin(lone)].itertuples():
            others = alike[alike["among"] != row.among]
            most_ns = at_most_ns(row.size_bytes, others["size_bytes"].to_numpy(), others["own_ns"].to_numpy())
            each = np.sort(pd.Series(most_ns).groupby(others["among"].to_numpy()).min().to_numpy())
            found[row.Index] = each[(len(each) - 1) // 2] if len(each) else np.nan
    return found.to_numpy()


def at_most_ns(size_bytes: float, sizes: np.ndarray, times_ns: np.ndarray) -> np.ndarray:
    """What so many bytes take at most over links that move each of these sizes in that time.

    Fewer take no longer, more no longer than at the same rate.
    """
    most_ns: np.ndarray = times_ns * np.maximum(1.0, size_bytes / np.maximum(sizes, 1))
    return most_ns
