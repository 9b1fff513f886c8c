"""What a set of ranks is: one, a host, a rack, a stage, a process group, half of the job; held against chance."""

from collections.abc import Collection, Sequence
from math import comb

from msgspec import Struct

from traceanalyzer.meaning.listed import named

_BY_CHANCE = 0.01

_MOSTLY = 0.75
"""Of a place's ranks; fewer of them are not called the place."""


class Place(Struct, frozen=True):
    """Ranks that share something: `kind` (host, rack, stage, node, group, device), and what it is called."""

    kind: str
    name: str
    ranks: frozenset[int]


class RankSet(Struct, frozen=True):
    """What some ranks are.

    Attributes:
        kind: `rank`, a place's kind, `hosts` or `racks` (several whole ones), `half`, else `ranks`.
        name: in words for a sentence, such as `host b07` or `7 of the 8 ranks of host b07`; absent for `ranks`.
    """

    kind: str
    name: str | None = None


JOB = "the job"


def set_of(ranks: Collection[int], every: Sequence[int], places: Sequence[Place], whole: str | None = JOB) -> RankSet:
    """What the ranks are, of `every` one that is compared; `whole` is what these are, `None` where they have no name.

    A place is named when they are most of its ranks and so many ranks drawn by chance would hardly all lie in one
    place of its kind (exactly: the hypergeometric chance times the places of the kind, below 1 %); all ranks of a host
    or rack are that by fact.
    """
    chosen, count = frozenset(ranks), len(every)
    if len(chosen) == 1:
        host = next((place.name for place in places if place.kind == "host" and chosen <= place.ranks), None)
        return RankSet("rank", host)
    half = f", half of {whole}" if whole and 2 * len(chosen) == count else ""
    held = [place for place in places if chosen <= place.ranks and len(chosen) >= _MOSTLY * len(place.ranks)]
    held = [place for place in held if _is_fact(chosen, place) or _chance(chosen, place, places, count) < _BY_CHANCE]
    if held:
        best = min(held, key=lambda place: len(place.ranks))
        part = "" if chosen == best.ranks else f"{len(chosen)} of the {len(best.ranks)} ranks of "
        return RankSet(best.kind, part + best.name + half)
    for kind in ("rack", "host"):
        named = _union(chosen, [place for place in places if place.kind == kind], count)
        if named:
            return RankSet(f"{kind}s", named + half)
    return RankSet("half", half.removeprefix(", ")) if half and count > 2 else RankSet("ranks")


def _is_fact(chosen: frozenset[int], place: Place) -> bool:
    return place.kind in ("host", "rack") and chosen == place.ranks


def _chance(chosen: frozenset[int], place: Place, places: Sequence[Place], count: int) -> float:
    """That as many ranks, drawn from all, lie in one of the places of this kind and size."""
    alike = sum(other.kind == place.kind and len(other.ranks) == len(place.ranks) for other in places)
    return alike * comb(len(place.ranks), len(chosen)) / comb(count, len(chosen)) if count >= len(chosen) else 1.0


def _union(chosen: frozenset[int], places: Sequence[Place], count: int) -> str | None:
    """Several whole places: their names, where chance would hardly make them so."""
    whole = [place for place in places if place.ranks <= chosen]
    if len(whole) < 2 or frozenset().union(*(place.ranks for place in whole)) != chosen:
        return None
    if comb(len(places), len(whole)) / comb(count, len(chosen)) >= _BY_CHANCE:
        return None
    kind = whole[0].kind
    order = [place.name.removeprefix(f"{kind} ") for place in sorted(places, key=lambda place: min(place.ranks))]
    names = [place.name.removeprefix(f"{kind} ") for place in sorted(whole, key=lambda place: min(place.ranks))]
    at = order.index(names[0])
    in_row = len(names) > 2 and order[at : at + len(names)] == names
    return f"{kind}s {f'{names[0]} to {names[-1]}' if in_row else named(names)}"
