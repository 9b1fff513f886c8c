"""The graph of the whole job: the ranks' graphs joined by collectives and messages."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import typed
from traceanalyzer.analyses.grouping import Groups, memoized_by_tables, number_in_group, rows_of_each
from traceanalyzer.analyses.pipelines.shape import is_of_hub
from traceanalyzer.analyses.replay.graph import Nodes, Order, Timing, main_streams, order_of
from traceanalyzer.analyses.replay.rank_graph import NEVER, SOURCE, Piece
from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.kinds import CPU_BACKENDS, POINT_TO_POINT
from traceanalyzer.meaning.vocabulary import LAUNCH_NS
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.spilled import spilled_arrays
from traceanalyzer.model.tables import array_of, column_of, table_of, under_each_other, with_columns

# Collectives of the CPU matched over ranks: their hosts meet there, and all go on when the last one has come.


_MESSAGES = tuple(f"{backend}{name}" for backend in CPU_BACKENDS for name in ("send", "recv"))


def with_meetings(pieces: Mapping[int, Piece], offset_ns: Mapping[int, int]) -> dict[int, Piece]:
    """The pieces with `instance` of their meetings; `offset_ns` is by how much each rank's clock is ahead.

    The trace names no group of them. Those of a name at the same place in a step are the same, as far as their times
    agree: who had ended before the last one began did not wait for it. So groups that meet at different moments are
    separate, and of a broadcast those are joined that still waited when its root came.
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
        if members and ends[row] + LAUNCH_NS < latest:
            yield members
            members = []
        latest = max(latest, int(starts[row])) if members else int(starts[row])
        members.append(row)
    if members:
        yield members


# The graph of the whole job: the ranks' pieces joined by the collectives and messages that they exchange.


_NO_ROWS = np.empty(0, dtype=np.int64)


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
        return spilled_arrays(order_of(self.count, self.source, self.target, self._is_join | self._is_meeting, when))

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
    latest = calls.largest(np.where(waits, ready, NEVER))[calls.of_row]
    latest = np.where(latest == NEVER, ready, latest)
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


# The windows whose lengths a replay gives: complete steps of all ranks, else what is looked at of each capture.
#
# The first step begins when the host begins it and the earlier operations have ended. A later one begins with its first
# operation on the main stream (`main_streams`): communication may run ahead of it, and would in many a changed job. The
# last one before recording ends or pauses ends with its last operation; one behind a pause begins with its first.


class Windows(Struct, frozen=True):
    """One row of `table` for each window: `rank`, `step` (absent for a whole capture), and the job's nodes around it.

    Attributes:
        table: rank and step.
        begin: node at which each window begins.
        ends: nodes of which the last ends it, one row after the other.
        window_of_end: row of each of those.
        has_steps: they are steps.
    """

    table: pd.DataFrame
    begin: np.ndarray
    ends: np.ndarray
    window_of_end: np.ndarray
    has_steps: bool

    @property
    def steps(self) -> int | None:
        """How many steps of the job; `None` for a whole capture."""
        return self.table["step"].nunique() if self.has_steps else None

    def lengths(self, times: np.ndarray) -> np.ndarray:
        """Length of each window for the times of all nodes; a column for each replay."""
        latest = np.full((len(self.table), times.shape[1]), np.iinfo(np.int64).min)
        np.maximum.at(latest, self.window_of_end, times[self.ends])
        lengths: np.ndarray = latest - times[self.begin]
        return lengths

    def of_job(self, times: np.ndarray) -> np.ndarray:
        """Length of each step of the job, from when its last rank began it to when the last began the next.

        So a rank that was early to begin with lengthens nothing. A capture without steps is as long as from the first
        begin to the last end. One row for each step.
        """
        begins, ends = times[self.begin], self.lengths(times) + times[self.begin]
        step, count = _steps_of(self.table)
        first, last = (np.full((count, times.shape[1]), limit) for limit in (_LAST, _FIRST))
        np.maximum.at(last, step, ends)
        if self.has_steps:
            first[:] = _FIRST
            np.maximum.at(first, step, begins)
        else:
            np.minimum.at(first, step, begins)
        length: np.ndarray = last - first
        return length

    def of_slowest(self, times: np.ndarray) -> np.ndarray:
        """The same of the rank that takes longest for all of them, by itself: of ranks that wait for nobody."""
        lengths = self.lengths(times)
        ranks, codes = np.unique(array_of(self.table, "rank"), return_inverse=True)
        total = np.zeros((len(ranks), times.shape[1]), dtype=np.int64)
        np.add.at(total, codes, lengths)
        # Every rank has the same steps, in order.
        slowest = total.argmax(axis=0)
        columns = [lengths[codes == rank, column] for column, rank in enumerate(slowest.tolist())]
        return np.stack(columns, axis=1)


@memoized_by_tables
def _steps_of(table: pd.DataFrame) -> tuple[np.ndarray, int]:
    """For each window the number of its step among the job's, and how many these are."""
    step, distinct = pd.factorize(table["step"], use_na_sentinel=False)
    return step, len(distinct)


_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def windows_of(job: Job, steps: Steps) -> Windows:
    """Find them."""
    table = steps.table
    complete = complete_steps(table)
    ranks = set(job.nodes)
    shared = shared_steps(complete[~_outlives_gpu(job, complete)], ranks) or shared_steps(complete, ranks)
    rows = [_of_rank(job, rank, shared) for rank in job.nodes]
    if not shared or any(len(part) < len(shared) for part in rows):
        rows = [_whole(job, rank, table) for rank in job.nodes]
        shared = []
    parts = [(rank, *window) for rank, windows in zip(job.nodes, rows, strict=True) for window in windows]
    return Windows(
        table=table_of(
            {
                "rank": np.array([part[0] for part in parts], dtype=np.int64),
                "step": pd.array([part[1] if shared else pd.NA for part in parts], dtype="Int64"),
            }
        ),
        begin=np.array([part[2] for part in parts], dtype=np.int64),
        ends=np.concatenate([part[3] for part in parts]),
        window_of_end=np.repeat(np.arange(len(parts)), [len(part[3]) for part in parts]),
        has_steps=bool(shared),
    )


Window = tuple[int, int, np.ndarray]


def _outlives_gpu(job: Job, steps: pd.DataFrame) -> np.ndarray:
    """Mask of steps of which over 3% lie after the rank's last GPU operation: the graph has no end for them."""
    last_ns = {
        rank: int((array_of(nodes.piece.ops, "start_ns") + array_of(nodes.piece.ops, "duration_ns")).max())
        for rank, nodes in job.nodes.items()
    }
    window_ns = steps["window_ns"].to_numpy(dtype=np.int64)
    after_ns = steps["start_ns"].to_numpy(dtype=np.int64) + window_ns - steps["rank"].map(last_ns).to_numpy()
    mask: np.ndarray = after_ns > PERCENT / 100 * window_ns
    return mask


def _of_rank(job: Job, rank: int, shared: list[int]) -> list[Window]:
    """Step, node where it begins, nodes of which the last ends it."""
    nodes = job.nodes[rank]
    ops, own = nodes.piece.ops, nodes.piece.steps
    step = array_of(ops, "step")
    first = np.flatnonzero(nodes.begins_step & (ops["stream"] == nodes.main_stream).to_numpy() & (step != NONE))
    begins = nodes.start_node[first]
    for row in nodes.resumed:
        begins[step[first] == step[row]] = nodes.start_node[row]
    numbers, paused = step[first].tolist(), {*own["step"][own["is_paused"]].tolist()}
    if {*numbers[-1:]} <= {*shared}:  # else steps last from operation to operation, that the mean is right
        begins[:1] = nodes.begin_node
    windows = []
    for at, number in enumerate(numbers):
        if number not in shared:
            continue
        is_last = at + 1 == len(numbers) or number in paused
        ends = nodes.end_node[nodes.last_of_streams(step == number)] if is_last else begins[at + 1 : at + 2]
        windows.append((number, int(job.node(rank, begins[at : at + 1])[0]), job.node(rank, ends)))
    return windows


def _whole(job: Job, rank: int, steps: pd.DataFrame) -> list[Window]:
    """The whole capture; of one of which steps were chosen what lies from the first of these to the last."""
    nodes = job.nodes[rank]
    ops = nodes.piece.ops
    start, step = array_of(ops, "start_ns"), array_of(ops, "step")
    numbers = steps.loc[steps["rank"] == rank, "step"].dropna().astype("int64") if len(steps) else step[:0]
    chosen = np.isin(step, numbers)
    is_left_out = (step != NONE) & ~chosen
    held = chosen if chosen[nodes.singles].any() and is_left_out.any() else np.ones(len(ops), dtype=bool)
    singles = nodes.singles[held[nodes.singles]]
    first = singles[start[singles].argmin()]
    ends = job.node(rank, np.unique(nodes.end_node[held]))
    return [(NONE, int(job.node(rank, nodes.start_node[[first]])[0]), ends)]


# Which ranks of a job exchange messages with each other: the stages of its pipelines.


def linked_ranks(job: Job) -> np.ndarray:
    """For each two ranks whether they do, directly or not.

    Messages between attention kernels, that go round, are no stages', nor are those around one rank (`hubs`).
    """
    place = {rank: column for column, rank in enumerate(job.nodes)}
    joins = job.joins
    of_message = joins[joins["collective"].isin((*POINT_TO_POINT, "send_recv")) & ~_is_ring(job)]
    pairs = of_message.groupby("instance")["rank"].agg(["min", "max"]).drop_duplicates()
    pairs = pairs[~is_of_hub(pairs.set_axis(["one", "other"], axis=1))]
    lowest, before = np.arange(len(place)), None
    one, other = (pairs[end].map(place).to_numpy(dtype=np.int64) for end in ("min", "max"))
    while before is None or (lowest != before).any():
        before = lowest.copy()
        least = np.minimum(lowest[one], lowest[other])
        np.minimum.at(lowest, one, least)
        np.minimum.at(lowest, other, least)
        lowest = lowest[lowest]
    linked: np.ndarray = lowest[:, None] == lowest
    return linked


def _is_ring(job: Job) -> np.ndarray:
    """Rows of `Job.joins` of messages that go round."""
    op = array_of(job.joins, "op")
    found = np.zeros(len(op), dtype=bool)
    for rank, nodes in job.nodes.items():
        rows = job.joins_of(rank)
        found[rows] = array_of(nodes.piece.ops, "is_ring")[op[rows]]
    return found


# Which operation of one rank is which of another.


class SameOperations:
    """The operations of all ranks, of which those of one name at one place (`places`) are the same.

    What communicates, and what belongs to no step of a job with steps, is compared with nothing.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._known: dict[str, int] = {}

    @cached_property
    def names(self) -> dict[int, np.ndarray]:
        """Code of each operation's name over all ranks; -1 for what is not compared."""
        found = {}
        for rank, nodes in self._job.nodes.items():
            ops = nodes.piece.ops
            names = ops["name"].cat
            of_category = np.array(
                [self._known.setdefault(name, len(self._known)) for name in names.categories.tolist()] + [NONE]
            )
            counted = (array_of(ops, "call") == NONE) & self.is_in_step(array_of(ops, "step"))
            found[rank] = np.where(counted, of_category[names.codes.to_numpy()], NONE)
        return found

    @property
    def count(self) -> int:
        """How many names there are."""
        return len(self.names) and len(self._known)

    def is_in_step(self, step: np.ndarray) -> np.ndarray:
        """Which of these are in a step; all of a job without steps."""
        return (step != NONE) if self._has_steps else np.ones(len(step), dtype=bool)

    @cached_property
    def _has_steps(self) -> bool:
        return any((nodes.piece.ops["step"] != NONE).any() for nodes in self._job.nodes.values())

    @cached_property
    def _numbered(self) -> "Numbered":
        pieces = {rank: nodes.piece for rank, nodes in self._job.nodes.items()}
        of_rank = places(pieces, self.names)
        return Numbered({rank: (of_rank[rank], name != NONE) for rank, name in self.names.items()})

    @property
    def keys(self) -> dict[int, np.ndarray]:
        """For each rank's operations the number of name and place, which is the same on all ranks; -1 without."""
        return self._numbered.keys

    @cached_property
    def table_ns(self) -> np.ndarray:
        """The recorded durations by that number (rows) and rank (columns)."""
        return self._numbered.table([nodes.column("ops", "duration_ns") for nodes in self._job.nodes.values()])


class Numbered:
    """Rows of all ranks that have the same key.

    Attributes:
        keys: for each rank the number of each row's key, -1 where it is not held.
    """

    def __init__(self, parts: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> None:
        """Number the keys (a row each) of each rank's rows; with them goes which rows are held."""
        lengths = [len(key) for key, _ in parts.values()]
        keys, held = (np.concatenate([part[place] for part in parts.values()]) for place in range(2))
        self._code = np.full(len(keys), NONE, dtype=np.int64)
        columns = {str(place): own for place, own in enumerate(keys[held].T)}
        self._code[held] = Groups.of(columns, list(columns), by_appearance=True).of_row
        self._held, self._column = held, np.repeat(np.arange(len(parts)), lengths)
        self.keys = dict(zip(parts, np.split(self._code, np.cumsum(lengths)[:-1]), strict=True))

    def table(self, lengths: Sequence[np.ndarray]) -> np.ndarray:
        """The sums of the ranks' values by number (rows) and rank (columns)."""
        shape = (int(self._code.max(initial=NONE)) + 1, len(self.keys))
        cell = self._code[self._held] * shape[1] + self._column[self._held]
        sums = np.bincount(cell, np.concatenate(lengths)[self._held], shape[0] * shape[1])
        return sums.reshape(shape).astype(float)


def places(pieces: Mapping[int, Piece], names: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """For each rank's operations, a row each: step, stretch, name's code, number among those of the three before it.

    Where the ranks run a name equally often in a step, the n-th is the n-th of the others, whatever lies between; the
    stretch is 0. Where one runs it more often, the n-th of all would be compared with another part of the program:
    there only those launched between the same two communication calls are, if the ranks make as many of these.

    Args:
        pieces: each rank's operations (`ops`) and its hosts' work (`host`).
        names: of each operation the code of its name over all ranks; -1 for what is not compared.
    """
    steps = np.unique(np.concatenate([array_of(piece.ops, "step") for piece in pieces.values()]))
    size = max(int(code.max(initial=NONE)) for code in names.values()) + 1
    runs, calls = {}, []
    for rank, piece in pieces.items():
        row = np.searchsorted(steps, array_of(piece.ops, "step"))
        runs[rank] = row * size + names[rank]
        calls.append(np.bincount(row[_is_call(piece)], minlength=len(steps)))
    held = np.stack([np.bincount(own[names[rank] != NONE], minlength=len(steps) * size) for rank, own in runs.items()])
    fewest = np.where(held > 0, held, held.max(initial=0) + 1).min(axis=0)
    has_same_calls = np.ptp(np.stack(calls), axis=0) == 0
    is_uneven = (held.max(axis=0) > fewest) & np.repeat(has_same_calls, size)
    found = {}
    for rank, piece in pieces.items():
        stretch = np.zeros(len(piece.ops), dtype=np.int64)
        if is_uneven.any():
            stretch = np.where((names[rank] != NONE) & is_uneven[runs[rank]], _calls_before(piece), 0)
        found[rank] = _numbered(piece.ops, stretch, names[rank])
    return found


def calls_passed(piece: Piece) -> np.ndarray:
    """For each piece of the rank's host work how many operations of communication were launched before it, in all."""
    launch = array_of(piece.ops, "launch")
    begins = np.zeros(len(piece.host), dtype=np.int64)
    begins[launch[_is_call(piece) & (launch != NONE)]] = 1
    passed: np.ndarray = np.cumsum(begins) - begins
    return passed


def _is_call(piece: Piece) -> np.ndarray:
    return (piece.ops["call"] != NONE).to_numpy()


def _calls_before(piece: Piece) -> np.ndarray:
    """The same of each operation, by the work that launched it, within its step; 0 where no launch is known."""
    launch, step = array_of(piece.ops, "launch"), array_of(piece.ops, "step")
    passed = np.append(calls_passed(piece), 0)[launch]
    known = launch != NONE
    before = np.zeros(len(launch), dtype=np.int64)
    before[known] = since_first(passed[known], step[known])
    return before


def since_first(passed: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The numbers as counted from the smallest of their step."""
    groups = Groups.of_numbers(steps)
    return passed - groups.smallest(passed)[groups.of_row]


def _numbered(ops: pd.DataFrame, stretch: np.ndarray, name: np.ndarray) -> np.ndarray:
    """In order of launch over all streams, whose numbers may be others where the same program runs.

    Of what one call launched, as a graph, or of which no launch is known, in order of start: of two streams now one may
    come first there, now the other.
    """
    step = array_of(ops, "step")
    order = np.lexsort((array_of(ops, "start_ns"), array_of(ops, "launch")))
    number = np.empty(len(ops), dtype=np.int64)
    keys = {"step": step[order], "stretch": stretch[order], "name": name[order]}
    number[order] = number_in_group(Groups.of(keys, list(keys)).of_row)
    return np.stack([step, stretch, name, number], axis=1)


# Waits between streams that times show in some steps or on some ranks are there in all: the program is the same.


_PAIR = ["kind_source", "number_source", "kind_target", "number_target"]
"""What two operations of a step are: numbers of stream and name, and place among those of that name in the step."""


def with_waits_alike(pieces: Mapping[int, Piece]) -> dict[int, Piece]:
    """The pieces, each with the waits that times show between the same two operations elsewhere, without refuted ones.

    A wait that no event tells is seen only where nothing else holds the operation for longer: where a collective waits
    for a straggler, that hides that it also waits for its own rank's gradient. Two operations are the same two in
    another step or on another rank when each is of the same stream, name and place among those of its name in the
    step. Where times contradict a wait anywhere, by more than such operations overlap, it is none.

    Where a wait that calls tell binds nothing, times cannot contradict it: the next batch's copy, launched right before
    the wait for this one's, has long ended on ranks that wait for a late one. A rank of which times contradict it in
    each of several steps shows that the program does not wait for it: the call was for another event.
    """
    touching = {rank: piece.waits[piece.waits["is_touching"].astype(bool)] for rank, piece in pieces.items()}
    shown = {rank: [touching[rank], piece.denied] for rank, piece in pieces.items()}
    if all(table.empty for tables in shown.values() for table in tables):
        return dict(pieces)
    ops = _operations_of(pieces, shown)
    left = _without_denied(pieces, ops)
    seen = under_each_other([_pairs(ops[rank], waits) for rank, waits in touching.items()])
    each = seen.groupby(["kind_source", "kind_target"])["over_ns"]
    seen = seen.assign(over_ns=each.transform("max"))[each.transform("size") > 1]
    wanted = seen.drop_duplicates(ignore_index=True).rename_axis("wait").reset_index()
    pairs = {rank: _everywhere(own, wanted) for rank, own in ops.items()}
    jitter_ns = wanted["over_ns"].clip(lower=0)  # by `wait`, the row
    refuted = set[int]()
    for own in pairs.values():
        refuted |= {*own.loc[own["end_ns_x"] - own["start_ns_y"] > own["wait"].map(jitter_ns), "wait"]}
    return {rank: _with(piece, pairs[rank][~pairs[rank]["wait"].isin(refuted)]) for rank, piece in left.items()}


def _operations_of(pieces: Mapping[int, Piece], shown: Mapping[int, list[pd.DataFrame]]) -> dict[int, pd.DataFrame]:
    """Of each rank the operations, by row, of kernels that the shown waits are of: what they are, where, and when."""
    known: dict[object, int] = {}
    kinds = {rank: _kinds(piece, known) for rank, piece in pieces.items()}
    held = [kinds[rank][array_of(table, end).astype(np.int64)]
            for rank, tables in shown.items() for table in tables for end in ("source", "target")]  # fmt: skip
    found = {}
    for rank, piece in pieces.items():
        rows = np.flatnonzero(np.isin(kinds[rank], np.concatenate(held)))
        step, start, length = (array_of(piece.ops, name)[rows] for name in ("step", "start_ns", "duration_ns"))
        columns = {"step": step, "kind": kinds[rank][rows]}
        number = number_in_group(Groups.of(columns, ["step", "kind"]).of_row)
        found[rank] = table_of({**columns, "number": number, "start_ns": start, "end_ns": start + length}).set_axis(
            rows
        )
    return found


def _kinds(piece: Piece, known: dict[object, int]) -> np.ndarray:
    """Number of each operation's stream and name over all ranks."""
    ops = piece.ops
    each = Groups.of({"stream": array_of(ops, "stream"), "name": column_of(ops, "name")}, ["stream", "name"])
    pairs = zip(each.keys["stream"].tolist(), each.keys["name"].tolist(), strict=True)
    kinds: np.ndarray = np.array([known.setdefault(pair, len(known)) for pair in pairs], dtype=np.int64)[each.of_row]
    return kinds


def _pairs(ops: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """What both operations of each wait within a step are, in the waits' index; without those of other kernels.

    With `over_ns`, by how much they overlap.
    """
    source, target = (ops.reindex(array_of(waits, end)).set_axis(waits.index) for end in ("source", "target"))
    both = source.add_suffix("_source").join(target.add_suffix("_target"))
    both["over_ns"] = both["end_ns_source"] - both["start_ns_target"]
    return both.loc[both["step_source"] == both["step_target"], [*_PAIR, "over_ns"]]


def _without_denied(pieces: Mapping[int, Piece], ops: Mapping[int, pd.DataFrame]) -> dict[int, Piece]:
    """The pieces without the told waits that times contradict more than once on a rank that never waits so."""
    told = {}
    never: set[tuple[float, ...]] = set()
    for rank, piece in pieces.items():
        is_told = ~(piece.waits["is_recorded"] | piece.waits["is_touching"]).astype(bool)
        told[rank] = _tuples(_pairs(ops[rank], piece.waits[is_told]))
        counts = Counter(_tuples(_pairs(ops[rank], piece.denied)).values())
        never |= {pair for pair, count in counts.items() if count > 1} - {*told[rank].values()}
    return {
        rank: replace(piece, waits=piece.waits.drop(index=[row for row, pair in told[rank].items() if pair in never]))
        for rank, piece in pieces.items()
    }


def _tuples(pairs: pd.DataFrame) -> dict[int, tuple[float, ...]]:
    return dict(zip(pairs.index, pairs[_PAIR].itertuples(index=False, name=None), strict=True))


def _everywhere(ops: pd.DataFrame, wanted: pd.DataFrame) -> pd.DataFrame:
    """Both operations (`row_x`, `row_y`) of each wanted `wait` in each of the rank's steps."""
    own = ops.rename_axis("row").reset_index()
    source, target = (
        wanted[["wait", f"kind_{end}", f"number_{end}"]].merge(
            own, left_on=[f"kind_{end}", f"number_{end}"], right_on=["kind", "number"]
        )[["wait", "step", "row", "start_ns", "end_ns"]]
        for end in ("source", "target")
    )
    return source.merge(target, on=["wait", "step"])


def _with(piece: Piece, pairs: pd.DataFrame) -> Piece:
    """With the waits that it does not have yet."""
    waits, source, target = piece.waits, array_of(pairs, "row_x"), array_of(pairs, "row_y")
    known = array_of(waits, "source") * len(piece) + array_of(waits, "target")
    is_new = ~np.isin(source * len(piece) + target, known)
    if not is_new.any():
        return piece
    more = table_of({"source": source[is_new], "target": target[is_new], "is_recorded": False, "is_touching": True})
    return replace(piece, waits=under_each_other([waits, more]))
