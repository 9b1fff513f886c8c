"""Collectives of the CPU matched over ranks: their hosts meet there, and all go on when the last one has come."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.replay.nodes import Nodes
from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.kinds import CPU_BACKENDS
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, table_of, under_each_other

_MESSAGES = tuple(f"{backend}{name}" for backend in CPU_BACKENDS for name in ("send", "recv"))

WITHIN_NS = 100_000
"""By so much clocks may differ where one host is seen to leave before the last one has come."""


def with_meetings(pieces: Mapping[int, Piece], offset_ns: Mapping[int, int]) -> dict[int, Piece]:
    """The pieces with `instance` of their meetings; `offset_ns` is by how much each rank's clock is ahead.

    The trace names no group of them. Those of a name at the same place in a step are the same, as far as their times
    agree: who had ended before the last one began did not wait for it. So groups that meet at different moments are
    told apart, and of a broadcast those are joined that still waited when its root came.
    """
    tables = [piece.meetings.assign(rank=rank) for rank, piece in pieces.items() if len(piece.meetings)]
    if not tables:
        return dict(pieces)
    every = under_each_other(tables)
    shift = every["rank"].map(offset_ns).fillna(0).astype("int64")
    every = every.assign(start_ns=every["start_ns"] - shift, end_ns=every["end_ns"] - shift)
    every["place"] = every.groupby(["rank", "step", "name"]).cumcount()
    instance = _instances(every)
    return {
        rank: replace(piece, meetings=piece.meetings.assign(instance=instance[(every["rank"] == rank).to_numpy()]))
        for rank, piece in pieces.items()
    }


class Meetings(Struct, frozen=True):
    """Edges of the job's graph through matched ones, as parallel arrays.

    Attributes:
        begins: node of the rank at which its collective begins.
        begun_ns: when, on the common clock.
        of_rank: whose it is.
        instance: number of the instance, from 0.
        count: of instances.
        waits: rows in which the rank waits for it.
        goes_on: of those, the node of the rank at which its host goes on.
        after_ns: of those, the time from when the last rank has come.
        rank: of those, whose it is.
        name: of those, what it is called.
        step: of those, in which it is.
        is_alone: of those, whether nobody else is known to take part.
        ready_ns: of those, when the last rank had come, on the common clock.
    """

    begins: np.ndarray
    begun_ns: np.ndarray
    of_rank: np.ndarray
    instance: np.ndarray
    count: int
    waits: np.ndarray
    goes_on: np.ndarray
    after_ns: np.ndarray
    rank: np.ndarray
    name: np.ndarray
    step: np.ndarray
    is_alone: np.ndarray
    ready_ns: np.ndarray

    def together(self) -> set[tuple[int, ...]]:
        """The ranks of each instance; once those that are the same."""
        table = table_of({"instance": self.instance, "rank": self.of_rank}).drop_duplicates()
        return {tuple(own.tolist()) for _, own in table.sort_values("rank").groupby("instance")["rank"]}


def edges_of(nodes: Mapping[int, Nodes], base: Mapping[int, int], offset_ns: Mapping[int, int]) -> Meetings:
    """Of the job; each rank's nodes are numbered from its `base`."""
    tables = [
        own.piece.meetings.assign(
            rank=rank,
            goes_on=np.append(own.segment_node + base[rank], NONE)[array_of(own.piece.meetings, "segment")],
            begins=own.segment_node[array_of(own.piece.meetings, "begins")] + base[rank],
            start_ns=own.piece.meetings["start_ns"] - offset_ns[rank],
            end_ns=own.piece.meetings["end_ns"] - offset_ns[rank],
        )
        for place, (rank, own) in enumerate(nodes.items())
        if len(own.piece.meetings) or not place
    ]
    every = under_each_other(tables)
    codes, numbers = pd.factorize(array_of(every, "instance"))
    ready = np.full(len(numbers), np.iinfo(np.int64).min)
    np.maximum.at(ready, codes, array_of(every, "start_ns"))
    waits = np.flatnonzero((every["goes_on"] != NONE).to_numpy())
    held = every.iloc[waits]
    instance = codes[waits]
    return Meetings(
        begins=array_of(every, "begins"),
        begun_ns=array_of(every, "start_ns"),
        of_rank=array_of(every, "rank"),
        instance=codes,
        count=len(numbers),
        waits=waits,
        goes_on=array_of(held, "goes_on"),
        after_ns=array_of(held, "end_ns") - ready[instance],
        rank=array_of(held, "rank"),
        name=held["name"].to_numpy(dtype=object),
        step=array_of(held, "step"),
        is_alone=np.bincount(codes, minlength=1)[instance] == 1,
        ready_ns=ready[instance],
    )


def awaited(meetings: Meetings, name: str) -> dict[int, int]:
    """For each rank the one for which it waits longest in collectives of this name: who came last to them."""
    last = np.full(meetings.count, NONE, dtype=np.int64)
    by_start = np.argsort(meetings.begun_ns, kind="stable")
    last[meetings.instance[by_start]] = meetings.of_rank[by_start]
    waits = meetings.waits[meetings.name == name]
    table = table_of(
        {
            "rank": meetings.of_rank[waits],
            "last": last[meetings.instance[waits]],
            "ns": meetings.ready_ns[meetings.name == name] - meetings.begun_ns[waits],
        }
    )
    waited = table[table["ns"] > 0].groupby(["rank", "last"])["ns"].sum().sort_values(ascending=False).reset_index()
    first = waited.drop_duplicates("rank")
    return dict(zip(first["rank"].tolist(), first["last"].tolist(), strict=True))


def _instances(every: pd.DataFrame) -> np.ndarray:
    """Number of each row's instance; of a host whose partners are not known it has one to itself."""
    found = np.full(len(every), NONE, dtype=np.int64)
    starts, ends = array_of(every, "start_ns"), array_of(every, "end_ns")
    number = 0
    # Of messages the trace does not say whose they are.
    place = every["place"].where(~every["name"].isin(_MESSAGES), every.index.to_series())
    for rows in every.assign(place=place).groupby(["step", "name", "place"]).indices.values():
        for members in _parted(rows[np.argsort(ends[rows], kind="stable")].tolist(), starts, ends):
            found[members] = number
            number += 1
    return found


def _parted(by_end: list[int], starts: np.ndarray, ends: np.ndarray) -> Iterator[list[int]]:
    """Rows that may have met: from the last to end on, those that ended after all of them had begun."""
    members: list[int] = []
    latest = 0
    for row in reversed(by_end):
        if members and ends[row] + WITHIN_NS < latest:
            yield members
            members = []
        latest = max(latest, int(starts[row])) if members else int(starts[row])
        members.append(row)
    if members:
        yield members
