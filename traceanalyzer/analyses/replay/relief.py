"""What compute gains when a call beside it waits less: a collective that spins takes multiprocessors and memory."""

from dataclasses import replace
from functools import cached_property

import numpy as np
from msgspec import Struct

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.replay import same_operation
from traceanalyzer.analyses.replay.alone import of_peers
from traceanalyzer.analyses.replay.job import Job, Lengths
from traceanalyzer.analyses.replay.other_sizes import filled, of_other_size
from traceanalyzer.analyses.replay.same_operation import SameOperations
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

MOST_PEERS = 8
"""Other ranks that are asked how long a kernel takes alone."""


class Beside(Struct, frozen=True):
    """Operations of a rank beside waits: one row for each operation and call.

    Attributes:
        op: row in the rank's piece.
        join: row in `Job.joins` of the call that waits beside it.
        slower_ns: by how much the operation is longer for it.
        least_ns: of each operation of the rank the time that it takes without communication beside it.
    """

    op: np.ndarray
    join: np.ndarray
    slower_ns: np.ndarray
    least_ns: np.ndarray


class Relief:
    """By how much shorter operations are in a replay in which calls wait less than they were recorded to.

    A kernel that runs beside a wait for a part of its time and takes longer than the median of the same work without
    communication is longer by that part of the difference; of kernels that the rank never runs alone
    its peers' speak, at another size where they run no such one (`of_other_sizes`). Of a wait that is shorter by half,
    half of it goes.
    Waits that become longer slow nothing further: what would lie beside them is not known.
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
    def _rows(self) -> dict[int, int]:
        """Of each rank its row in `_medians`."""
        return {rank: row for row, rank in enumerate(self.job.nodes)}

    @cached_property
    def _waits(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each row of `Job.joins` from when until when it waits; those that do not end as they begin."""
        begins, ready = (array_of(self.job.joins, name) for name in ("start_ns", "ready_ns"))
        return begins, np.where(self.job.joins["waits"].to_numpy(dtype=bool), ready, begins)

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
        place = self._rows[rank]
        others = [row for row in range(min(len(self._medians), MOST_PEERS + 1)) if row != place][:MOST_PEERS]
        columns = self._columns[rank]
        found = of_peers(self._medians[place], self._medians[others])[columns]
        alone = self.job.nodes[rank].alone
        unknown = alone.are_beside & np.isnan(found) & (alone.works != NONE)
        if unknown.any():
            ranks = [other for other, row in self._rows.items() if row in others]
            told = [one for other in ranks if (one := self._at_other_size(rank, other, unknown)) is not None]
            found = filled(found, unknown, told) if told else found
        return found

    def _at_other_size(self, rank: int, other: int, unknown: np.ndarray) -> np.ndarray | None:
        """What the rank's kernels take alone by those of another one, which runs them at another size.

        `None` where that one tells nothing of those that are unknown.
        """
        own, peer = (self.job.nodes[each].alone for each in (rank, other))
        own_op, op = same_operation.matched(self.same.keys[rank], self.same.keys[other])
        own_code, code = own.code[own_op], peer.code[op]
        is_told = unknown[own_code] & ~np.isnan(peer.medians)[code]
        return of_other_size(own, peer, own_code, code) if is_told.any() else None

    @property
    def slower_ns(self) -> dict[int, np.ndarray]:
        """Of each operation of the ranks that wait beside compute how much longer it is for that."""
        return {
            rank: np.bincount(own.op, own.slower_ns, minlength=len(own.least_ns)) for rank, own in self._beside.items()
        }

    @property
    def most_ns(self) -> int:
        """All that could go, of the rank that has most of it."""
        return max((int(own.slower_ns.sum()) for own in self._beside.values()), default=0)

    def _of_rank(self, rank: int) -> Beside:
        job, nodes = self.job, self.job.nodes[rank]
        ops = nodes.piece.ops
        rows = job.joins_of(rank)
        begins, ends = (times[rows] for times in self._waits)
        rows, begins, ends = (own[ends > begins] for own in (rows, begins, ends))
        shift = job.origin_ns + job.offset_ns[rank]
        starts, lengths = array_of(ops, "start_ns") - shift, array_of(ops, "duration_ns")
        least = nodes.alone.lengths_ns(self._typical(rank))
        slower = np.where(is_any(ops["kind"], "compute"), np.maximum(lengths - least, 0), 0)
        held = np.flatnonzero(slower)
        join, op = _shared(begins, ends, starts[held], (starts + lengths)[held])
        op = held[op]
        beside = np.minimum(ends[join], (starts + lengths)[op]) - np.maximum(begins[join], starts[op])
        # Calls of several streams may wait at once: no operation is slower than it is.
        total = np.maximum(np.bincount(op, beside, minlength=len(ops))[op], lengths[op])
        return Beside(op, rows[join], slower[op] * beside / np.maximum(total, 1), least)

    def relieved(self, lengths: Lengths, times: np.ndarray) -> Lengths:
        """The lengths of a replay with what its own waits leave; `times` are when it reached each node."""
        left = self._waits_left(times) if lengths.has_waits else np.zeros(len(self.job.joins))
        timing = dict(lengths.timing)
        for rank, own in self._beside.items():
            recorded, before = self.job.nodes[rank].recorded.duration_ns, timing[rank].duration_ns
            gone = np.bincount(own.op, own.slower_ns * (1 - left[own.join]), minlength=len(before))
            scale = np.divide(before, recorded, out=np.ones(len(before)), where=recorded > 0)
            after = np.maximum(before - np.round(gone * scale).astype(np.int64), np.minimum(before, own.least_ns))
            timing[rank] = replace(timing[rank], duration_ns=after)
        return replace(lengths, timing=timing)

    def _waits_left(self, times: np.ndarray) -> np.ndarray:
        """Of each call the part of its recorded wait that is left, from 0 to 1."""
        job = self.job
        instance = job.first_instance + array_of(job.joins, "instance")
        recorded = (job.joins["ready_ns"] - job.joins["start_ns"]).to_numpy()
        left = np.divide(times[instance] - times[job.start_of_join], recorded, out=np.ones(len(recorded)),
                         where=recorded > 0)  # fmt: skip
        clipped: np.ndarray = np.clip(left, 0, 1)
        return clipped


def _shared(
    begins: np.ndarray, ends: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Places of waits [begin, end) and operations [start, stop) that share time; neither needs an order."""
    waits = np.argsort(begins, kind="stable")
    reach = np.maximum.accumulate(ends[waits]) if len(waits) else ends
    first = np.searchsorted(reach, starts, side="right")
    count = np.maximum(np.searchsorted(begins[waits], stops, side="left") - first, 0)
    op = np.repeat(np.arange(len(starts)), count)
    wait = waits[np.arange(len(op)) - np.repeat(np.cumsum(count) - count - first, count)] if len(op) else op
    held = (ends[wait] > starts[op]) & (begins[wait] < stops[op])
    return wait[held], op[held]
