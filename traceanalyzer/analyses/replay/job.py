"""The graph of the whole job: the ranks' pieces joined by the collectives and messages that they exchange."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import typed
from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.analyses.replay.main_streams import main_streams
from traceanalyzer.analyses.replay.meetings import edges_of
from traceanalyzer.analyses.replay.nodes import NEVER, Nodes, Timing
from traceanalyzer.analyses.replay.order import Order, order_of
from traceanalyzer.analyses.replay.piece import SOURCE, Piece
from traceanalyzer.model.aside import arrays_aside
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, with_columns

_NO_ROWS = np.empty(0, dtype=np.int64)

_NEVER_NS = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Lengths:
    """The graph's lengths in one replay.

    Attributes:
        timing: of each rank's piece.
        transfer_ns: of each row of `Job.joins`: from when the last partner is ready to the call's end.
        has_waits: calls wait for their partners.
        met_ns: of each wait of `Job.meetings`: from when the last host has come to its going on; `None` as recorded.
    """

    timing: Mapping[int, Timing]
    transfer_ns: np.ndarray
    has_waits: bool = True
    met_ns: np.ndarray | None = None


class Job:
    """Pieces of all ranks in one graph, on the common clock as far as it is known.

    `joins` has a row for each call in each of its instances: `rank`, `op` (row in the rank's piece), `instance`
    (numbered from 0), `transfer_ns`. An instance is ready when its last call has started. Hosts meet in the CPU's
    collectives (`meetings`), whose instances are nodes behind those.
    """

    def __init__(self, pieces: Mapping[int, Piece], members: pd.DataFrame, offset_ns: Mapping[int, int]) -> None:
        held = {rank: piece for rank, piece in sorted(pieces.items()) if len(piece)}
        streams = main_streams(held)
        self.nodes = {rank: Nodes(piece, streams[rank]) for rank, piece in held.items()}
        self.offset_ns = {rank: offset_ns.get(rank, 0) for rank in self.nodes}
        starts = [nodes.piece.ops["start_ns"].min() - self.offset_ns[rank] for rank, nodes in self.nodes.items()]
        self.origin_ns = int(min(starts, default=0))
        self.transfers: dict[tuple[object, ...], np.ndarray] = {}
        """Transfers after changes that were asked for lately."""
        counts = [nodes.count for nodes in self.nodes.values()]
        self.base = dict(zip(self.nodes, np.append(0, np.cumsum(counts)).tolist(), strict=False))
        self.first_instance = 1 + sum(counts)
        self.joins = _joins(self, members)
        self.first_meeting = self.first_instance + int(self.joins["instance"].max() + 1 if len(self.joins) else 0)
        self.meetings = edges_of(self.nodes, self.base, self.offset_ns)
        self.count = self.first_meeting + self.meetings.count
        self._link()

    def joins_of(self, rank: int) -> np.ndarray:
        """Rows of the rank in `joins`."""
        return self._rows_of_joins.get(rank, _NO_ROWS)

    @cached_property
    def _rows_of_joins(self) -> Mapping[int, np.ndarray]:
        ranks = self.joins["rank"].to_numpy(dtype=np.int64)
        return {int(ranks[rows[0]]): rows for rows in rows_of_each(ranks)}

    def node(self, rank: int, own: np.ndarray) -> np.ndarray:
        """Numbers in the job of a rank's nodes."""
        return np.where(own == SOURCE, SOURCE, own + self.base[rank])

    def _link(self) -> None:
        joins = self.joins
        start, end = self._nodes_of_joins()
        instance = self.first_instance + array_of(joins, "instance")
        waits = joins["waits"].to_numpy(dtype=bool)
        self.start_of_join = start
        """Node of each matched call's start."""
        own = [(self.node(rank, nodes.source), self.node(rank, nodes.target)) for rank, nodes in self.nodes.items()]
        self.waiting = np.flatnonzero(waits)
        met = self.first_meeting + self.meetings.instance
        of_hosts = [(self.meetings.begins, met), (met[self.meetings.waits], self.meetings.goes_on)]
        pairs = [*own, (start, instance), (instance[waits], end[waits]), *of_hosts]
        self.source = np.concatenate([pair[0] for pair in pairs])
        self.target = np.concatenate([pair[1] for pair in pairs])
        kinds = [np.full(len(pair[0]), place) for place, pair in enumerate(pairs[len(own) :])]
        of_edge = np.concatenate([np.full(sum(len(pair[0]) for pair in own), NONE), *kinds])
        self._is_join, self._is_meeting = of_edge == 1, of_edge == 3

    def _nodes_of_joins(self) -> tuple[np.ndarray, np.ndarray]:
        start, end = np.zeros(len(self.joins), dtype=np.int64), np.zeros(len(self.joins), dtype=np.int64)
        for rank, nodes in self.nodes.items():
            rows = self.joins_of(rank)
            op = array_of(self.joins, "op")[rows]
            start[rows] = self.node(rank, nodes.start_node[op])
            end[rows] = self.node(rank, nodes.end_node[op])
        return start, end

    @cached_property
    def order(self) -> Order:
        """The order of all nodes."""
        when = np.zeros(len(self.source), dtype=np.int64)
        when[self._is_join] = array_of(self.joins, "ready_ns")[self.waiting]
        when[self._is_meeting] = self.meetings.ready_ns - self.origin_ns
        return arrays_aside(order_of(self.count, self.source, self.target, self._is_join | self._is_meeting, when))

    @cached_property
    def recorded(self) -> Lengths:
        """Nothing changed: what the model does not explain is kept, so that the replay gives the recording."""
        timing = {}
        waits, ops, own_ns = (array_of(self.joins, name) for name in ("waits", "op", "own_ns"))
        for rank, nodes in self.nodes.items():
            rows = self.joins_of(rank)
            held = rows[waits[rows].astype(bool)]
            duration = nodes.recorded.duration_ns.copy()
            duration[ops[held]] = np.minimum(duration[ops[held]], own_ns[held])
            timing[rank] = replace(nodes.recorded, duration_ns=duration)
        return Lengths(timing, array_of(self.joins, "transfer_ns"))

    @cached_property
    def explained(self) -> Lengths:
        """The same without what the model does not explain."""
        timing = {rank: replace(own, has_lag=False) for rank, own in self.recorded.timing.items()}
        return replace(self.recorded, timing=timing)

    @cached_property
    def _recorded_weights(self) -> dict[int, np.ndarray]:
        return {rank: self.own_weights(rank, timing) for rank, timing in self.recorded.timing.items()}

    def own_weights(self, rank: int, timing: Timing) -> np.ndarray:
        """Length of the edges of one rank."""
        weights = self.nodes[rank].weights(timing)
        shift = self.origin_ns + self.offset_ns[rank]
        return np.where(self.nodes[rank].source == SOURCE, weights - shift, weights)

    def weights(self, lengths: Lengths) -> np.ndarray:
        """Length of every edge."""
        known = self.recorded.timing
        own = [
            self._recorded_weights[rank] if timing is known[rank] else self.own_weights(rank, timing)
            for rank, timing in lengths.timing.items()
        ]
        met_ns = self.meetings.after_ns if lengths.met_ns is None else lengths.met_ns
        return self.joined(own, lengths.transfer_ns, met_ns, has_waits=lengths.has_waits)

    def joined(
        self, own: list[np.ndarray], transfer_ns: np.ndarray, met_ns: np.ndarray, *, has_waits: bool
    ) -> np.ndarray:
        """Lengths of the ranks' own edges, and of those between them."""
        begun, met = (np.zeros(len(rows), dtype=np.int64) for rows in (self.joins, self.meetings.begins))
        transfer, after = transfer_ns[self.waiting], met_ns
        if not has_waits:
            transfer, after = (np.full(len(lengths), NEVER) for lengths in (transfer, after))
        return np.concatenate([*own, begun, transfer, met, after])

    def replay(self, *lengths: Lengths) -> np.ndarray:
        """When each node is reached, a column for each of them, since the job's first operation started."""
        return self.order.latest(np.stack([self.weights(each) for each in lengths], axis=1))


def _joins(job: Job, members: pd.DataFrame) -> pd.DataFrame:
    """Matched calls on the common clock, with what follows once the instance is ready."""
    held = members[members["instance"].notna() & members["rank"].isin(list(job.nodes))] if len(members) else members
    names = ("rank", "call", "instance", "start_ns", "end_ns")
    table = pd.DataFrame({name: held[name].to_numpy(dtype=np.int64) for name in names if name in held} or
                         {name: np.empty(0, dtype=np.int64) for name in names})  # fmt: skip
    shift = np.array([job.offset_ns[rank] for rank in table["rank"].tolist()], dtype=np.int64) + job.origin_ns
    start, end = (array_of(table, name) - shift for name in ("start_ns", "end_ns"))
    table = with_columns(table, start_ns=start, end_ns=end, op=_ops(job, table))
    for name in ("collective", "size_bytes"):
        table[name] = held[name].to_numpy(dtype=object, na_value=None) if len(held) else None
    table = typed(table, {"size_bytes": "Float64", "collective": "str"})
    synchronises = ~column_of(held, "wait_ns").isna() if len(held) else np.zeros(0, dtype=bool)
    instances = Groups.of(table, ["instance"], by_appearance=True)
    ready = instances.largest(start)[instances.of_row]
    waits = synchronises | (end > ready)
    # Of several messages in one call the last that is ready among those it waits for decides.
    calls = Groups.of(table, ["rank", "call"])
    latest = calls.largest(np.where(waits, ready, _NEVER_NS))[calls.of_row]
    latest = np.where(latest == _NEVER_NS, ready, latest)
    after = end - latest
    # The others are given what both ends took.
    transfer = np.maximum(instances.smallest(after), 0)[instances.of_row]
    after = np.where(ready == latest, after, np.minimum(after, transfer))
    return with_columns(
        table,
        synchronises=synchronises,
        is_whole=held["is_whole"].to_numpy(dtype=bool) if len(held) else np.ones(0, dtype=bool),
        instance=instances.of_row,
        ready_ns=ready,
        transfer_ns=after,
        own_ns=np.maximum(after, 0),
        # One that had ended before its last partner came did not wait for it.
        waits=waits,
    )


def _ops(job: Job, table: pd.DataFrame) -> np.ndarray:
    """Row of each call in its rank's piece."""
    op = np.full(len(table), NONE, dtype=np.int64)
    for rank, rows in table.groupby("rank").indices.items():
        call = array_of(job.nodes[rank].piece.ops, "call")
        by_call = np.full(int(call.max()) + 1, NONE, dtype=np.int64)
        by_call[call[call != NONE]] = np.flatnonzero(call != NONE)
        op[rows] = by_call[array_of(table, "call")[rows]]
    return op
