"""What the tables of all ranks together may hold: of too many, what is shown or replayed least is let go.

Which ranks keep what they draw depends on three numbers of each, so that a cluster's workers can hold the tables until
that is known: only what is kept travels.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby, takewhile
from operator import itemgetter

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.replay.replay import let_go
from traceanalyzer.analyses.timeline.host_events import MOST_RANKS
from traceanalyzer.analyses.timeline.thinning import most_unlike_first
from traceanalyzer.scale.dask_cluster import Thinning
from traceanalyzer.scale.gathered import DRAWN, Gathered, RankSize

Place = tuple[int, int]
"""Number of a piece (a file, or several), and a rank's place in it."""


class Limits(Struct, frozen=True):
    """How many operations the timelines, and the graphs that are replayed, of all ranks together may have."""

    drawn: int
    replayed: int


class Kept(Struct, frozen=True):
    """Ranks that keep what their GPUs did, those that keep what their hosts did; and whether all keep their graphs."""

    drawn: frozenset[Place]
    hosts: frozenset[Place]
    has_graphs: bool


def sizes_of(piece: Gathered) -> tuple[RankSize, ...]:
    """Of each of its ranks."""
    return tuple(rank.size for rank in piece.ranks)


def kept_of(sizes: Mapping[int, Sequence[RankSize]], limits: Limits) -> Kept:
    """What a job keeps, by the sizes of each piece's ranks: the timelines of the ranks that are most unlike the others.

    One timeline at least, and the hosts of the first of them; and all graphs or, where they are more than are replayed,
    none.
    """
    every = _by_place(sizes)
    drawn = [place for place, size in every.items() if size.drawn]
    order = most_unlike_first({number: every[place].lost_ns for number, place in enumerate(drawn)})
    kept = _first_within([drawn[number] for number in order], every, limits.drawn)
    return Kept(frozenset(kept), frozenset(kept[:MOST_RANKS]), _has_graphs(every, limits))


def shortened(piece: Gathered, number: int, kept: Kept) -> Gathered:
    """The piece without what its ranks do not keep."""
    return piece.with_apart(
        [
            _without(
                rank.apart,
                is_drawn=(number, place) in kept.drawn,
                has_host=(number, place) in kept.hosts,
                has_graph=kept.has_graphs,
            )
            for place, rank in enumerate(piece.ranks)
        ]
    )


def thinning(limits: Limits) -> Thinning[Gathered]:
    """How the workers of a cluster make smaller what they hold: the same as `thinned` leaves."""

    def shares(sizes: Mapping[int, tuple[RankSize, ...]]) -> dict[int, Kept]:
        kept = kept_of(sizes, limits)
        drawn, hosts = _by_piece(kept.drawn), _by_piece(kept.hosts)
        return {number: Kept(drawn.get(number, _NONE), hosts.get(number, _NONE), kept.has_graphs) for number in sizes}

    return Thinning(sizes_of, shares, shortened)


_NONE: frozenset[Place] = frozenset()


def _by_piece(places: Iterable[Place]) -> dict[int, frozenset[Place]]:
    return {number: frozenset(own) for number, own in groupby(sorted(places), key=itemgetter(0))}


def thinned(pieces: Iterable[Gathered], limits: Limits) -> list[Gathered]:
    """The pieces as they come, with what they keep in the end; meanwhile little more is held than what may be kept.

    A row for every operation of a thousand ranks would fill the memory.
    """
    sizes: dict[int, tuple[RankSize, ...]] = {}
    held: list[Gathered] = []
    drawn = graphs = 0
    for number, piece in enumerate(pieces):
        sizes[number] = sizes_of(piece)
        held.append(piece)
        drawn += sum(size.drawn for size in sizes[number])
        graphs += sum(size.replayed for size in sizes[number])
        if drawn > _HELD_TIMES * limits.drawn or graphs > limits.replayed:
            possible = _possible(sizes, limits)
            held = [shortened(earlier, place, possible) for place, earlier in enumerate(held)]
            drawn = sum(sizes[file][place].drawn for file, place in possible.drawn)
            graphs = graphs if possible.has_graphs else 0
    kept = kept_of(sizes, limits)
    return [shortened(piece, number, kept) for number, piece in enumerate(held)]


_HELD_TIMES = 3
"""Times of what is drawn in the end that timelines may have meanwhile: two of them are what may still be kept."""


def _possible(sizes: Mapping[int, Sequence[RankSize]], limits: Limits) -> Kept:
    """What may still be kept whoever else comes: who is unlike the others loses most or least."""
    every = _by_place(sizes)
    most_first = sorted(every, key=lambda place: (-every[place].lost_ns, place))
    least_first = sorted(every, key=lambda place: (every[place].lost_ns, place))
    ends = [_first_within(order, every, limits.drawn) for order in (most_first, least_first)]
    drawn, hosts = (frozenset(place for end in ends for place in end[:most]) for most in (None, MOST_RANKS))
    return Kept(drawn, hosts, _has_graphs(every, limits))


def _by_place(sizes: Mapping[int, Sequence[RankSize]]) -> dict[Place, RankSize]:
    """The ranks that have something to draw or to replay, in the order of files."""
    return {
        (number, place): size
        for number, own in sorted(sizes.items())
        for place, size in enumerate(own)
        if size.drawn or size.replayed
    }


def _first_within(order: Sequence[Place], sizes: Mapping[Place, RankSize], most: int) -> list[Place]:
    """The first ranks that have timelines, of no more than `most` operations together; at least one."""
    drawn = [place for place in order if sizes[place].drawn]
    totals = accumulate(sizes[place].drawn for place in drawn)
    fitting = sum(1 for _ in takewhile(lambda total: total <= most, totals))
    return drawn[: max(1, fitting)]


def _has_graphs(sizes: Mapping[Place, RankSize], limits: Limits) -> bool:
    return sum(size.replayed for size in sizes.values()) <= limits.replayed


def _without(
    tables: Mapping[str, pd.DataFrame], *, is_drawn: bool, has_host: bool, has_graph: bool
) -> dict[str, pd.DataFrame]:
    lost = [name for name, is_kept in zip(DRAWN, (is_drawn, has_host), strict=True) if not is_kept and name in tables]
    gone = {name: pd.DataFrame() for name in lost}
    if not has_graph and len(tables.get("replay", ())):
        gone["replay"] = let_go(tables["replay"])
    return {**tables, **gone}
