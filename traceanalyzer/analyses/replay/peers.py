"""What the same work takes on the ranks that do the same: the floor that a change to `peers` stands on."""

from collections.abc import Callable
from copy import copy
from functools import cached_property

import numpy as np

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.replay import same_operation
from traceanalyzer.analyses.replay.capped import capped
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.analyses.replay.linked import linked_ranks
from traceanalyzer.analyses.replay.relief import Relief
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

ALIKE = 0.5
"""Ranks are peers when they share this part of the kernels that either of them runs,"""

WITHIN = 0.9
"""or one runs this part of the other's and more: what it does beside (an evaluation) is no reason to have no peers."""

SLOWER = 0.1
"""A host whose median stretch of work is longer than its peers' by this part is slower throughout."""


_OF_HOSTS = ("_host_tables", "_middle_table", "_host_ns")
"""What `Peers` keeps of the hosts' lengths."""


class Peers:
    """Work of all ranks side by side: an operation is the same as the one of that name, at that place (`places`).

    Host work is compared between the same two communication calls of a step. Without steps the whole capture is one.
    """

    def __init__(self, job: Job, relief: Relief) -> None:
        self.job, self.relief, self.same, self.cost_ns = job, relief, relief.same, 0
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

        Its own where that cannot be said, 0 where they run none.
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
        slower_ns = self.relief.slower_ns.get(rank) if is_freed else None
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
        key, held = self._host_keys[rank], self._host_table[:, self.place[rank]]
        wanted = together(self._host_table)
        scaled = _scaled(own, key, held, wanted)
        if not len(wanted):
            return scaled
        typical = together(self._middle_table)
        is_slow = self._middle_table[:, self.place[rank]] > (1 + SLOWER) * typical
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

    def fastest_host(self, rank: int) -> np.ndarray:
        """The same when each step takes what it takes on the fastest rank that does the same."""
        own, columns = self.own_host(rank), np.flatnonzero(self.alike[self.place[rank]])
        if not len(columns) or len(self.ranks) == 1:
            return own
        held = self._step_table[:, self.place[rank]]
        return _scaled(own, self._step_keys[rank], held, self._together(self._step_table, columns, np.min))

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
            rows.append((shared >= ALIKE * np.maximum(either, 1)) | (shared >= WITHIN * np.maximum(fewer, 1)))
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
    def _spans_and_steps(self) -> tuple[same_operation.Numbered, same_operation.Numbered]:
        """Each stretch of host work by its span between two calls of a step, and by its step."""
        spans, steps = {}, {}
        for rank, nodes in self.job.nodes.items():
            step = nodes.column("host", "step")
            held = self.same.is_in_step(step)
            number = same_operation.since_first(same_operation.calls_passed(nodes.piece), step)
            spans[rank] = (np.stack([step, number], axis=1), held)
            steps[rank] = (step[:, None], held)
        return same_operation.Numbered(spans), same_operation.Numbered(steps)

    @cached_property
    def _host_tables(self) -> tuple[np.ndarray, np.ndarray]:
        """The hosts' work by span, and by step (rows), and rank."""
        lengths = [self.own_host(rank) for rank in self.job.nodes]
        spans, steps = self._spans_and_steps
        return spans.table(lengths), steps.table(lengths)

    @cached_property
    def _free_table(self) -> np.ndarray:
        """The same without what compute takes longer beside waits: who is as fast as its peers makes nobody wait."""
        table = self.same.table_ns.copy()
        for rank, slower_ns in self.relief.slower_ns.items():
            key = self.same.keys[rank]
            np.subtract.at(table, (key[key != NONE], self.place[rank]), slower_ns[key != NONE])
        return table

    @property
    def _host_keys(self) -> dict[int, np.ndarray]:
        return self._spans_and_steps[0].keys

    @property
    def _host_table(self) -> np.ndarray:
        return self._host_tables[0]

    @cached_property
    def _middle_table(self) -> np.ndarray:
        """The median stretch of host work by span and rank."""
        table = np.zeros_like(self._host_table)
        for rank, key in self._host_keys.items():
            held = key[key != NONE]
            groups = Groups.of_numbers(held)
            table[held[groups.first], self.place[rank]] = groups.medians(self.own_host(rank)[key != NONE])
        return table

    @property
    def _step_keys(self) -> dict[int, np.ndarray]:
        return self._spans_and_steps[1].keys

    @property
    def _step_table(self) -> np.ndarray:
        return self._host_tables[1]


def _scaled(own: np.ndarray, key: np.ndarray, held: np.ndarray, wanted: np.ndarray) -> np.ndarray:
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
