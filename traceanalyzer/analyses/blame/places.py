"""What ranks have in common: a host, a rack, a pipeline stage, a process group, the same GPU of every host."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.blame.rank_sets import Place
from traceanalyzer.analyses.communication.group_members import parsed
from traceanalyzer.analyses.communication.groups import Groups
from traceanalyzer.analyses.names import PlacesColumn
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Column

BLOCK = 8
"""GPUs of a host, where the trace does not say which rank is where."""


class Places(Result[PlacesColumn]):
    """One row for each set of ranks that findings may name: neither a single rank nor the whole job."""

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

    def places(self) -> tuple[Place, ...]:
        """The rows as sets of ranks."""
        rows = self.table[["kind", "name", "ranks"]].itertuples(index=False)
        return tuple(Place(kind, name, frozenset(map(int, ranks.split(",")))) for kind, name, ranks in rows)


def across(_parts: Mapping[int, pd.DataFrame], ranks: Ranks, groups: Groups, pipeline: Pipeline) -> Places:
    """The places of the ranks that are here."""
    every = sorted(ranks.table["rank"].tolist()) if len(ranks) else []
    found = places_of(every, ranks.table, groups.table, pipeline.table)
    rows = [
        (number, place.kind, place.name, ",".join(map(str, sorted(place.ranks))), len(place.ranks))
        for number, place in enumerate(found)
    ]
    return Places(pd.DataFrame(rows, columns=list(Places.columns)))


def places_of(
    every: Sequence[int], ranks: pd.DataFrame, groups: pd.DataFrame, pipeline: pd.DataFrame
) -> tuple[Place, ...]:
    """Every place that is neither a single rank nor the whole job, kinds that say most first.

    Args:
        every: the job's ranks.
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
        *_groups(groups),
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


def _groups(groups: pd.DataFrame) -> Iterator[Place]:
    for row in groups.to_dict("records"):
        role = f"{row['role']} group" if isinstance(row["role"], str) else "process group"
        yield Place("group", f"one {role}", frozenset(parsed(row["group_ranks"]) or row["users"]))
