"""Sets of ranks: hosts, racks, stages, groups, roles."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.blame.step_budget import HAS_KNOWN_WORK, KERNEL, OF_DATA, OPERATOR
from traceanalyzer.analyses.communication.clocks import HOST_RANKS, connected
from traceanalyzer.analyses.communication.groups import Groups
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.statistics import FALSE_ALARMS, SHARE
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Adds, Column, declared, numbers
from traceanalyzer.meaning.vocabulary import COMPUTE, named
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import rows_where

# What a set of ranks is: one, a host, a rack, a stage, a process group, half of the job; held against chance.


class Place(Struct, frozen=True):
    """Ranks that share something: `kind` (host, rack, stage, node, group, device), and what it is called."""

    kind: str
    name: str
    ranks: frozenset[int]


JOB = "the job"


def name_of(
    ranks: Collection[int], every: Sequence[int], places: Sequence[Place], whole: str | None = JOB
) -> str | None:
    """What the ranks are, such as `7 of the 8 ranks of host b07`; of one rank its host, of no such set `None`.

    `every` one is compared, and `whole` is what these are, `None` where they have no name. A place is named when they
    are most of its ranks and so many ranks drawn by chance would hardly all lie in one place of its kind (the
    hypergeometric chance times the places of the kind is below `FALSE_ALARMS`); all ranks of a host or rack are that by
    fact.
    """
    chosen, count = frozenset(ranks), len(every)
    if len(chosen) == 1:
        return next((place.name for place in places if place.kind == "host" and chosen <= place.ranks), None)
    half = f"half of {whole}" if whole and 2 * len(chosen) == count else None
    held = [place for place in places if chosen <= place.ranks and len(chosen) >= SHARE * len(place.ranks)]
    held = [place for place in held if _is_fact(chosen, place) or _chance(chosen, place, places, count) < FALSE_ALARMS]
    name: str | None
    if held:
        best = min(held, key=lambda place: len(place.ranks))
        name = best.name if chosen == best.ranks else f"{len(chosen)} of the {len(best.ranks)} ranks of {best.name}"
    else:
        kinds = ([place for place in places if place.kind == kind] for kind in ("rack", "host"))
        name = next(filter(None, (_union(chosen, own, count) for own in kinds)), None)
    return ", ".join(filter(None, (name, half if name or count > 2 else None))) or None


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
    if comb(len(places), len(whole)) / comb(count, len(chosen)) >= FALSE_ALARMS:
        return None
    kind = whole[0].kind
    order = [place.name.removeprefix(f"{kind} ") for place in sorted(places, key=lambda place: min(place.ranks))]
    names = [place.name.removeprefix(f"{kind} ") for place in sorted(whole, key=lambda place: min(place.ranks))]
    at = order.index(names[0])
    in_row = len(names) > 2 and order[at : at + len(names)] == names
    return f"{kind}s {f'{names[0]} to {names[-1]}' if in_row else named(names)}"


# What ranks have in common: a host, a rack, a pipeline stage, a process group, the same GPU of every host.


@dataclass(frozen=True, slots=True, repr=False)
class Places(Result):
    """One row for each set of ranks that findings may name: neither a single rank nor the whole job."""

    looked_at: int | None = None
    """Ranks that are analysed; `None`: all."""
    world_size: int | None = None
    """Ranks of the job, as far as its traces say."""

    title = "Hosts, racks and groups"
    is_detail = True
    is_of_one_run = True
    keys = ("place",)
    columns = declared(
        place="Position; kinds that say most come first.",
        kind="What its ranks share: host, rack, stage (of pipelines), node (a block of 8 neighbours, where hosts are "
        "not known), group (a process group), device (the same GPU of every host).",
        name=Column.text("What it is called."),
        ranks=Column.text("Global ranks."),
        size=Column.count("How many ranks.", adds=Adds.NONE),
    )

    def whole(self, ranks: int) -> str | None:
        """What so many ranks that are compared are: the job, or what of it is looked at; `None` where fewer are."""
        if self.looked_at is None or (ranks == self.looked_at and (self.world_size or 0) <= ranks):
            return JOB
        return "the ranks looked at" if ranks == self.looked_at else None

    def places(self) -> tuple[Place, ...]:
        """The rows as sets of ranks."""
        rows = self.table[["kind", "name", "ranks"]].itertuples(index=False)
        return tuple(Place(kind, name, frozenset(numbers(ranks))) for kind, name, ranks in rows)


def across(_parts: Mapping[int, pd.DataFrame], ranks: Ranks, groups: Groups, pipeline: Pipeline) -> Places:
    """The places of the ranks that are here."""
    every = sorted(ranks.table["rank"].tolist()) if len(ranks) else []
    found = places_of(every, ranks.table, groups.table, pipeline.table)
    rows = [
        (number, place.kind, place.name, ",".join(map(str, sorted(place.ranks))), len(place.ranks))
        for number, place in enumerate(found)
    ]
    sizes = ranks.table["world_size"].dropna() if len(ranks) else ()
    world_size = int(max(sizes)) if len(sizes) else None
    return Places(pd.DataFrame(rows, columns=list(Places.columns)), looked_at=len(every), world_size=world_size)


def places_of(
    every: Sequence[int], ranks: pd.DataFrame, groups: pd.DataFrame, pipeline: pd.DataFrame
) -> tuple[Place, ...]:
    """Every place that is neither a single rank nor the whole job, kinds that say most first.

    Args:
        every: the ranks that are looked at: others are no part of a place.
        ranks: table of `Ranks`: hosts, racks, GPUs' numbers.
        groups: table of `Groups`.
        pipeline: table of `Pipeline`.
    """
    hosts, racks, devices = (_known(ranks, column) for column in ("host", "rack", "device"))
    stages = _known(pipeline, "stage")
    has_hosts = len(set(hosts.values())) > 1
    found = [
        *_by("host", "host {}", hosts),
        *_by("rack", "rack {}", racks),
        *_by("stage", "pipeline stage {}", stages),
        *(() if has_hosts else _by("node", "neighbours, one node", {rank: rank // HOST_RANKS for rank in every})),
        *_groups(groups, every),
        *(_by("device", "GPU {} of every host", devices) if has_hosts else ()),
    ]
    return tuple(place for place in found if len(place.ranks) > 1 and set(every) - place.ranks)


def _known(table: pd.DataFrame, column: str) -> Mapping[int, object]:
    held = table.dropna(subset=column) if len(table) else table
    return dict(zip(held["rank"].tolist(), held[column].tolist(), strict=True)) if len(held) else {}


def _by(kind: str, name: str, of: Mapping[int, object]) -> Iterator[Place]:
    ranks: dict[object, set[int]] = {}
    for rank, own in of.items():
        ranks.setdefault(own, set()).add(rank)
    return (Place(kind, name.format(own), frozenset(held)) for own, held in ranks.items())


def _groups(groups: pd.DataFrame, every: Sequence[int]) -> Iterator[Place]:
    held = frozenset(every)
    for row in groups.to_dict("records"):
        role = f"{row['role']} group" if isinstance(row["role"], str) else "process group"
        yield Place("group", f"one {role}", held & frozenset(numbers(row["group_ranks"]) or row["users"]))


# Which ranks do the same in a job whose ranks have roles: trainers, and those that generate what these train on.


EVERYBODY = "all"
_ROLE = "role of rank"


def with_roles(needs: pd.DataFrame, replay: Replay, ranks: Ranks) -> pd.DataFrame:
    """Rows of `StepNeeds` in which `peers` are those of a rank's role, where ranks have such.

    Ranks of one role do the same (`Peers.alike`), directly or by way of others; what one role takes is no measure of
    another. Roles are unknown on GPUs of several models, whose kernels have other names for the same work.
    """
    models = ranks.table["device_name"].dropna().unique()
    if replay.engine is None or (needs["peers"] != EVERYBODY).any() or len(models) > 1:
        return needs
    every = np.sort(needs["rank"].unique())
    place = replay.engine.peers.place
    if any(rank not in place for rank in every.tolist()):
        return needs
    columns = [place[rank] for rank in every.tolist()]
    alike = replay.engine.peers.alike[np.ix_(columns, columns)]
    roles = connected([rank, *every[own].tolist()] for rank, own in zip(every.tolist(), alike, strict=True))
    of_rank = {rank: f"{_ROLE} {own[0]}" for own in roles for rank in own}
    return needs.assign(peers=needs["rank"].map(of_rank)) if len(roles) > 1 else needs


# By how much a stage takes longer than the others for the same kernels: its GPU is slower then, its layers no more.


def with_slower_ns(needs: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The steps with `slower_ns`: what the rank takes longer than the median rank for the same work of the same step.

    That is operators of the same shapes, and kernels, that do the same work as those of the median of the ranks that
    run them (of two, the other): the less of both. Where no shapes tell what a kernel has to do, it is kernels alone,
    if most of them are slower.
    """
    if (needs["peers"] == EVERYBODY).all():
        return needs.assign(slower_ns=0.0)
    kept = {name for name in work["name"].unique() if not OF_DATA.search(name)}
    known = {name for name in kept if HAS_KNOWN_WORK.match(name)}
    held = rows_where(work, (work["part"] == COMPUTE.column) & work["name"].isin(kept))
    held = held[(held["what"] == KERNEL) | ((held["what"] == OPERATOR) & held["name"].isin(known))]
    sums = held[["total_ns", "calls", "work"]].astype("float64")
    of_name = sums.groupby([held["step"], held["what"], held["name"]])
    typical = of_name.transform("median")
    typical = typical.mask(of_name.transform("size") == 2, of_name.transform("sum") - sums)
    is_same = (sums[["calls", "work"]] == typical[["calls", "work"]]).all(axis=1)
    usual_ns = typical["total_ns"].where(is_same, 0.0)
    longer_ns = (sums["total_ns"] - usual_ns).where(is_same, 0.0)
    keys = [held["rank"], held["step"], held["what"]]
    longer, usual = (each.groupby(keys).transform("sum") for each in (longer_ns, usual_ns))
    is_slower = longer_ns * usual >= SHARE * longer * usual_ns
    rows = pd.MultiIndex.from_arrays([needs["rank"], needs["step"].fillna(NONE).astype("int64")])
    more, slower, all_ns = (
        each.groupby(keys).sum().unstack("what").reindex(rows, columns=[OPERATOR, KERNEL])  # noqa: PD010
        for each in (longer_ns, usual_ns.where(is_slower, 0.0), sums["total_ns"])
    )  # fmt: skip
    is_throughout = slower[KERNEL] >= SHARE * (all_ns[KERNEL] - more[KERNEL])
    shaped = more[OPERATOR].fillna(0.0).where(all_ns[OPERATOR].notna() | ~is_throughout, more[KERNEL])
    return needs.assign(slower_ns=np.minimum(shaped.to_numpy(), more[KERNEL].fillna(0.0).to_numpy()))
