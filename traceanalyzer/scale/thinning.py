"""What the tables of all ranks together may hold: of too many, what is shown or replayed least is let go."""

from collections.abc import Iterator, Mapping
from itertools import count

import pandas as pd

from traceanalyzer.analyses.replay.replay import let_go
from traceanalyzer.analyses.timeline.thinning import most_unlike_first
from traceanalyzer.scale.reduced import Done


def thinned(done_files: Iterator[Done], most: int) -> Iterator[Done]:
    """The files as they come, with no more operations for the timeline than a report shows.

    A row for every operation of a thousand ranks would fill the memory: those of the ranks that are most like the
    others are let go.
    """
    held: dict[int, dict[str, pd.DataFrame]] = {}
    lost: dict[int, int] = {}
    place = count()
    for done in done_files:
        for _, tables in done.ranks:
            if len(tables.get("timeline", ())):
                number = next(place)
                held[number], lost[number] = tables, _lost_ns(tables)
        total = sum(len(tables["timeline"]) for tables in held.values())
        while total > most and len(held) > 1:
            least = most_unlike_first(lost)[-1]
            tables = held.pop(least)
            del lost[least]
            total -= len(tables["timeline"])
            tables["timeline"] = pd.DataFrame()
        yield done


def without_graphs(done_files: Iterator[Done], most: int) -> Iterator[Done]:
    """The files as they come; once there are more operations than are replayed, no rank keeps its graph."""
    held: list[dict[str, pd.DataFrame]] = []
    total = 0
    for done in done_files:
        for _, tables in done.ranks:
            if len(tables.get("replay", ())):
                held.append(tables)
                total += int(tables["replay"]["operations"].iloc[0])
        if total > most:
            for tables in held:
                tables["replay"] = let_go(tables["replay"])
            held = []
        yield done


def _lost_ns(tables: Mapping[str, pd.DataFrame]) -> int:
    """What the rank loses, idle or in exposed communication; 0 where that is not asked for."""
    if "breakdown" not in tables:
        return 0
    return int(tables["breakdown"][["idle_ns", "exposed_comm_ns"]].to_numpy().sum())
