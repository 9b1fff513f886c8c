"""The graph of the whole job: the ranks' graphs joined by collectives and messages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.breakdown import Steps, complete_steps, shared_steps
from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.analyses.replay.graph import NEVER, SOURCE, Nodes, Order, Piece, Timing, main_streams, order_of
from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.kinds import CPU_BACKENDS
from traceanalyzer.meaning.vocabulary import LAUNCH_NS
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, spilled_arrays, table_of, under_each_other, with_columns, without_rows

_NO_ROWS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Lengths:
    """The graph's lengths in one replay.

    Attributes:
        timing: of each rank's piece.
        transfer_ns: of each row of `Job.joins`: from when the last partner is ready to the call's end.
        has_waits: calls wait for their partners.
    """

    timing: Mapping[int, Timing]
    transfer_ns: np.ndarray
    has_waits: bool = True


class Job:
    """Pieces of all ranks in one graph, on the common clock as far as it is known.

    `joins` has a row for each call in each of its instances, those of GPUs before those of CPUs: `rank`, `step`, `op`
    (row in the rank's piece, -1 of a CPU's), `collective`, `size_bytes`, `is_ring` (a message that goes round),
    `instance` (numbered from 0), `is_whole` (all ranks of it are known), `start` and `end` (nodes), `waits` (it waits
    for the others), `start_ns`, `end_ns`, `ready_ns` (when the last call of its instance has started), `transfer_ns`
    (from then to its end), `own_ns` (the same, never negative). Each instance is a node; times count from `origin_ns`
    on the common clock.
    """

    def __init__(self, pieces: Mapping[int, Piece], members: pd.DataFrame, offset_ns: Mapping[int, int]) -> None:
        held = {rank: piece for rank, piece in sorted(pieces.items()) if len(piece)}
        streams = main_streams(held)
        self.nodes = {rank: Nodes(piece, streams[rank]) for rank, piece in held.items()}
        self.offset_ns = {rank: offset_ns.get(rank, 0) for rank in self.nodes}
        starts = [nodes.piece.ops["start_ns"].min() - self.offset_ns[rank] for rank, nodes in self.nodes.items()]
        self.origin_ns = int(min(starts, default=0))
        first = np.cumsum([1, *(nodes.count for nodes in self.nodes.values())])
        self.base = dict(zip(self.nodes, (first - 1).tolist(), strict=False))
        self.joins = _joins(self, members)
        self.is_of_gpu = array_of(self.joins, "op") != NONE
        self.instance_node = int(first[-1]) + array_of(self.joins, "instance")
        self.count = int(self.instance_node.max(initial=first[-1] - 1)) + 1
        self.waiting = np.flatnonzero(self.joins["waits"].to_numpy(dtype=bool))
        waits_for = self.instance_node[self.waiting]
        own = [(self.node(rank, nodes.source), self.node(rank, nodes.target)) for rank, nodes in self.nodes.items()]
        between = [(array_of(self.joins, "start"), self.instance_node),
                   (waits_for, array_of(self.joins, "end")[self.waiting])]  # fmt: skip
        self.source, self.target = (np.concatenate(each) for each in zip(*own, *between, strict=True))

    def shift_ns(self, rank: int) -> int:
        """What a time of the rank's clock is ahead of the same one in the replay."""
        return self.origin_ns + self.offset_ns[rank]

    def joins_of(self, rank: int) -> np.ndarray:
        """Rows of the rank's GPU in `joins`."""
        return self._rows_of_joins.get(rank, _NO_ROWS)

    @cached_property
    def _rows_of_joins(self) -> Mapping[int, np.ndarray]:
        ranks = array_of(self.joins, "rank")[self.is_of_gpu]
        return {int(ranks[rows[0]]): rows for rows in rows_of_each(ranks)}

    def meeting_ranks(self) -> set[tuple[int, ...]]:
        """The ranks of each collective of the CPU; once those that are the same."""
        table = self.joins.loc[~self.is_of_gpu, ["instance", "rank"]].drop_duplicates().sort_values("rank")
        return {tuple(own.tolist()) for _, own in table.groupby("instance")["rank"]}

    def node(self, rank: int, own: np.ndarray) -> np.ndarray:
        """Numbers in the job of a rank's nodes."""
        return np.where(own == SOURCE, SOURCE, own + self.base[rank])

    @cached_property
    def order(self) -> Order:
        """The order of all nodes."""
        when, may_drop = np.zeros(len(self.source), dtype=np.int64), np.zeros(len(self.source), dtype=bool)
        waiting = slice(len(self.source) - len(self.waiting), None)
        when[waiting], may_drop[waiting] = array_of(self.joins, "ready_ns")[self.waiting], True
        return spilled_arrays(order_of(self.count, self.source, self.target, may_drop, when))

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
        return np.where(self.nodes[rank].source == SOURCE, weights - self.shift_ns(rank), weights)

    def weights(self, lengths: Lengths) -> np.ndarray:
        """Length of every edge."""
        known = self.recorded.timing
        own = [
            self._recorded_weights[rank] if timing is known[rank] else self.own_weights(rank, timing)
            for rank, timing in lengths.timing.items()
        ]
        return self.joined(own, lengths.transfer_ns, has_waits=lengths.has_waits)

    def joined(self, own: list[np.ndarray], transfer_ns: np.ndarray, *, has_waits: bool) -> np.ndarray:
        """Lengths of the ranks' own edges, and of those between them."""
        transfer = transfer_ns[self.waiting] if has_waits else np.full(len(self.waiting), NEVER)
        return np.concatenate([*own, np.zeros(len(self.joins), dtype=np.int64), transfer])

    def replay(self, *lengths: Lengths) -> np.ndarray:
        """When each node is reached, a column for each of them, since the job's first operation started."""
        return self.order.latest(np.stack([self.weights(each) for each in lengths], axis=1))


def _joins(job: Job, members: pd.DataFrame) -> pd.DataFrame:
    """Matched calls with what follows once the instance is ready."""
    meets = any(len(nodes.piece.meetings) for nodes in job.nodes.values())
    table = under_each_other([_of_gpus(job, members), *([_of_cpus(job)] if meets else [])])
    start, end = array_of(table, "start_ns"), array_of(table, "end_ns")
    is_of_cpu = array_of(table, "op") == NONE
    instances = Groups.of({"cpu": is_of_cpu, "instance": array_of(table, "instance")}, ["cpu", "instance"])
    ready = instances.largest(start)[instances.of_row]
    # One that had ended before its last partner came did not wait for it.
    waits = array_of(table, "synchronises") | (~is_of_cpu & (end > ready))
    # Of several messages in one call the last that is ready among those it waits for decides.
    each = {"cpu": is_of_cpu, "rank": array_of(table, "rank"), "call": array_of(table, "call")}
    calls = Groups.of(each, [*each])
    latest = calls.largest(np.where(waits, ready, NEVER))[calls.of_row]
    latest = np.where(latest == NEVER, ready, latest)
    after = end - latest
    # The others are given what both ends took.
    transfer = np.maximum(instances.smallest(after), 0)[instances.of_row]
    after = np.where(ready == latest, after, np.minimum(after, transfer))
    times = {"ready_ns": ready, "transfer_ns": after, "own_ns": np.maximum(after, 0)}
    return with_columns(table, waits=waits, instance=instances.of_row, **times)


def _of_gpus(job: Job, members: pd.DataFrame) -> pd.DataFrame:
    numbers = ("rank", "call", "instance", "start_ns", "end_ns")
    members = members if len(members) else without_rows([*numbers, "collective", "size_bytes", "is_whole", "wait_ns"])
    held = members[members["instance"].notna() & members["rank"].isin(list(job.nodes))]
    columns = {name: held[name].to_numpy(dtype=np.int64, copy=True) for name in numbers}
    columns |= {name: np.zeros(len(held), dtype=np.int64) for name in ("op", "step", "is_ring", "start", "end")}
    for rows in rows_of_each(columns["rank"]):
        rank, call = int(columns["rank"][rows[0]]), columns["call"][rows]
        nodes, calls = job.nodes[rank], job.nodes[rank].column("ops", "call")
        by_call = np.argsort(calls, kind="stable")
        op = by_call[np.searchsorted(calls, call, sorter=by_call)]
        of_ops = {"op": op, **{name: nodes.column("ops", name)[op] for name in ("step", "is_ring")}}
        of_ops |= {"start": job.node(rank, nodes.start_node[op]), "end": job.node(rank, nodes.end_node[op])}
        of_ops |= {name: columns[name][rows] - job.shift_ns(rank) for name in ("start_ns", "end_ns")}
        for name, values in of_ops.items():
            columns[name][rows] = values
    texts = {name: held[name].to_numpy(dtype=object, na_value=None) for name in ("collective", "size_bytes")}
    marks = {"is_whole": held["is_whole"].to_numpy(dtype=bool), "synchronises": held["wait_ns"].notna().to_numpy()}
    return pd.DataFrame({**columns, **texts, **marks}).astype(_TYPES)


_TYPES = {"size_bytes": "Float64", "collective": "str", "is_ring": "bool"}


# Collectives of the CPU matched over ranks: their hosts meet there, and all go on when the last one has come.


_MESSAGES = tuple(f"{backend}{name}" for backend in CPU_BACKENDS for name in ("send", "recv"))


def _of_cpus(job: Job) -> pd.DataFrame:
    """The CPUs' collectives.

    The trace names no group of them. Those of a name at the same place in a step are the same, as far as their times
    agree: who had ended before the last one began did not wait for it. So groups that meet at different moments are
    separate, and of a broadcast those are joined that still waited when its root came.
    """
    tables = []
    for rank, nodes in job.nodes.items():
        own, shift = nodes.piece.meetings, job.shift_ns(rank)
        begins, segment = array_of(own, "begins"), array_of(own, "segment")
        tables.append(
            own.assign(
                rank=rank,
                start=job.node(rank, nodes.segment_node[begins]),
                end=job.node(rank, np.append(nodes.segment_node, SOURCE)[segment]),
                start_ns=own["start_ns"] - shift,
                end_ns=own["end_ns"] - shift,
                synchronises=segment != NONE,
            )
        )
    every = under_each_other([table for table in tables if len(table)]).rename(columns={"name": "collective"})
    instance = _instances(every)
    marks = {"op": NONE, "size_bytes": None, "is_ring": False, "is_whole": np.bincount(instance)[instance] > 1}
    every = every.assign(call=range(len(every)), instance=instance, **marks)
    return every.drop(columns=["begins", "segment"]).astype(_TYPES)


def _instances(every: pd.DataFrame) -> np.ndarray:
    """Number of each row's instance; of a host whose partners are not known it has one to itself."""
    found = np.full(len(every), NONE, dtype=np.int64)
    starts, ends = array_of(every, "start_ns"), array_of(every, "end_ns")
    number = 0
    # Of messages the trace does not say whose they are.
    place = every.groupby(["rank", "step", "collective"]).cumcount()
    place = place.where(~every["collective"].isin(_MESSAGES), every.index.to_series())
    for rows in every.assign(place=place).groupby(["step", "collective", "place"]).indices.values():
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
        step: of each the number of its step among the job's, in order.
    """

    table: pd.DataFrame
    begin: np.ndarray
    ends: np.ndarray
    window_of_end: np.ndarray
    has_steps: bool
    step: np.ndarray

    @property
    def steps(self) -> int | None:
        """How many steps of the job; `None` for a whole capture."""
        return int(self.step.max()) + 1 if self.has_steps else None

    def lengths(self, times: np.ndarray) -> np.ndarray:
        """Length of each window for the times of all nodes; a column for each replay."""
        found: np.ndarray = _largest(self.window_of_end, times[self.ends]) - times[self.begin]
        return found

    def of_job(self, times: np.ndarray) -> np.ndarray:
        """Length of each step of the job, from when its last rank began it to when the last began the next.

        So a rank that was early to begin with lengthens nothing. A capture without steps is as long as from the first
        begin to the last end. One row for each step.
        """
        begins = times[self.begin]
        last = _largest(self.step, self.lengths(times) + begins)
        first = _largest(self.step, begins) if self.has_steps else begins.min(axis=0)
        length: np.ndarray = last - first
        return length

    def of_slowest(self, times: np.ndarray) -> np.ndarray:
        """The same of the rank that takes longest for all of them, by itself: of ranks that wait for nobody."""
        lengths = self.lengths(times)
        ranks, codes = np.unique(array_of(self.table, "rank"), return_inverse=True)
        # Every rank has the same steps, in order.
        by_rank = lengths[np.argsort(codes, kind="stable")].reshape(len(ranks), -1, lengths.shape[1])
        slowest = by_rank.sum(axis=1).argmax(axis=0)
        found: np.ndarray = by_rank[slowest, :, np.arange(len(slowest))].T
        return found


def _largest(row: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The largest of the times of each row, from 0 on; a column for each replay."""
    found = np.full((int(row.max(initial=NONE)) + 1, times.shape[1]), np.iinfo(np.int64).min)
    np.maximum.at(found, row, times)
    return found


def windows_of(job: Job, steps: Steps) -> Windows:
    """Find them."""
    table = steps.table
    complete = complete_steps(table)
    ranks = set(job.nodes)
    shared = shared_steps(complete[~_outlives_gpu(job, complete)], ranks) or shared_steps(complete, ranks)
    windows = [window for rank in job.nodes for window in _of_rank(job, rank, shared)]
    if not shared or len(windows) < len(shared) * len(ranks):
        windows, shared = [_whole(job, rank, table) for rank in job.nodes], []
    rank, step, begin, ends = zip(*windows, strict=True)
    number = pd.array(step, dtype="Int64") if shared else pd.array([pd.NA] * len(step), dtype="Int64")
    return Windows(
        table=table_of({"rank": np.array(rank), "step": number}),
        begin=np.array(begin),
        ends=np.concatenate(ends),
        window_of_end=np.repeat(np.arange(len(ends)), [*map(len, ends)]),
        has_steps=bool(shared),
        step=np.unique(step, return_inverse=True)[1],
    )


Window = tuple[int, int, int, np.ndarray]
"""Rank, step, the node where it begins, and those of which the last ends it."""


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
    """Those of the rank's steps that are shared."""
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
        windows.append((rank, number, int(job.node(rank, begins[at : at + 1])[0]), job.node(rank, ends)))
    return windows


def _whole(job: Job, rank: int, steps: pd.DataFrame) -> Window:
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
    return rank, NONE, int(job.node(rank, nodes.start_node[[first]])[0]), ends
