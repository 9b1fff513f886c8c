"""What kernels take without communication beside them, and what they gain when it becomes shorter."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.intervals import Intervals
from traceanalyzer.analyses.replay.graph import NEVER, Timing
from traceanalyzer.analyses.replay.job import Job, Lengths
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, rows_named


class Alone:
    """One rank's operations by the work that they do (`same_work`).

    Attributes:
        works: the numbers of what they do, in order; -1 stands for all of which it is not known.
        code: of each operation the position of its work.
        medians: of each work the median of its runs without communication beside them; NaN of fewer than three, of
            unlike ones, and where the work is not known.
    """

    def __init__(self, ops: pd.DataFrame) -> None:
        starts, lengths = array_of(ops, "start_ns"), array_of(ops, "duration_ns")
        comm = rows_named(ops, "kind", "comm")
        beside = Intervals.of(starts[comm], (starts + lengths)[comm]).covered_ns(starts, starts + lengths)
        self._is_beside = (beside >= SHARE * lengths) & ~comm & (lengths > 0)
        self.works, self.code = np.unique(array_of(ops, "work"), return_inverse=True)
        runs = np.flatnonzero((beside == 0) & ~comm)
        groups = Groups.of_numbers(self.code[runs])
        is_told = (groups.counts() > 2) & _are_alike(groups, lengths[runs])
        is_told &= self.works[self.code[runs[groups.first]]] != NONE
        self.medians = np.full(len(self.works), np.nan)
        self.medians[self.code[runs[groups.first]][is_told]] = groups.medians(lengths[runs])[is_told]

    def lengths_ns(self, medians: np.ndarray | None = None) -> np.ndarray:
        """For each operation the median time of its kernel when no communication runs beside it.

        Without limit for operations that do not run beside communication, or of which too few runs are alone.
        `medians`, one for each kernel, are those of the rank itself, unless given.
        """
        typical = self.medians if medians is None else medians
        of_op = np.where(np.isnan(typical), -NEVER, typical)[self.code] if len(typical) else np.empty(len(self.code))
        found: np.ndarray = np.round(np.where(self._is_beside, of_op, -NEVER)).astype(np.int64)
        return found


def _are_alike(groups: Groups, lengths: np.ndarray) -> np.ndarray:
    """Whether a kernel's runs take about as long: else its name, grid and shapes do not tell how much it does."""
    counts = groups.counts()
    ordered = lengths[np.lexsort((lengths, groups.of_row))]
    begins = np.cumsum(counts) - counts
    low, high = (ordered[begins + (counts - 1) * quarter // 4] for quarter in (1, 3))
    alike: np.ndarray = high <= RATIO * low
    return alike


def of_peers(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """A rank's medians, by kernel, with its peers' (a row each) for kernels that it never runs alone.

    Those are scaled by what kernels that both run alone take longer on the rank: GPUs are not equally fast.
    """
    if not (np.isnan(own) & ~np.isnan(others).all(axis=0)).any():
        return own
    ratio = np.divide(own, others, out=np.full(others.shape, np.nan), where=others != 0)
    is_known = ~np.isnan(ratio).all(axis=1)
    scaled = others[is_known] * np.nanmedian(ratio[is_known], axis=1)[:, None]
    wanted = np.isnan(own) & ~np.isnan(scaled).all(axis=0)
    found = own.copy()
    found[wanted] = np.nanmedian(scaled[:, wanted], axis=0)
    return found


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
        rows: the operations, by their rows in the rank's piece.
        op: which of them.
        part: of `parts`.
        slower_ns: by how much the operation is longer for it.
        least_ns: of each operation of the rank the time that it takes without communication beside it.
        parts: of the rank's calls.
    """

    rows: np.ndarray
    op: np.ndarray
    part: np.ndarray
    slower_ns: np.ndarray
    least_ns: np.ndarray
    parts: Parts


_MOST_PEERS = 8
"""Other ranks that are asked how long a kernel takes alone: asking all would take the square of the ranks."""


class Contention:
    """By how much shorter operations are in a replay in which calls take less than they were recorded to.

    A collective takes multiprocessors and memory: a kernel that runs beside communication for a part of its time and
    takes longer than the median of the same work without is longer by that part of the difference; of kernels that the
    rank never runs alone its peers' speak. Of a wait or transfer that is shorter by half, half of it goes. Those that
    become longer slow nothing further: what would lie beside them is not known.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    @cached_property
    def alone(self) -> dict[int, Alone]:
        """What each rank's kernels take alone."""
        return {rank: Alone(nodes.piece.ops) for rank, nodes in self.job.nodes.items()}

    @cached_property
    def _typical(self) -> dict[int, np.ndarray]:
        """Of each rank's works what they take alone, there or on some other ranks; NaN where too few runs tell."""
        works = np.unique(np.concatenate([own.works for own in self.alone.values()]))
        columns = [np.searchsorted(works, own.works) for own in self.alone.values()]
        medians = np.full((len(columns), len(works)), np.nan)
        for row, own in enumerate(self.alone.values()):
            medians[row, columns[row]] = own.medians
        first = range(min(len(columns), _MOST_PEERS + 1))
        others = [[other for other in first if other != row][:_MOST_PEERS] for row in range(len(columns))]
        return {rank: of_peers(medians[row], medians[others[row]])[columns[row]] for row, rank in enumerate(self.alone)}

    @cached_property
    def _beside(self) -> dict[int, Beside]:
        found = {rank: self._of_rank(rank) for rank in self.job.nodes}
        return {rank: own for rank, own in found.items() if len(own.op)}

    @property
    def slower_by_waits_ns(self) -> dict[int, np.ndarray]:
        """Of each operation of the ranks that wait beside compute how much longer it is for that."""
        return {
            rank: np.bincount(
                own.rows[own.op], own.slower_ns * own.parts.is_wait[own.part], minlength=len(own.least_ns)
            )
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
        names = ("op", "waits", "start_ns", "end_ns", "ready_ns", "start", "end")
        op, waits, start, end, ready, first, last = (array_of(job.joins, name)[rows] for name in names)
        ready = np.where(waits, np.clip(ready, start, end), start)
        instance = job.instance_node[rows]
        others = np.setdiff1d(np.flatnonzero(nodes.column("ops", "call") != NONE), op)
        begun = nodes.column("ops", "start_ns")[others] - job.shift_ns(rank)
        begins, ends = (job.node(rank, of[others]) for of in (nodes.start_node, nodes.end_node))
        parts = Parts(
            np.concatenate([start, ready, begun]),
            np.concatenate([ready, end, begun + nodes.column("ops", "duration_ns")[others]]),
            np.concatenate([first, np.where(waits, instance, first), begins]),
            np.concatenate([instance, last, ends]),
            np.concatenate([last, last, ends]),
            np.arange(2 * len(rows) + len(others)) < len(rows),
        )
        held = parts.end_ns > parts.begin_ns
        return Parts(*(getattr(parts, name)[held] for name in Parts.__struct_fields__))

    def _of_rank(self, rank: int) -> Beside:
        nodes, parts = self.job.nodes[rank], self._parts(rank)
        lengths = nodes.column("ops", "duration_ns")
        starts = nodes.column("ops", "start_ns") - self.job.shift_ns(rank)
        least = self.alone[rank].lengths_ns(self._typical[rank])
        slower = np.where(nodes.is_of("compute"), np.maximum(lengths - least, 0), 0)
        held = np.flatnonzero(slower)
        part, op = _shared(parts.begin_ns, parts.end_ns, starts[held], (starts + lengths)[held])
        op = held[op]
        beside = np.minimum(parts.end_ns[part], (starts + lengths)[op]) - np.maximum(parts.begin_ns[part], starts[op])
        # Several calls may run at once: no operation is slower than it is.
        total = np.maximum(np.bincount(op, beside, minlength=len(lengths))[op], lengths[op])
        return Beside(
            *np.unique(op, return_inverse=True), part, slower[op] * beside / np.maximum(total, 1), least, parts
        )

    def after(self, lengths: Lengths, times: np.ndarray) -> Lengths:
        """The lengths of a replay with what its own communication leaves; `times` are when it reached each node."""
        timing = {rank: self.timing_after(rank, own, times) for rank, own in lengths.timing.items()}
        return replace(lengths, timing=timing)

    def timing_after(self, rank: int, timing: Timing, times: np.ndarray) -> Timing:
        """The same of one rank."""
        own = self._beside.get(rank)
        if own is None:
            return timing
        recorded, after = self.job.nodes[rank].recorded.duration_ns[own.rows], timing.duration_ns.copy()
        before = after[own.rows]
        gone = np.bincount(own.op, own.slower_ns * (1 - own.parts.left(times))[own.part], minlength=len(before))
        scale = np.divide(before, recorded, out=np.ones(len(before)), where=recorded > 0)
        least = np.minimum(before, own.least_ns[own.rows])
        after[own.rows] = np.maximum(before - np.round(gone * scale).astype(np.int64), least)
        return replace(timing, duration_ns=after)


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
