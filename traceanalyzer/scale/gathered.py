"""What the analyses need of the ranks of several files: pieces that are joined in a tree, in whatever process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pandas as pd

from traceanalyzer.analyses.rank_tables import RankTables
from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.failures import Failure
from traceanalyzer.model import RankMeta, Skipped
from traceanalyzer.scale.reduced import Done, reduce_capture, without_ranks

DRAWN = ("timeline", "host_events")
"""Tables with a row for each event that a page draws, of the GPU and of the host."""

APART = (*DRAWN, "counter_series", "replay")
"""Tables that stay one a rank: they are let go rank by rank, or put together in a way of their own."""


@dataclass(frozen=True, slots=True)
class RankSize:
    """What decides on a rank: time that it loses (idle or in exposed communication), operations drawn and replayed."""

    lost_ns: int
    drawn: int
    replayed: int


@dataclass(frozen=True, slots=True)
class GatheredRank:
    """A rank as a file has it, and those of its tables that stay apart."""

    capture: TraceFile
    meta: RankMeta
    size: RankSize
    apart: Mapping[str, pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Some files' ranks in the order of files.

    Attributes:
        ranks: who they are.
        tables: of each analysis the ranks' tables, by place in `ranks`.
        skipped: what of the files was left out.
        failures: what could not be computed.
    """

    ranks: tuple[GatheredRank, ...]
    tables: Mapping[str, RankTables]
    skipped: tuple[Skipped, ...]
    failures: tuple[Failure, ...]

    @classmethod
    def of(cls, done: Done) -> "Gathered":
        """One file's."""
        ranks = tuple(
            GatheredRank(done.capture, meta, _size_of(own), {name: own[name] for name in APART if name in own})
            for meta, own in done.ranks
        )
        names = dict.fromkeys(name for _, own in done.ranks for name in own if name not in APART)
        tables = {
            name: RankTables.of({place: own[name] for place, (_, own) in enumerate(done.ranks) if name in own})
            for name in names
        }
        return cls(ranks, tables, done.skipped, done.failures)

    @classmethod
    def joined(cls, parts: Sequence["Gathered"]) -> "Gathered":
        """The files of all parts, one part's after the other's."""
        before = [0, *accumulate(len(part.ranks) for part in parts)]
        names = dict.fromkeys(name for part in parts for name in part.tables)
        return cls(
            tuple(rank for part in parts for rank in part.ranks),
            {
                name: RankTables.joined(
                    [
                        part.tables[name].moved(by)
                        for part, by in zip(parts, before, strict=False)
                        if name in part.tables
                    ]
                )
                for name in names
            },
            tuple(one for part in parts for one in part.skipped),
            tuple(one for part in parts for one in part.failures),
        )

    def with_apart(self, apart: Sequence[Mapping[str, pd.DataFrame]]) -> "Gathered":
        """The same with these tables that stay apart, rank by rank."""
        return replace(self, ranks=tuple(replace(rank, apart=own) for rank, own in zip(self.ranks, apart, strict=True)))

    def by_analysis(self, numbers: Mapping[int, int]) -> dict[str, Mapping[int, pd.DataFrame]]:
        """Each analysis' tables by rank, of those places that are given one, in order of rank."""
        order = sorted(numbers, key=lambda place: numbers[place])
        found: dict[str, Mapping[int, pd.DataFrame]] = {}
        for name in APART:
            held = [place for place in order if name in self.ranks[place].apart]
            found |= {name: {numbers[place]: self.ranks[place].apart[name] for place in held}} if held else {}
        return found | {name: own.renumbered(numbers) for name, own in self.tables.items()}


def gather_capture(capture: TraceFile, **how: Any) -> Gathered:
    """The file's ranks; `how` is that of `reduce_capture`."""
    return Gathered.of(reduce_capture(capture, **how))


def nothing_of(capture: TraceFile, why: str) -> Gathered:
    """The file left out, and why."""
    return Gathered.of(without_ranks(capture, why))


def _size_of(tables: Mapping[str, pd.DataFrame]) -> RankSize:
    graph = tables.get("replay", ())
    replayed = int(graph["operations"].iloc[0]) if isinstance(graph, pd.DataFrame) and len(graph) else 0
    return RankSize(_lost_ns(tables), len(tables.get("timeline", ())), replayed)


def _lost_ns(tables: Mapping[str, pd.DataFrame]) -> int:
    """What the rank loses, idle or in exposed communication; 0 where that is not asked for."""
    if "breakdown" not in tables:
        return 0
    lost = tables["breakdown"]  # without columns where the rank has no GPU operation
    return 0 if lost.empty else int(lost[["idle_ns", "exposed_comm_ns"]].to_numpy().sum())
