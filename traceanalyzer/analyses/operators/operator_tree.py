"""Which operator launched each GPU operation, and how operators nest."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.grouping import row_blocks, stable_order
from traceanalyzer.analyses.trace import launch_moments
from traceanalyzer.kinds import CPU_BACKENDS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, outer_first, rows_named, rows_named_so, whole_of
from traceanalyzer.selection import step_at

# Which event lies inside which other on its thread, for millions of events at once.


@dataclass(frozen=True, slots=True)
class Nesting:
    """The forest that the events of all threads form; arrays have one element an event, in the table's order.

    Attributes:
        parent: row of the innermost other event that holds the event, -1 for none; 32 bits, as all rows here.
        depth: number of events that hold it.
    """

    parent: np.ndarray
    depth: np.ndarray
    _starts: np.ndarray
    _ends: np.ndarray
    _threads: np.ndarray
    _found_levels: list[np.ndarray] = field(default_factory=list, init=False, compare=False)
    """The answer of `_levels` once it was asked for."""

    @classmethod
    def of(cls, events: pd.DataFrame) -> "Nesting":
        """Nest the rows of a table with `start_ns`, `end_ns` and `thread`, in any order.

        An event holds another of its thread when it begins no later and ends no earlier; of two that are equal
        the first row holds the second, and an instant is outside of what ends there. Events that overlap without
        holding each other are siblings.
        """
        starts, ends, threads = (array_of(events, name) for name in ("start_ns", "end_ns", "thread"))
        # Made for tables sorted by start, longer first: then a stable sort by thread is all that is needed.
        order = (
            np.lexsort((-ends, starts, threads))
            if not _is_sorted(starts, ends)
            else stable_order(pd.factorize(threads)[0])
        )
        parent, depth = _nest(starts[order], ends[order], threads[order])
        return cls(_unsorted(_rows(order, parent), order), _unsorted(depth, order), starts, ends, threads)

    def innermost_at(self, times: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Row of the innermost event that is running on a thread at each moment; -1 where none is."""
        found = np.full(len(times), NONE, dtype=np.int64)
        for thread in np.unique(threads):
            own = np.flatnonzero(self._threads == thread)
            asked = np.flatnonzero(threads == thread)
            own = own[outer_first(self._starts[own], self._ends[own])]
            position = np.searchsorted(self._starts[own], times[asked], side="right") - 1
            if len(own):
                found[asked] = np.where(position >= 0, own[np.maximum(position, 0)], NONE)
        return self._climb_to_open(found, times)

    def summed_up(self, own: np.ndarray) -> np.ndarray:
        """Integers of each event, its own and those of all events inside it."""
        return self.gathered_up(own.astype(np.int64), np.add)

    def gathered_up(self, own: np.ndarray, combine: np.ufunc) -> np.ndarray:
        """Values of each event combined (`np.add`, `np.minimum`) with those of all events inside it."""
        total = own.copy()
        for rows in reversed(self._levels()):
            combine.at(total, self.parent[rows], total[rows])
        return total

    def handed_down(self, marked: np.ndarray, *, including_self: bool = True) -> np.ndarray:
        """For each event the row of its innermost marked ancestor (or itself); -1 without one."""
        nearest = np.where(marked, np.arange(len(marked), dtype=np.int32), np.int32(NONE))
        above = np.full(len(marked), NONE, dtype=np.int32)
        for rows in self._levels():
            above[rows] = nearest[self.parent[rows]]
            nearest[rows] = np.where(marked[rows], rows, above[rows])
        return nearest if including_self else above

    def _levels(self) -> list[np.ndarray]:
        """Rows of events inside others, outer levels first."""
        if not self._found_levels:
            order = stable_order(self.depth).astype(np.int32)
            bounds = np.searchsorted(self.depth[order], np.arange(1, self.depth.max(initial=0) + 2))
            self._found_levels.extend(order[first:last] for first, last in pairwise(bounds))
        return self._found_levels

    def children_ns(self) -> np.ndarray:
        """Time of each event that its direct children take."""
        held = self.parent != NONE
        length = self._ends - self._starts
        total = np.zeros(len(length), dtype=np.int64)
        np.add.at(total, self.parent[held], length[held])
        return total

    def _climb_to_open(self, rows: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Replace events that have ended by the first ancestor that has not."""
        found = rows.copy()
        asked = np.flatnonzero(found != NONE)
        while len(asked := asked[self._ends[found[asked]] <= times[asked]]):
            found[asked] = self.parent[found[asked]]
            asked = asked[found[asked] != NONE]
        return found


def _is_sorted(starts: np.ndarray, ends: np.ndarray) -> bool:
    later, same = starts[1:] > starts[:-1], starts[1:] == starts[:-1]
    return bool((later | (same & (ends[1:] <= ends[:-1]))).all())


def _nest(starts: np.ndarray, ends: np.ndarray, threads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parent position and depth of events sorted by thread and start."""
    parent, depth = np.full(len(starts), NONE, dtype=np.int32), np.zeros(len(starts), dtype=np.int32)
    bounds = np.append(np.flatnonzero(np.diff(threads, prepend=threads[:1] - 1)), len(starts))
    for first, last in pairwise(bounds):
        part = slice(first, last)
        level = _depth(starts[part], ends[part])
        above = _last_above(level)
        if not _holds(above, starts[part], ends[part], level):
            above, level = _nest_overlapping(starts[part], ends[part])
        parent[part] = np.where(above == NONE, NONE, above + first)
        depth[part] = level
    return parent, depth


def _depth(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Events that began before each event (in the given order) minus those of them that have ended."""
    lasts = ends > starts
    ended = np.sort(ends[lasts])
    depth, instants = np.empty(len(starts), dtype=np.int32), 0
    for rows in row_blocks(len(starts)):
        is_instant = ~lasts[rows]
        before = instants + np.cumsum(is_instant) - is_instant
        depth[rows] = np.arange(rows.start, rows.stop) - np.searchsorted(ended, starts[rows], side="right") - before
        instants += int(is_instant.sum())
    return depth


def _last_above(depth: np.ndarray) -> np.ndarray:
    """For each event the last one before it that is one level higher; levels rise by one at most."""
    above = np.empty(len(depth), dtype=np.int32)
    last = np.empty(0, dtype=np.int64)
    for rows in row_blocks(len(depth)):
        # Before the block come the last events of each level.
        levels = np.concatenate([np.arange(len(last)), depth[rows]])
        place = np.append(last, np.arange(rows.start, rows.stop))
        above[rows] = np.append(place, NONE)[_above_in_block(levels)[len(last) :]]
        last = np.append(last, np.zeros(int(levels.max(initial=-1)) + 1 - len(last), dtype=np.int64))
        last[levels] = place
    return above


def _above_in_block(depth: np.ndarray) -> np.ndarray:
    count = len(depth)
    order = stable_order(depth)
    keys = depth[order] * count + order
    before = np.searchsorted(keys, keys - count) - 1  # what is looked for ascends: each search begins near the last
    above = np.empty(count, dtype=np.int64)
    above[order] = np.where(before >= 0, order[before], NONE)
    return above


def _holds(parent: np.ndarray, starts: np.ndarray, ends: np.ndarray, depth: np.ndarray) -> bool:
    """Whether every parent really contains its children: not so when events overlap without nesting."""
    rows = np.flatnonzero(parent != NONE)
    if len(rows) != int((depth > 0).sum()):
        return False
    above = parent[rows]
    return bool((ends[above] >= ends[rows]).all() and (starts[above] <= starts[rows]).all())


def _nest_overlapping(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same with a stack, for the rare thread whose events overlap without nesting."""
    parent, depth = np.full(len(ends), NONE, dtype=np.int32), np.zeros(len(ends), dtype=np.int32)
    stack: list[tuple[int, int]] = []
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while stack and (stack[-1][1] < end or stack[-1][1] <= start):
            stack.pop()
        if stack:
            parent[row] = stack[-1][0]
        depth[row] = len(stack)
        stack.append((row, end))
    return parent, depth


def _rows(order: np.ndarray, position: np.ndarray) -> np.ndarray:
    return np.append(order.astype(np.int32), np.int32(NONE))[position]


def _unsorted(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    result = np.empty_like(values)
    result[order] = values
    return result


# Which operator launched each GPU operation, and which operators belong to autograd's backward pass.


_CALLS = ("c10d::", "record_param_comms", "nccl:", *CPU_BACKENDS)

PASSES = ("forward", "backward", "recompute")

PASS_NAMES = pd.CategoricalDtype(list(PASSES))

NO_LAUNCH = "(no launch recorded)"
"""Operator of GPU operations that were launched before the capture began, or whose launch was lost."""

NO_OPERATOR = "(outside any operator)"
"""Operator of GPU operations whose launch no operator surrounds."""

_NODE = "autograd::engine::evaluate_function"

_DISPATCH = "PythonSubclass"


class OperatorTree(Struct, frozen=True):
    """One rank's operators as a forest; arrays follow `host_ops` or `gpu_ops`.

    Attributes:
        nesting: of `host_ops`.
        owner: for each GPU operation the row in `host_ops` of the innermost operator around its launch; -1
            without a launch, -2 with a launch outside any operator.
        node: for each operator the row of the innermost autograd node that holds it (or that it is), -1 for none.
        autograd: for each operator its code in `PASSES`; -1 for what autograd neither records nor runs.
        names: of each operator; of the dispatch of tensor subclasses (DTensor) that of the operator that it wraps.
        forward: for each operator that is an autograd node the row of the operator that created it, else -1.
        is_counted: operators that began in the steps that are looked at.
    """

    nesting: Nesting
    owner: np.ndarray
    names: pd.Categorical
    node: np.ndarray
    autograd: np.ndarray
    forward: np.ndarray
    is_counted: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace) -> "OperatorTree":
        """Build the forest of a rank.

        Forward is what autograd records (an operator with a sequence number, but no call of communication: these
        take numbers and are not recorded, in metrics and optimizers, too) and what lies inside; backward what
        lies inside an autograd node (`autograd::engine::evaluate_function`, or an operator with a forward
        thread). Recompute is the part of it that records autograd anew, as activation checkpointing
        does: an operator with a sequence number of its own between the node and itself. (A backward pass
        that is itself differentiated looks the same.)
        """
        ops = trace.host_ops
        nesting = Nesting.of(ops)
        is_node = rows_named_so(ops, lambda name: name.startswith(_NODE)) | (whole_of(ops, "forward_thread") > 0)
        node = nesting.handed_down(is_node)
        is_call = rows_named_so(ops, lambda name: name.startswith(_CALLS))
        records = ~ops["sequence"].array.isna() & ~is_node & ~is_call
        autograd = _passes(nesting, node, nesting.handed_down(records))
        return cls(
            nesting=nesting,
            owner=_owners(trace, nesting),
            names=_names(ops, nesting, is_node),
            node=node,
            autograd=autograd,
            forward=_forward_rows(ops, is_node, records),
            is_counted=_is_counted(trace),
        )

    def gpu_sums(self, trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
        """For each operator the number and total duration of the counted GPU operations that it launched itself."""
        held = trace.counted & (self.owner >= 0)
        rows = self.owner[held]
        durations = (array_of(trace.gpu_ops, "end_ns") - array_of(trace.gpu_ops, "start_ns"))[held]
        total = np.zeros(len(trace.host_ops), dtype=np.int64)
        np.add.at(total, rows, durations)
        return np.bincount(rows, minlength=len(trace.host_ops)), total

    def inherited(self, rows: np.ndarray) -> np.ndarray:
        """`rows` of another table, one an operator; where it is -1, that of the operator that created the node around.

        So a backward operator belongs where its forward operator does, and one that recomputes where the first did.
        """
        maker = np.append(self.forward, NONE)[self.nesting.handed_down(self.forward != NONE)]
        found = rows.copy()
        asked = np.flatnonzero((rows == NONE) & (maker != NONE))
        above = maker[asked]
        while len(asked):
            found[asked] = rows[above]
            is_open = (rows[above] == NONE) & (maker[above] != NONE)
            asked, above = asked[is_open], maker[above[is_open]]
        return found

    def is_outermost_of_name(self, codes: np.ndarray) -> np.ndarray:
        """Operators that lie inside no other of the same name: sums of totals over these count nothing twice.

        `codes` are a number for each operator, by its name.
        """
        outermost = np.ones(len(codes), dtype=bool)
        rows = np.flatnonzero(self.nesting.parent != NONE)
        above = self.nesting.parent[rows]
        while len(rows):
            outermost[rows[codes[above] == codes[rows]]] = False
            above = self.nesting.parent[above]
            rows, above = rows[above != NONE], above[above != NONE]
        return outermost


def _names(ops: pd.DataFrame, nesting: Nesting, is_node: np.ndarray) -> pd.Categorical:
    """The operators' names; of a dispatch that of the operator around it, else of the first one inside."""
    names, is_dispatch = ops["name"].array, rows_named(ops, "name", _DISPATCH)
    if not is_dispatch.any():
        return names
    rows, parent = np.arange(len(ops)), nesting.parent
    inside = np.flatnonzero((parent != NONE) & np.append(is_dispatch, False)[parent] & ~is_dispatch)[::-1]
    wrapped = rows.copy()
    wrapped[parent[inside]] = inside
    is_around = is_dispatch & (parent != NONE) & ~np.append(is_dispatch | is_node, True)[parent]
    return names.take(np.where(is_around, parent, wrapped))


def _passes(nesting: Nesting, node: np.ndarray, recorded: np.ndarray) -> np.ndarray:
    depth = np.append(nesting.depth, np.int32(NONE))  # the depth of row -1, "none", is above every other
    forward, backward, recompute = range(len(PASSES))
    inside = np.where(depth[recorded] > depth[node], recompute, backward)
    outside = np.where(recorded != NONE, forward, NONE)
    return np.where(node == NONE, outside, inside).astype(np.int8)


def _forward_rows(ops: pd.DataFrame, is_node: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Nodes carry the sequence number of the operator that created them: the last to begin with that number.

    Each thread counts for itself, and a node names its creator's thread by a number of the profiler's own
    (`forward_thread`): it is the thread that used most of the numbers of such nodes. Of two that used as many, neither.

    The profiler's `fwdbwd` flows are made from the same two numbers, and link nothing more: on 22 real captures and
    on reentrant and compiled checkpointing, they and this agree on every pair. The reader uses them where the numbers
    are lost.
    """
    found = np.full(len(ops), NONE, dtype=np.int32)
    nodes = np.flatnonzero(is_node & ~ops["sequence"].array.isna())
    if not len(nodes) or not records.any():
        return found
    sequence, thread = whole_of(ops, "sequence"), array_of(ops, "thread")
    makers = _last_of_each(np.flatnonzero(records), sequence, thread)
    first, end = (np.searchsorted(sequence[makers], sequence[nodes], side=side) for side in ("left", "right"))
    count = end - first
    node = np.repeat(nodes, count)
    maker = makers[np.arange(len(node)) - np.repeat(np.cumsum(count) - count - first, count)]
    is_before = maker < node  # operators are in order of their starts
    node, maker = node[is_before], maker[is_before]
    named = pd.factorize(ops["forward_thread"].array[node], use_na_sentinel=False)[0]
    threads, used = np.unique(thread[maker], return_inverse=True)
    votes = np.bincount(named * len(threads) + used, minlength=(named.max(initial=-1) + 1) * len(threads))
    votes = votes.reshape(-1, max(len(threads), 1))
    is_most = votes == votes.max(axis=1, keepdims=True, initial=0)
    linked = is_most[named, used] & (is_most.sum(axis=1) == 1)[named]
    found[node[linked]] = maker[linked]
    return found


def _last_of_each(rows: np.ndarray, sequence: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """The last of the rows with each number on each thread, in order of numbers."""
    ordered = rows[np.lexsort((rows, thread[rows], sequence[rows]))]
    is_last = (np.diff(sequence[ordered]) != 0) | (np.diff(thread[ordered]) != 0)
    return ordered[np.append(is_last, True)]


def _owners(trace: RankTrace, nesting: Nesting) -> np.ndarray:
    launch = array_of(trace.gpu_ops, "launch")
    owner = np.full(len(launch), NONE, dtype=np.int64)
    rows = np.flatnonzero(launch != NONE)
    around = nesting.innermost_at(*launch_moments(trace, rows))
    owner[rows] = np.where(around == NONE, NONE - 1, around)
    return owner


def _is_counted(trace: RankTrace) -> np.ndarray:
    if trace.window.steps is None:
        return np.ones(len(trace.host_ops), dtype=bool)
    step = host_steps(trace)
    return np.isin(step, np.flatnonzero(trace.steps["step"].isin(trace.window.steps).to_numpy()))


def host_steps(trace: RankTrace) -> np.ndarray:
    """Row of the step in which each operator began, on whatever thread; -1 for none."""
    steps = trace.steps
    starts, ends = array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns")
    return step_at(starts, ends, array_of(trace.host_ops, "start_ns"))
