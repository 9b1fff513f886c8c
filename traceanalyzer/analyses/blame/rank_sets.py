"""Which ranks a set of ranks is: one, a host, a block of neighbours, a process group, half of the job."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import comb

BLOCK = 8
"""GPUs of a host, where the trace does not say which rank is where."""

_BY_CHANCE = 0.01


def kind_of_set(
    ranks: Collection[int], every: Sequence[int], hosts: Mapping[int, str], groups: Iterable[Collection[int]]
) -> str:
    """`rank`, `host`, `node` (a block of neighbours), `group`, `half` or `ranks`.

    A block or a group is named only where so many ranks chosen by chance would hardly be one.
    """
    chosen, count = set(ranks), len(every)
    if len(chosen) == 1:
        return "rank"
    if hosts and len(set(hosts.values())) > 1 and _is_whole(chosen, hosts):
        return "host"
    if _is_block(chosen, every) and _chance(count // BLOCK, count, BLOCK) < _BY_CHANCE:
        return "node"
    alike = [set(group) for group in groups if len(set(group)) == len(chosen)]
    if len(chosen) < count and chosen in alike and _chance(len(alike), count, len(chosen)) < _BY_CHANCE:
        return "group"
    return "half" if 2 * len(chosen) == count and count > 2 else "ranks"


def _is_whole(chosen: set[int], hosts: Mapping[int, str]) -> bool:
    """Whether they are all ranks of one host, of which there is more than one rank."""
    names = {hosts.get(rank) for rank in chosen}
    return len(names) == 1 and chosen == {rank for rank, name in hosts.items() if name in names}


def _is_block(chosen: set[int], every: Sequence[int]) -> bool:
    first = min(chosen)
    return len(every) > BLOCK and first % BLOCK == 0 and chosen == set(range(first, first + BLOCK)) & set(every)


def _chance(sets: int, count: int, size: int) -> float:
    return sets / comb(count, size) if count >= size else 1.0


def listed(ranks: Sequence[int]) -> str:
    """`3`, `3 and 5`, `8 to 15`, `1, 4 and 7`."""
    ordered = sorted(ranks)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    *first, last = map(str, ordered)
    return f"{', '.join(first)} and {last}" if first else last
