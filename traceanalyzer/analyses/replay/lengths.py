"""Durations of the graph's nodes after a change."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import is_any, is_true
from traceanalyzer.analyses.communication.collectives import bus_factors
from traceanalyzer.analyses.communication.slow_links import at_most_ns
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.replay.changes import (
    ALONE,
    COST_NS,
    EVEN,
    NOT_MADE,
    PEERS,
    USUAL,
    Change,
    with_waits_for_workers,
)
from traceanalyzer.analyses.replay.graph import Nodes, Timing, of_peers
from traceanalyzer.analyses.replay.job import (
    Job,
    Lengths,
    Numbered,
    SameOperations,
    calls_passed,
    linked_ranks,
    since_first,
)
from traceanalyzer.analyses.replay.rank_graph import MEMORY, NEVER, Piece
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.vocabulary import DATA
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

# Lengths of which the longest are cut until each group's sum is what is wanted.


def capped(ns: np.ndarray, key: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """No length of a group exceeds the level at which they sum to `wanted[key]`; unchanged where they sum to less.

    Rows of key -1 belong to no group.
    """
    rows = np.flatnonzero(key >= 0)
    order = rows[np.lexsort((ns[rows], key[rows]))]
    cut = ns.copy()
    if not len(order):
        return cut
    held, of = ns[order], key[order]
    starts = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    counts = np.diff(np.append(starts, len(of)))
    before = np.cumsum(held) - held
    below = before - np.repeat(before[starts], counts)
    longer = np.repeat(starts + counts, counts) - np.arange(len(of))
    level = (wanted[of] - below) / longer
    # From the first length that is above its level on, all are cut to that level.
    place = np.minimum.reduceat(np.where(level <= held, np.arange(len(of)), len(of)), starts)
    first = np.repeat(np.append(level, np.inf)[place], counts)
    cut[order] = np.round(np.minimum(held, np.maximum(first, 0))).astype(np.int64)
    return cut


# What compute gains when communication beside it goes: a collective takes multiprocessors and memory.


_MOST_PEERS = 8
"""Other ranks that are asked how long a kernel takes alone: asking all would take the square of the ranks."""


class Parts(Struct, frozen=True):
    """Waits and transfers of a rank's calls: from when until when, on its clock, and the nodes at their ends.

    Attributes:
        begin_ns: when each begins.
        end_ns: when it ends.
        begins: node at which it begins.
        ends: node at which it ends.
        call_ends: node at which its call ends.
        is_wait: it is a wait for partners.
    """

    begin_ns: np.ndarray
    end_ns: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    call_ends: np.ndarray
    is_wait: np.ndarray

    def left(self, times: np.ndarray) -> np.ndarray:
        """Of each the share that is left when the nodes are reached at these times, from 0 to 1."""
        last = times[self.call_ends]
        left_ns = np.minimum(times[self.ends], last) - np.minimum(times[self.begins], last)
        shares: np.ndarray = np.clip(left_ns / (self.end_ns - self.begin_ns), 0, 1)
        return shares


class Beside(Struct, frozen=True):
    """Operations of a rank beside communication: one row for each operation and part of a call.

    Attributes:
        op: row in the rank's piece.
        part: of `parts`.
        slower_ns: by how much the operation is longer for it.
        least_ns: of each operation of the rank the time that it takes without communication beside it.
        parts: of the rank's calls.
    """

    op: np.ndarray
    part: np.ndarray
    slower_ns: np.ndarray
    least_ns: np.ndarray
    parts: Parts


class Contention:
    """By how much shorter operations are in a replay in which calls take less than they were recorded to.

    A kernel that runs beside communication for a part of its time and takes longer than the median of the same work
    without is longer by that part of the difference; of kernels that the rank never runs alone its peers' speak. Of a
    wait or transfer that is shorter by half, half of it goes.
    Those that become longer slow nothing further: what would lie beside them is not known.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.same = job, SameOperations(job)

    @cached_property
    def _beside(self) -> dict[int, Beside]:
        found = {rank: self._of_rank(rank) for rank in self.job.nodes}
        return {rank: own for rank, own in found.items() if len(own.op)}

    @cached_property
    def _works(self) -> np.ndarray:
        """What any rank's kernels do: the columns of `_medians`, in order."""
        return np.unique(np.concatenate([nodes.alone.works for nodes in self.job.nodes.values()]))

    @cached_property
    def _columns(self) -> dict[int, np.ndarray]:
        """Of what each rank's kernels do the columns."""
        return {rank: np.searchsorted(self._works, own.alone.works) for rank, own in self.job.nodes.items()}

    @cached_property
    def _medians(self) -> np.ndarray:
        """What each rank's (rows) kernels take alone; NaN where too few of its runs tell."""
        found = np.full((len(self.job.nodes), len(self._works)), np.nan)
        for row, (rank, nodes) in enumerate(self.job.nodes.items()):
            found[row, self._columns[rank]] = nodes.alone.medians
        return found

    def _typical(self, rank: int) -> np.ndarray:
        """Of each of the rank's kernels what it takes alone, here or on some other ranks."""
        place = [*self.job.nodes].index(rank)
        others = [row for row in range(len(self._medians)) if row != place][:_MOST_PEERS]
        columns = self._columns[rank]
        return of_peers(self._medians[place], self._medians[others])[columns]

    @property
    def slower_by_waits_ns(self) -> dict[int, np.ndarray]:
        """Of each operation of the ranks that wait beside compute how much longer it is for that."""
        return {
            rank: np.bincount(own.op, own.slower_ns * own.parts.is_wait[own.part], minlength=len(own.least_ns))
            for rank, own in self._beside.items()
        }

    @property
    def most_ns(self) -> int:
        """All that could go, of the rank that has most of it."""
        return max((int(own.slower_ns.sum()) for own in self._beside.values()), default=0)

    def _parts(self, rank: int) -> Parts:
        """Of a matched call its wait and its transfer; of another, and of one that waits for nobody, all of it."""
        job, nodes = self.job, self.job.nodes[rank]
        rows = job.joins_of(rank)
        op, start, end = (array_of(job.joins, name)[rows] for name in ("op", "start_ns", "end_ns"))
        waits = job.joins["waits"].to_numpy(dtype=bool)[rows]
        ready = np.where(waits, np.clip(array_of(job.joins, "ready_ns")[rows], start, end), start)
        others = np.setdiff1d(np.flatnonzero(nodes.column("ops", "call") != NONE), op)
        shift = job.origin_ns + job.offset_ns[rank]
        begun = nodes.column("ops", "start_ns")[others] - shift
        instance = job.first_instance + array_of(job.joins, "instance")[rows]
        first, last = (job.node(rank, of[np.append(op, others)]) for of in (nodes.start_node, nodes.end_node))
        count = len(rows)
        parts = Parts(
            np.concatenate([start, ready, begun]),
            np.concatenate([ready, end, begun + nodes.column("ops", "duration_ns")[others]]),
            np.concatenate([first[:count], np.where(waits, instance, first[:count]), first[count:]]),
            np.concatenate([instance, last]),
            np.concatenate([last[:count], last]),
            np.arange(2 * count + len(others)) < count,
        )
        held = parts.end_ns > parts.begin_ns
        return Parts(*(getattr(parts, name)[held] for name in Parts.__struct_fields__))

    def _of_rank(self, rank: int) -> Beside:
        job, nodes = self.job, self.job.nodes[rank]
        ops, parts = nodes.piece.ops, self._parts(rank)
        shift = job.origin_ns + job.offset_ns[rank]
        starts, lengths = array_of(ops, "start_ns") - shift, array_of(ops, "duration_ns")
        least = nodes.alone.lengths_ns(self._typical(rank))
        slower = np.where(is_any(ops["kind"], "compute"), np.maximum(lengths - least, 0), 0)
        held = np.flatnonzero(slower)
        part, op = _shared(parts.begin_ns, parts.end_ns, starts[held], (starts + lengths)[held])
        op = held[op]
        beside = np.minimum(parts.end_ns[part], (starts + lengths)[op]) - np.maximum(parts.begin_ns[part], starts[op])
        # Several calls may run at once: no operation is slower than it is.
        total = np.maximum(np.bincount(op, beside, minlength=len(ops))[op], lengths[op])
        return Beside(op, part, slower[op] * beside / np.maximum(total, 1), least, parts)

    def after(self, lengths: Lengths, times: np.ndarray) -> Lengths:
        """The lengths of a replay with what its own communication leaves; `times` are when it reached each node."""
        timing = dict(lengths.timing)
        for rank, own in self._beside.items():
            recorded, before = self.job.nodes[rank].recorded.duration_ns, timing[rank].duration_ns
            gone = np.bincount(own.op, own.slower_ns * (1 - own.parts.left(times))[own.part], minlength=len(before))
            scale = np.divide(before, recorded, out=np.ones(len(before)), where=recorded > 0)
            after = np.maximum(before - np.round(gone * scale).astype(np.int64), np.minimum(before, own.least_ns))
            timing[rank] = replace(timing[rank], duration_ns=after)
        return replace(lengths, timing=timing)


def _shared(
    begins: np.ndarray, ends: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Places of parts [begin, end) and operations [start, stop) that share time; neither needs an order."""
    waits = np.argsort(begins, kind="stable")
    reach = np.maximum.accumulate(ends[waits]) if len(waits) else ends
    first = np.searchsorted(reach, starts, side="right")
    count = np.maximum(np.searchsorted(begins[waits], stops, side="left") - first, 0)
    op = np.repeat(np.arange(len(starts)), count)
    wait = waits[np.arange(len(op)) - np.repeat(np.cumsum(count) - count - first, count)] if len(op) else op
    held = (ends[wait] > starts[op]) & (begins[wait] < stops[op])
    return wait[held], op[held]


# What the same work takes on the ranks that do the same: the floor that a change to `peers` stands on.


_OF_HOSTS = ("_host_table", "_middle_table", "_host_ns")
"""What `Peers` keeps of the hosts' lengths."""


class Peers:
    """Work of all ranks side by side: an operation is the same as the one of that name, at that place (`places`).

    Host work is compared between the same two communication calls of a step. Without steps the whole capture is one.
    """

    def __init__(self, job: Job, contention: Contention) -> None:
        self.job, self.contention, self.same, self.cost_ns = job, contention, contention.same, 0
        self.overhead_ns: Mapping[str, int] = {**COST_NS}
        self.ranks = np.array([*job.nodes])
        self.place = {rank: column for column, rank in enumerate(job.nodes)}
        self.let_go()

    def let_go(self) -> None:
        """Keep nothing of changes that were asked for."""
        self._known: dict[tuple[int, str, bytes], np.ndarray] = {}
        self._hosts: dict[int, np.ndarray] = {}
        self._hosts_evened: dict[int, np.ndarray] = {}
        self._unrecorded: dict[int, Peers] = {}  # none holds this one: else all stayed until a search for garbage

    def unrecorded(self, cost_ns: int) -> "Peers":
        """The same where hosts do not have to write down what they do, at so much for each operator and call."""
        if cost_ns == self.cost_ns:
            return self
        if cost_ns not in self._unrecorded:
            made = copy(self)
            made.cost_ns = cost_ns
            made.let_go()
            for name in _OF_HOSTS:
                made.__dict__.pop(name, None)
            self._unrecorded[cost_ns] = made
        return self._unrecorded[cost_ns]

    def own_host(self, rank: int) -> np.ndarray:
        """Lengths of the rank's stretches of host work."""
        if rank not in self._hosts:
            nodes = self.job.nodes[rank]
            own = nodes.column("host", "ns")
            costs = self.cost_ns * nodes.column("host", "recorded")
            self._hosts[rank] = np.maximum(own - costs, 0) if self.cost_ns else own
        return self._hosts[rank]

    def of(self, rank: int, changed: frozenset[int]) -> np.ndarray:
        """Columns of the ranks that do the same as `rank` and are not changed; of all that do when none is left.

        Of ranks in pipelines those of the same stage speak; stages are compared only where there is one pipeline.
        """
        alike = self.alike[self.place[rank]]
        others = alike & ~np.isin(self.ranks, list(changed))
        same_stage = others & (self.stages == self.stages[self.place[rank]])
        others = same_stage if same_stage.any() else others
        return np.flatnonzero(others if others.any() else alike & (len(changed) == len(self.ranks)))

    def durations(self, rank: int, changed: frozenset[int] | None) -> np.ndarray:
        """What the rank's operations take on its peers: the median of those that are not changed, else the mean of all.

        Its own where that is unknown, 0 where they run none.
        """
        own = self.job.nodes[rank].column("ops", "duration_ns")
        if len(self.ranks) == 1:
            return self._as_itself(rank, is_freed=changed is not None)
        if changed is None and self._is_stage(rank):
            is_own = self.same.keys[rank] != NONE
            evened: np.ndarray = np.where(is_own, np.round(own * self._evened(rank, self._work_ns)), own)
            return evened.astype(np.int64)
        together = self._compared(rank, changed)
        if together is None:
            return np.asarray(own)
        table = self.same.table_ns if changed is None else self._free_table
        key, wanted = self.same.keys[rank], together(table)
        found: np.ndarray = np.where(key == NONE, own, np.append(wanted, 0)[key]).astype(np.int64)
        return found

    def _as_itself(self, rank: int, *, is_freed: bool) -> np.ndarray:
        """The only rank's durations: tables of it beside itself would be as large as all else that is replayed."""
        own = self.job.nodes[rank].column("ops", "duration_ns")
        slower_ns = self.contention.slower_by_waits_ns.get(rank) if is_freed else None
        if slower_ns is None:
            return np.asarray(own)
        return np.where(self.same.names[rank] == NONE, own, own - slower_ns).astype(np.int64)

    def host(self, rank: int, changed: frozenset[int] | None) -> np.ndarray:
        """The rank's stretches of host work such that each span takes what it takes on its peers.

        What a span has beyond its peers' is taken from its longest stretches: an extra piece of work lies in one place.
        Where the host is slower throughout, as a whole, all its stretches are scaled.
        """
        if changed is not None:
            return self._host_as(rank, changed)
        if rank not in self._hosts_evened:  # several sets of changes even the hosts out, which takes longest of all
            self._hosts_evened[rank] = self._host_as(rank, None)
        return self._hosts_evened[rank]

    def _host_as(self, rank: int, changed: frozenset[int] | None) -> np.ndarray:
        own = self.own_host(rank)
        if changed is None and self._is_stage(rank):
            return np.asarray(np.round(own * self._evened(rank, self._host_ns)), dtype=np.int64)
        together = self._compared(rank, changed)
        if together is None or len(self.ranks) == 1:
            return own
        key, table = self._spans.keys[rank], self._host_table
        held, wanted = table[:, self.place[rank]], together(table)
        scaled = _peers_scaled(own, key, held, wanted)
        if not len(wanted):
            return scaled
        typical = together(self._middle_table)
        is_slow = self._middle_table[:, self.place[rank]] > RATIO * typical
        is_extra = (key != NONE) & (wanted < held)[key] & ~is_slow[key]
        lengths: np.ndarray = np.where(is_extra, capped(own, key, wanted), scaled)
        return lengths

    def _is_stage(self, rank: int) -> bool:
        """Whether it exchanges messages: blocks can be moved between stages, so they are evened out as wholes."""
        return int(self.linked[self.place[rank]].sum()) > 1

    def _evened(self, rank: int, totals: np.ndarray) -> float:
        """What a stage's work is multiplied with when all stages of its pipeline have as much."""
        own = totals[self.place[rank]]
        return float(totals[self.linked[self.place[rank]]].mean() / own) if own else 1.0

    @cached_property
    def _work_ns(self) -> np.ndarray:
        """Of each rank the durations of its operations but communication."""
        lengths = [array_of(nodes.piece.ops, "duration_ns") for nodes in self.job.nodes.values()]
        return np.array([own[key != NONE].sum() for own, key in zip(lengths, self.same.keys.values(), strict=True)])

    @cached_property
    def _host_ns(self) -> np.ndarray:
        """Of each rank its host's work."""
        return np.array([self.own_host(rank).sum() for rank in self.job.nodes], dtype=np.int64)

    def _compared(self, rank: int, changed: frozenset[int] | None) -> Callable[[np.ndarray], np.ndarray] | None:
        """How the columns of a table of the ranks to compare with are put together; `None` without such ranks."""
        columns = np.flatnonzero(self.alike[self.place[rank]]) if changed is None else self.of(rank, changed)
        if not len(columns):
            return None
        if changed is None:
            return lambda table: self._together(table, columns, np.mean)
        if changed == {rank}:
            return lambda table: self._median_without(table, columns, self.place[rank])
        return lambda table: self._together(table, columns, np.median)

    def _together(self, table: np.ndarray, columns: np.ndarray, of: Callable[..., np.ndarray]) -> np.ndarray:
        """A table's columns put together: one answer for all ranks that are held against the same others."""
        key = (id(table), of.__name__, columns.tobytes())  # it lives as long as this object
        if key not in self._known:
            self._known[key] = of(table[:, columns], axis=1)
        return self._known[key]

    def _median_without(self, table: np.ndarray, columns: np.ndarray, own: int) -> np.ndarray:
        """The median of the columns, none of which is `own`: of many ranks each is held against all the others.

        All of them together are put in order once; without its own value, what is not below it is one place further.
        """
        if own in columns:
            return self._together(table, columns, np.median)
        middle = self._together(table, np.sort(np.append(columns, own)), _middle)
        without = np.where(table[:, own, None] > middle[:, :2], middle[:, :2], middle[:, 1:])
        return (without[:, 0] + without[:, 1 - len(columns) % 2]) / 2

    @cached_property
    def alike(self) -> np.ndarray:
        """Which ranks run the same kernels, but for some."""
        counts = np.stack(
            [np.bincount(codes[codes != NONE], minlength=self.same.count) for codes in self.same.names.values()]
        )
        rows = []
        for own in counts:
            shared, either = np.minimum(counts, own).sum(axis=1), np.maximum(counts, own).sum(axis=1)
            fewer = np.minimum(counts.sum(axis=1), own.sum())
            rows.append((shared >= SHARE * np.maximum(either, 1)) | (RATIO * shared >= np.maximum(fewer, 1)))
        return np.stack(rows)

    @cached_property
    def stages(self) -> np.ndarray:
        """Of each rank its place among those that it exchanges messages with, directly or not; 0 for those without."""
        stages: np.ndarray = np.tril(self.linked, -1).sum(axis=1)
        return stages

    @cached_property
    def linked(self) -> np.ndarray:
        """Which ranks exchange messages, directly or not, but for those that go round between attention kernels."""
        return linked_ranks(self.job)

    @cached_property
    def _spans(self) -> Numbered:
        """Each stretch of host work by its span between two calls of a step."""
        spans = {}
        for rank, nodes in self.job.nodes.items():
            step = nodes.column("host", "step")
            number = since_first(calls_passed(nodes.piece), step)
            spans[rank] = (np.stack([step, number], axis=1), self.same.is_in_step(step))
        return Numbered(spans)

    @cached_property
    def _host_table(self) -> np.ndarray:
        """The hosts' work by span (rows) and rank."""
        return self._spans.table([self.own_host(rank) for rank in self.job.nodes])

    @cached_property
    def _free_table(self) -> np.ndarray:
        """The same without what compute takes longer beside waits: who is as fast as its peers makes nobody wait."""
        table = self.same.table_ns.copy()
        for rank, slower_ns in self.contention.slower_by_waits_ns.items():
            key = self.same.keys[rank]
            np.subtract.at(table, (key[key != NONE], self.place[rank]), slower_ns[key != NONE])
        return table

    @cached_property
    def _middle_table(self) -> np.ndarray:
        """The median stretch of host work by span and rank."""
        table = np.zeros_like(self._host_table)
        for rank, key in self._spans.keys.items():
            held = key[key != NONE]
            groups = Groups.of_numbers(held)
            table[held[groups.first], self.place[rank]] = groups.medians(self.own_host(rank)[key != NONE])
        return table


def _peers_scaled(own: np.ndarray, key: np.ndarray, held: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Lengths times what their key's sum should be of what it is."""
    factor = np.divide(wanted, held, out=np.ones_like(held), where=held > 0)
    scaled: np.ndarray = np.round(own * np.where(key == NONE, 1.0, np.append(factor, 1.0)[key])).astype(np.int64)
    return scaled


def _middle(table: np.ndarray, axis: int) -> np.ndarray:
    """The three values of each row from which its median comes, whichever one of the row is left out."""
    count = table.shape[axis]
    low = (count - 2) // 2
    places = np.minimum([low, low + 1, low + 2], count - 1)
    middle: np.ndarray = np.partition(table, places, axis=axis)[:, places]
    return middle


# What transfers take at a given rate, as others of their kind, or as those of groups that are not changed.


SMALL_BYTES = 1 << 20
BUCKETED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
"""Collectives of which several can be one: those of at most so many bytes cost their latency."""


def are_small(calls: pd.DataFrame) -> np.ndarray:
    """Mask of the calls that buckets can hold, of at most 1 MiB each; those of unknown size are none."""
    is_small = is_true(calls["size_bytes"] <= SMALL_BYTES)
    mask: np.ndarray = (is_small & calls["collective"].isin(BUCKETED)).to_numpy(dtype=bool)
    return mask


def at_rate(job: Job, gb_per_s: float) -> np.ndarray:
    """What each matched call's transfer takes at a bus bandwidth; without end where its size is not known.

    Nor is that of a group of which a rank has no trace: what follows the last of the others may be a wait for it.
    """
    joins = job.joins
    ranks = joins.groupby("instance")["rank"].transform("nunique")
    factor = bus_factors(joins["collective"], ranks.astype("Int64")).astype("Float64")
    taken = (joins["size_bytes"] * factor / gb_per_s).astype("Float64").where(joins["is_whole"])
    held: np.ndarray = taken.fillna(np.iinfo(np.int64).max // 2).to_numpy(dtype=np.float64)
    return np.round(held).astype(np.int64)


def even(job: Job, transfer_ns: np.ndarray) -> np.ndarray:
    """Transfers scaled to the median of the instances of the same collective, size and number of ranks."""
    table = job.joins.assign(ns=transfer_ns).groupby("instance")
    own = table["ns"].min()
    return _scaled_to(job, transfer_ns, own, _median_of(own, _kinds_of(table)))


def _kinds_of(table: Any) -> list[np.ndarray]:
    """Of each instance its collective, size and number of ranks."""
    return [own.to_numpy() for own in (table["collective"].min(), table["size_bytes"].max(), table.size())]


def _median_of(own: pd.Series, kinds: list[np.ndarray]) -> pd.Series:
    """For each instance the median of those of its kind that are known."""
    median: pd.Series = own.groupby(kinds, dropna=False).transform("median")
    return median


def as_on_peers(job: Job, transfer_ns: np.ndarray, ranks: frozenset[int] | None) -> np.ndarray:
    """Transfers between the changed ranks alone as long as the median of the others' of the same collective and size.

    Each group counts once, and of two in the middle the shorter: slow links of other ranks are no measure.
    Where the others move other numbers of bytes, what so many take them at most. What they have none of takes no time.
    Transfers that others take part in stay.
    """
    joins = job.joins
    table = joins.assign(ns=transfer_ns, is_own=joins["rank"].isin(ranks or job.nodes)).groupby("instance")
    own, is_own, size = table["ns"].min(), table["is_own"].all(), table["size_bytes"].max()
    kind = Groups.of({"collective": table["collective"].min().to_numpy(), "ranks": table.size().to_numpy()},
                     ["collective", "ranks"], with_absent=True).of_row  # fmt: skip
    keys = [pd.Series(kind, own.index, name="kind"), size.rename("size")]
    each = own.where(~is_own).groupby([*keys, table["rank"].min().rename("low"), table["rank"].max().rename("high")],
                                      dropna=False).median()  # fmt: skip
    usual = each.groupby(level=["kind", "size"], dropna=False).quantile(0.5, interpolation="lower")
    others = pd.Series(usual.reindex(pd.MultiIndex.from_arrays(keys)).to_numpy(), own.index)
    others = others.where(others.notna() | ~is_own, _of_other_sizes(kind, size, own, is_own)).fillna(0)
    after = _scaled_to(job, transfer_ns, own, others.clip(upper=own).where(is_own))
    return _without_longer_ones(joins, transfer_ns, after, own)


def as_in_other_steps(job: Job, transfer_ns: np.ndarray, is_chosen: np.ndarray) -> np.ndarray:
    """The chosen transfers no longer than the median of the others between the same ranks, of collective and size."""
    table = job.joins.assign(ns=transfer_ns, is_chosen=is_chosen).groupby("instance")
    own, chosen = table["ns"].min(), table["is_chosen"].any()
    ranks = [table["rank"].agg(end).to_numpy() for end in ("min", "max")]
    usual = _median_of(own.where(~chosen), [*_kinds_of(table), *ranks])
    return _scaled_to(job, transfer_ns, own, usual.clip(upper=own).where(chosen))


def _without_longer_ones(joins: pd.DataFrame, before: np.ndarray, after: np.ndarray, shortest: pd.Series) -> np.ndarray:
    """What is left of calls that hold several messages: beside one that is shorter now the others take what they take.

    All messages of a call end with it; what each takes is what its other end shows.
    """
    is_shorter = pd.Series(after < before, joins.index)
    is_beside = is_shorter.groupby([joins["rank"], joins["op"]]).transform("any") & ~is_shorter
    own = shortest.reindex(joins["instance"]).to_numpy()
    left: np.ndarray = np.where(is_beside, np.minimum(after, own), after).astype(np.int64)
    return left


def _of_other_sizes(kind: np.ndarray, size: pd.Series, own: pd.Series, is_own: pd.Series) -> pd.Series:
    """Of each kind and size what so many bytes take the others at most; absent where they have none of the kind."""
    table = pd.DataFrame({"kind": kind, "size": size.astype("float64"), "ns": own.astype("float64"), "is_own": is_own})
    beside = table[~table["is_own"]].groupby(["kind", "size"])["ns"].median().reset_index()
    asked = table[table["is_own"]].drop_duplicates(["kind", "size"])
    known = {}
    for each, size_bytes in asked[["kind", "size"]].dropna().itertuples(index=False):
        rows = beside[beside["kind"] == each]
        if len(rows):
            known[each, size_bytes] = at_most_ns(size_bytes, array_of(rows, "size"), array_of(rows, "ns")).min()
    return pd.Series([known.get(pair, np.nan) for pair in zip(kind, table["size"], strict=True)], table.index)


def _scaled_to(job: Job, transfer_ns: np.ndarray, own: pd.Series, wanted: pd.Series) -> np.ndarray:
    """Each transfer times what its instance should take of what it takes; as it is where that is absent."""
    factor = (wanted / own.where(own > 0)).fillna(1.0)
    scaled: np.ndarray = np.round(transfer_ns * factor.reindex(job.joins["instance"]).to_numpy()).astype(np.int64)
    return scaled


# Which calls that wait for the GPU a rank makes more often than its peers do.


_Place = tuple[int, str, int]
"""Step, name, and how many communication calls of the step were launched before."""


def more_calls(nodes: Mapping[int, Nodes], rank: int, peers: Collection[int]) -> list[int]:
    """Segments of the rank that begin with them: of a step and name as many as it makes more than any peer.

    Those between two communication calls between which it makes more of them.
    """
    left = nodes[rank].blocking_calls if peers else Counter[tuple[int, str]]()
    most = Counter[tuple[int, str]]()
    for peer in peers:
        most |= nodes[peer].blocking_calls
        if not left - most:
            return []
    left = left - most
    own = _places(nodes[rank])
    usual = Counter[_Place]()
    for peer in peers if left else ():
        usual |= Counter(_places(nodes[peer]).values())
    found = []
    for segment, place in own.items():
        if usual[place] > 0:
            usual[place] -= 1
        elif left[place[:2]] > 0:
            left[place[:2]] -= 1
            found.append(segment)
    return found


def _places(nodes: Nodes) -> dict[int, _Place]:
    """Of each segment that a blocking call begins where that is."""
    held = np.flatnonzero(nodes.column("segments", "before") != NONE)
    first = np.searchsorted(nodes.column("host", "segment"), held)
    steps, names = nodes.column("segments", "step")[held], nodes.piece.segments["call"].to_numpy(dtype=object)[held]
    passed = since_first(np.append(calls_passed(nodes.piece), 0)[np.minimum(first, len(nodes.piece.host))], steps)
    return dict(zip(held.tolist(), zip(steps.tolist(), names.tolist(), passed.tolist(), strict=True), strict=True))


# The graph's lengths after some changes.


_OF_CPU_WORK: Mapping[str, str] = MappingProxyType({"data": DATA.column, "memory": MEMORY})
"""Parts of the CPU work that can be changed alone: the columns that hold them."""

_MOST_KNOWN = 8
"""Answers of `transfers_after` that are kept: every rank, and many sets of changes, ask for the same."""


def changed(job: Job, peers: Peers, changes: Sequence[Change]) -> Lengths:
    """The recorded lengths with all these changes."""
    timing = {rank: timing_after(job, peers, rank, own) for rank, own in concerning_each(job.nodes, changes).items()}
    return Lengths(timing, transfers_after(job, changes), keeps_waits(changes), met_after(job, changes))


def concerning_each(ranks: Collection[int], changes: Sequence[Change]) -> Mapping[int, tuple[Change, ...]]:
    """The changes of what each rank does itself; two that do the same to it are equal, whatever other ranks they name.

    Ranks that no change names have the same ones.
    """
    named = frozenset[int]().union(*(change.ranks or () for change in changes))
    own = [change for change in changes if change.part != "waits"]

    def of(rank: int) -> tuple[Change, ...]:
        mine = (change for change in own if change.ranks is None or rank in change.ranks)
        return tuple(change if change.to == PEERS else _of_all(change) for change in mine)

    others = of(NONE)
    return {rank: of(rank) if rank in named else others for rank in ranks}


@lru_cache(1_024)
def _of_all(change: Change) -> Change:
    return replace(change, ranks=None)


def keeps_waits(changes: Sequence[Change]) -> bool:
    """Whether calls still wait for their partners."""
    return all(change.part != "waits" for change in changes)


def _scaled(ns: np.ndarray, change: Change, chosen: np.ndarray | bool = True) -> np.ndarray:
    return np.where(chosen, np.round(ns * float(change.to)).astype(np.int64), ns)


def _in_steps(step: np.ndarray, change: Change) -> np.ndarray:
    return np.ones(len(step), dtype=bool) if change.steps is None else np.isin(step, list(change.steps))


def transfers_after(job: Job, changes: Sequence[Change]) -> np.ndarray:
    """What follows once each matched call's partners are there."""
    parts = ("comm", "collective", "links", "small", "unmatched")
    asked = tuple(change for change in changes if change.part in parts)
    known = job.transfers
    if asked not in known:
        for oldest in list(known)[: max(0, len(known) - _MOST_KNOWN + 1)]:
            del known[oldest]
        transfer = job.recorded.transfer_ns
        for change in asked:
            transfer = _transfers(job, transfer, change)
        known[asked] = transfer
    return known[asked]


def _transfers(job: Job, transfer: np.ndarray, change: Change) -> np.ndarray:  # noqa: PLR0911 - one for each change
    if change.to == EVEN:
        return even(job, transfer)
    chosen = _chosen_joins(job, change)
    if change.to == USUAL:
        return as_in_other_steps(job, transfer, chosen)
    if change.to == NOT_MADE:
        return np.where(chosen, NEVER, transfer)
    if change.to == PEERS:
        return np.where(chosen, as_on_peers(job, transfer, change.ranks), transfer)
    if change.part == "links":
        return np.where(chosen, np.minimum(transfer, at_rate(job, float(change.to))), transfer)
    if change.part == "unmatched":
        is_open = ~job.joins["is_whole"].to_numpy(dtype=bool)
        return np.where(chosen & is_open, np.minimum(transfer, 0), transfer)
    return _scaled(transfer, change, chosen & are_small(job.joins) if change.part == "small" else chosen)


def met_after(job: Job, changes: Sequence[Change]) -> np.ndarray:
    """What follows once each CPU's partners in a collective of the CPU are there."""
    meetings = job.meetings
    met = meetings.after_ns
    for change in changes:
        if change.part == "unmatched":
            met = _scaled(met, change, _in_steps(meetings.step, change) & meetings.is_alone)
        if change.part in ("comm", "collective") and not isinstance(change.to, str):
            chosen = _in_steps(meetings.step, change)
            chosen &= (meetings.name == change.name) if change.name else True
            chosen &= np.isin(meetings.rank, list(change.ranks)) if change.ranks is not None else True
            met = _scaled(met, change, chosen)
    return met


def _chosen_joins(job: Job, change: Change) -> np.ndarray:
    chosen = np.ones(len(job.joins), dtype=bool)
    for rank in job.nodes:
        rows = job.joins_of(rank)
        chosen[rows] = _chosen_ops(job, rank, change)[array_of(job.joins, "op")[rows]]
    if change.ranks is not None:
        chosen &= job.joins["rank"].isin(change.ranks).to_numpy()
    return chosen


def _chosen_ops(job: Job, rank: int, change: Change) -> np.ndarray:
    """Mask of the rank's operations that the change is about, by kind, name and step."""
    nodes, name = job.nodes[rank], str(change.name)
    ops = nodes.piece.ops
    if change.part == "operator":
        operator, _, autograd = name.partition("@")
        chosen = is_any(ops["operator"], operator) if operator else np.ones(len(ops), dtype=bool)
        chosen = chosen & is_any(ops["autograd"], autograd) if autograd else chosen
    elif change.part == "kernel":
        chosen = host_names.matches(ops["name"], lambda own: name in own)
    elif change.part == "collective":
        called, which, among = f"{name}@@".split("@")[:3]
        chosen = is_any(ops["collective"], *(POINT_TO_POINT if called == MESSAGES else (called,)))
        if among:
            chosen &= is_any(ops["group_ranks"], among)
        chosen = _some_of(ops, chosen, which)
    elif change.part in ("links", "small", "unmatched"):
        chosen = nodes.is_comm
    else:
        chosen = ~nodes.is_comm if change.part == "rank" else nodes.is_of(change.part)
    return chosen & _in_steps(nodes.column("ops", "step"), change)


def _some_of(ops: pd.DataFrame, chosen: np.ndarray, which: str) -> np.ndarray:
    """Those of the chosen operations that a phase launched, or the first `3/4` of each step's; all without either."""
    part, slash, whole = which.partition("/")
    if not slash:
        return chosen & is_any(ops["phase"], which) if which else chosen
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(array_of(ops, "launch")[rows], kind="stable")]
    steps = pd.Series(array_of(ops, "step")[rows])
    place, count = steps.groupby(steps).cumcount().to_numpy(), steps.groupby(steps).transform("size").to_numpy()
    found = np.zeros(len(ops), dtype=bool)
    found[rows[int(whole) * (place + 1) <= int(part) * count]] = True
    return found


def timing_after(job: Job, peers: Peers, rank: int, changes: Sequence[Change]) -> Timing:
    """What the rank's operations and CPU take after changes that concern it.

    The profiler's overhead goes first: a CPU twice as fast takes half of what is left, and one like its peers what they
    take without it. Who waits for a batch of workers waits for it until then all the same, unless that is changed.
    """
    timing = job.recorded.timing[rank]
    is_loader_as_recorded = all(change.part not in ("rank", "host", "data") for change in changes)
    for change in sorted(changes, key=lambda change: change.part != "profiler"):
        if change.part == "profiler" and change.steps is None:
            peers = peers.unrecorded(peers.overhead_ns[str(change.to)])
        timing = _timing(job, peers, timing, rank, change, changes)
        if change.part == "profiler" and is_loader_as_recorded:
            host = (job.nodes[rank].column("host", name) for name in ("ns", "takes_up"))
            timing = replace(timing, host_ns=with_waits_for_workers(timing.host_ns, *host))
    return timing


def _timing(job: Job, peers: Peers, timing: Timing, rank: int, change: Change, changes: Sequence[Change]) -> Timing:
    nodes, part = job.nodes[rank], change.part
    if part == "delays":
        return replace(timing, has_lag=False)
    if part == "sync":
        return replace(timing, is_blocking=timing.is_blocking & ~_chosen_calls(nodes.piece, change))
    if part == "loop":
        return _without_loop(nodes, timing, change)
    if part == "collective" and change.to == NOT_MADE:
        return _without_calls(nodes, timing, _chosen_ops(job, rank, change))
    if part == "unmatched":
        timing = replace(timing, duration_ns=_without_unknown_waits(job, timing, rank, change))
    if _is_of_transfers(change):
        # Together: a call that holds several messages is no shorter than the longest of them.
        after = transfers_after(job, [each for each in changes if _is_of_transfers(each)])
        return replace(timing, duration_ns=no_longer_than_transfers(job, timing, rank, after))
    return _as_long(job, peers, timing, rank, change)


def _as_long(job: Job, peers: Peers, timing: Timing, rank: int, change: Change) -> Timing:
    """With other lengths of operations and of CPU work."""
    nodes, part = job.nodes[rank], change.part
    # Ranks that are not compared with: the changed ones; `None` where all are put together.
    changed_ranks = None if change.to == EVEN else frozenset(job.nodes) if change.ranks is None else change.ranks
    is_of_cpu = part in ("host", "profiler", *_OF_CPU_WORK)
    if not is_of_cpu:
        duration = timing.duration_ns
        if change.to in (PEERS, EVEN):
            after = peers.durations(rank, changed_ranks)
        elif change.to == ALONE:
            after = np.minimum(duration, nodes.alone.lengths_ns())
        else:
            after = _scaled(duration, change)
        chosen = _chosen_ops(job, rank, change)
        timing = replace(timing, duration_ns=np.where(chosen, after, duration))
        if part == "copy" and not change.to:
            timing = replace(timing, is_blocking=timing.is_blocking & ~_upload_calls(nodes, chosen))
    if is_of_cpu or part == "rank":
        after = _cpu_work(peers, nodes, timing.host_ns, rank, change, changed_ranks)
        if change.steps is not None:
            after = np.where(_in_steps(nodes.column("host", "step"), change), after, timing.host_ns)
        timing = replace(timing, host_ns=after)
    if part in ("rank", "host") and change.to == PEERS:
        is_own = np.zeros(len(nodes.piece.segments), dtype=bool)
        is_own[more_calls(job.nodes, rank, peers.ranks[peers.of(rank, changed_ranks or frozenset())].tolist())] = True
        is_own &= _in_steps(nodes.column("segments", "step"), change)
        timing = replace(timing, is_blocking=timing.is_blocking & ~is_own, is_called=timing.is_called & ~is_own)
    return timing


def _upload_calls(nodes: Nodes, chosen: np.ndarray) -> np.ndarray:
    """Mask of the segments that begin when chosen uploads are done, and wait for nothing else: no call waits so."""
    op, segment = nodes.column("blocks", "op"), nodes.column("blocks", "segment")
    is_upload = chosen & host_names.matches(nodes.piece.ops["name"], lambda name: "HtoD" in name)
    waits, others = (np.bincount(segment[held], minlength=len(nodes.piece.segments)) > 0
                     for held in (is_upload[op], ~is_upload[op]))  # fmt: skip
    return np.asarray(waits & ~others)


def _cpu_work(
    peers: Peers, nodes: Nodes, before: np.ndarray, rank: int, change: Change, changed_ranks: frozenset[int] | None
) -> np.ndarray:
    if change.to in (PEERS, EVEN):
        return peers.host(rank, changed_ranks)
    if change.part == "profiler" and before is nodes.recorded.host_ns and change.steps is None:
        return peers.own_host(rank)
    if change.part == "profiler":
        return np.maximum(before - nodes.column("host", "recorded") * peers.overhead_ns[str(change.to)], 0)
    if change.part in _OF_CPU_WORK:
        spent = nodes.column("host", _OF_CPU_WORK[change.part])
        return np.maximum(before - np.round(spent * (1 - float(change.to))).astype(np.int64), 0)
    return _scaled(before, change)


def _without_loop(nodes: Nodes, timing: Timing, change: Change) -> Timing:
    """Less of the CPU work for the loop's turns behind the first; nor does the CPU wait for what they compute."""
    piece, name = nodes.piece, str(change.name)
    chosen = is_any(piece.host["loop"], name) & _in_steps(array_of(piece.host, "step"), change)
    op, segment = (array_of(piece.blocks, each) for each in ("op", "segment"))
    is_waited = np.zeros(len(piece.segments), dtype=bool)
    is_waited[segment[is_any(piece.ops["loop"], name)[op]]] = True
    host_ns = _scaled(timing.host_ns, change, chosen)
    return replace(timing, host_ns=host_ns, is_blocking=timing.is_blocking & ~is_waited)


def _without_calls(nodes: Nodes, timing: Timing, chosen: np.ndarray) -> Timing:
    """Without these calls, the copies launched right before and after them, and the CPU work for all of these."""
    ops, launch = nodes.piece.ops, nodes.column("ops", "launch")
    is_copy = nodes.is_of("copy") | host_names.matches(ops["operator"], lambda name: "copy" in name)
    by_launch = np.argsort(launch, kind="stable")
    in_row = (chosen | is_copy)[by_launch]
    row = np.cumsum(np.append(True, in_row[1:] != in_row[:-1])[: len(in_row)])
    is_gone = np.empty(len(ops), dtype=bool)
    is_gone[by_launch] = in_row & np.isin(row, row[chosen[by_launch]])
    is_gone &= (launch != NONE) | chosen
    kept = np.bincount(launch[~is_gone & (launch != NONE)], minlength=len(timing.host_ns))
    is_free = np.bincount(launch[is_gone & (launch != NONE)], minlength=len(timing.host_ns)) > kept
    return replace(
        timing, duration_ns=np.where(is_gone, 0, timing.duration_ns), host_ns=np.where(is_free, 0, timing.host_ns)
    )


def _is_of_transfers(change: Change) -> bool:
    """Whether it tells what transfers take, and not by what all that a rank communicates is multiplied."""
    is_word = change.part in ("comm", "collective") and isinstance(change.to, str)
    return is_word or change.part in ("links", "small", "unmatched")


def _without_unknown_waits(job: Job, timing: Timing, rank: int, change: Change) -> np.ndarray:
    """The rank's durations with calls of which no partner is known as short as the shortest of their kernel."""
    chosen = _chosen_ops(job, rank, change).copy()
    chosen[array_of(job.joins, "op")[job.joins_of(rank)]] = False
    rows, durations = np.flatnonzero(chosen), timing.duration_ns.copy()
    kernels = Groups.of_numbers(job.nodes[rank].piece.ops["name"].cat.codes.to_numpy()[rows].astype(np.int64))
    if len(rows):
        durations[rows] = kernels.smallest(durations[rows])[kernels.of_row]
    return durations


def _chosen_calls(piece: Piece, change: Change) -> np.ndarray:
    """Mask of the segments that begin with a blocking call of the change's name, in its phase and steps.

    A call is in the phase of what was launched last before it.
    """
    segments = piece.segments
    chosen = _in_steps(array_of(segments, "step"), change)
    if not change.name:
        return chosen
    call, _, phase = change.name.partition("@")
    chosen &= (segments["call"] == call).to_numpy(dtype=bool)
    if phase:
        host = piece.host[piece.host["is_launch"].to_numpy(dtype=bool)]
        last = host["phase"].astype("object").groupby(array_of(host, "segment")).last().reindex(range(len(segments)))
        # A segment that launches nothing is in the phase of the one before.
        before = last.ffill().shift()
        chosen &= (before == phase).to_numpy(dtype=bool)
    return chosen


def no_longer_than_transfers(job: Job, timing: Timing, rank: int, after: np.ndarray) -> np.ndarray:
    """The rank's durations, where calls that wait for partners last no longer than their changed transfers `after`."""
    rows = job.joins_of(rank)
    rows = rows[job.joins["waits"].to_numpy(dtype=bool)[rows]]
    durations = timing.duration_ns.copy()
    op = array_of(job.joins, "op")[rows]
    longest = np.zeros_like(durations)
    np.maximum.at(longest, op, after[rows])
    durations[op] = np.minimum(durations[op], longest[op])
    return durations
