"""Which rank each (process, device) of an export is, and where that is known from."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.readers.base import DEVICE_ORDER, RankHint
from traceanalyzer.readers.nsys.ids import process_number, process_of
from traceanalyzer.readers.nsys.introductions import rank_ranges
from traceanalyzer.readers.nsys.session import Session
from traceanalyzer.readers.nsys.source import Source, int_values

MPI_RANKS = "MPI_RANKS"

RANKS_ARE_NAMED_IN = ("CommInit", "rank")
"""Words in the names of the ranges that tell ranks: no others are needed to number them."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A process and the device that it used: one rank."""

    process: int
    device: int


@dataclass(frozen=True, slots=True)
class Identity:
    """A place's rank, the source of that number, and the ranks of the job where something says so."""

    place: Place
    rank: int
    source: str
    world_size: int | None


def identify(
    source: Source,
    places: Sequence[Place],
    session: Session,
    *,
    members: pd.DataFrame,
    ranges: pd.DataFrame,
    hint: RankHint | None,
) -> list[Identity]:
    """Ranks of all places, in order of rank; the first source that numbers each place once decides.

    Sources: NCCL's commInit payloads (rank in the largest communicator), MPI, a range such as `RANK 3`, the
    name of a report with one place (or the hint for it), the order of the devices.
    """
    stated = rank_ranges(ranges)
    world = _world_size(members, stated)
    for name, found in (
        ("NCCL payload", _from_nccl(places, members, world)),
        ("MPI", _from_mpi(source, places)),
        ("NVTX range", _from_ranges(places, stated)),
    ):
        if len(found) == len(places) == len(set(found.values())):
            numbered = [Identity(place, found[place], name, world) for place in places]
            return sorted(numbered, key=lambda one: one.rank)
    if len(places) == 1 and hint is not None:
        return [Identity(places[0], hint.rank, hint.source, world)]
    ordered = sorted(places, key=lambda place: (session.gpu(process_number(place.process), place.device), place))
    return [Identity(place, rank, DEVICE_ORDER, world) for rank, place in enumerate(ordered)]


def _world_size(members: pd.DataFrame, stated: pd.DataFrame) -> int | None:
    known = [ranks.max() for ranks in (members["ranks"], stated["ranks"]) if ranks.notna().any()]
    return int(max(known)) if known else None


def _from_nccl(places: Sequence[Place], members: pd.DataFrame, world: int | None) -> dict[Place, int]:
    """Rank in the largest communicator, of which the job has one that holds every rank."""
    largest = members[members["ranks"] == world] if world else members.iloc[:0]
    found = {}
    for place in places:
        own = largest[largest["process"] == place.process]
        # Several devices of one process: the payload names the device.
        own = own[own["device"] == place.device] if len(own["device"].unique()) > 1 else own
        if len(own["rank"].unique()) == 1:
            found[place] = int(own["rank"].iloc[0])
    return found


def _from_mpi(source: Source, places: Sequence[Place]) -> dict[Place, int]:
    rows = source.read(MPI_RANKS, ints=("globalTid", "rank"))
    ranks = dict(
        zip(
            process_of(int_values(rows, "globalTid", 0)).tolist(),
            int_values(rows, "rank").tolist(),
            strict=True,
        )
    )
    return {place: ranks[place.process] for place in places if place.process in ranks}


def _from_ranges(places: Sequence[Place], stated: pd.DataFrame) -> dict[Place, int]:
    return {place: int(stated.loc[place.process, "rank"]) for place in places if place.process in stated.index}
