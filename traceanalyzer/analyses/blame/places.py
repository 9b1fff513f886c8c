"""What ranks have in common: a host, a rack, a pipeline stage, a process group, the same GPU of every host."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.blame.rank_sets import JOB, Place
from traceanalyzer.analyses.communication.groups import Groups
from traceanalyzer.analyses.communication.hosts import BLOCK
from traceanalyzer.analyses.names import PlacesColumn
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.meaning.number_lists import numbers


@dataclass(frozen=True, slots=True, repr=False)
class Places(Result[PlacesColumn]):
    """One row for each set of ranks that findings may name: neither a single rank nor the whole job."""

    looked_at: int | None = None
    """Ranks that are analysed; `None` where that is not told: all."""
    world_size: int | None = None
    """Ranks of the job, as far as its traces say."""

    title: ClassVar[str] = "Hosts, racks and groups"
    is_detail: ClassVar[bool] = True
    is_of_one_run: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("place",)
    columns: ClassVar[Mapping[str, Column]] = {
        "place": Column.ident("Position; kinds that say most come first."),
        "kind": Column.text(
            "What its ranks share: host, rack, stage (of pipelines), node (a block of 8 neighbours, where hosts are "
            "not known), group (a process group), device (the same GPU of every host)."
        ),
        "name": Column.text("What it is called."),
        "ranks": Column.text("Global ranks."),
        "size": Column.count("How many ranks.", adds=Adds.NONE),
    }

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
        *(() if has_hosts else _by("node", "neighbours, one node", {rank: rank // BLOCK for rank in every})),
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
