"""Which event lies inside which other on its thread, for millions of events at once."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blocks import row_blocks
from traceanalyzer.analyses.grouping import stable_order
from traceanalyzer.model.plain import outer_first
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of


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
