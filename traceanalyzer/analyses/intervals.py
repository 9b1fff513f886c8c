"""Exact arithmetic on unions of time intervals, vectorised, in integer nanoseconds."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer import kinds
from traceanalyzer.analyses.grouping import MOST_ROWS, largest_before, memoized_by_trace, row_blocks, time_blocks
from traceanalyzer.model import RankTrace, Window
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
)


class Intervals(Struct, frozen=True):
    """Disjoint half-open intervals [start, end), sorted: a union in which overlaps count once."""

    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, starts: np.ndarray | Sequence[int], ends: np.ndarray | Sequence[int]) -> "Intervals":
        """Union of any intervals; those with end ≤ start hold no time and are dropped."""
        start_array, end_array = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
        if len(start_array) <= MOST_ROWS:
            return cls._of(start_array, end_array)
        return cls.of_all([cls._of(start_array[rows], end_array[rows]) for rows in row_blocks(len(start_array))])

    @classmethod
    def of_rows(cls, starts: np.ndarray, ends: np.ndarray, mask: np.ndarray) -> "Intervals":
        """Union of those under the mask."""
        return cls.of_all([cls._of(starts[rows][mask[rows]], ends[rows][mask[rows]]) for rows in row_blocks(len(mask))])

    @classmethod
    def of_all(cls, parts: Sequence["Intervals"]) -> "Intervals":
        """Union of the unions of blocks, of which little is left where events lie in each other."""
        if len(parts) == 1:
            return parts[0]
        return cls._of(np.concatenate([part.starts for part in parts]), np.concatenate([part.ends for part in parts]))

    @classmethod
    def _of(cls, start_array: np.ndarray, end_array: np.ndarray) -> "Intervals":
        held = end_array > start_array
        if not held.all():
            start_array, end_array = start_array[held], end_array[held]
        if not len(start_array):
            return EMPTY
        if (start_array[1:] < start_array[:-1]).any():  # events are in order of their starts, most of them
            order = np.argsort(start_array, kind="stable")
            start_array, end_array = start_array[order], end_array[order]
        reach = np.maximum.accumulate(end_array)
        last = np.flatnonzero(start_array[1:] > reach[:-1])  # touching intervals join
        return cls(start_array[np.concatenate([[0], last + 1])], reach[np.concatenate([last, [len(reach) - 1]])])

    @property
    def total_ns(self) -> int:
        """Time that the union covers."""
        return int((self.ends - self.starts).sum())

    def __len__(self) -> int:
        return len(self.starts)

    def __or__(self, other: "Intervals") -> "Intervals":
        return Intervals.of(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def __and__(self, other: "Intervals") -> "Intervals":
        return _combine(self, other, in_both=True)

    def __sub__(self, other: "Intervals") -> "Intervals":
        return _combine(self, other, in_both=False)

    def between(self, start_ns: int | None, end_ns: int | None) -> "Intervals":
        """The part inside [start_ns, end_ns), from the first or to the last where that is `None`."""
        first = 0 if start_ns is None else int(self.ends.searchsorted(start_ns, side="right"))
        past = len(self) if end_ns is None else int(self.starts.searchsorted(end_ns))
        starts, ends = self.starts[first:past], self.ends[first:past]
        starts = starts if start_ns is None else np.maximum(starts, start_ns)
        return Intervals(starts, ends if end_ns is None else np.minimum(ends, end_ns))

    def inside(self, window: Window) -> "Intervals":
        """The part inside the window."""
        if len(window.stretches) == 1:
            return self.between(window.start_ns, window.end_ns)
        return self & Intervals.of(window.starts, window.ends)

    def covered_ns(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """For each query [start, end), which may overlap each other, the time inside it that the union covers."""
        if not len(self) or not len(starts):
            return np.zeros(len(starts), dtype=np.int64)
        total = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.ends - self.starts, out=total[1:])
        parts = [self._covered(starts[rows], ends[rows], total) for rows in row_blocks(len(starts))]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _covered(self, starts: np.ndarray, ends: np.ndarray, total: np.ndarray) -> np.ndarray:
        inside = self._covered_before(ends, total) - self._covered_before(starts, total)
        return np.where(ends > starts, inside, 0)

    def _covered_before(self, times: np.ndarray, total: np.ndarray) -> np.ndarray:
        row = self.starts.searchsorted(times, side="right")
        last_end = self.ends[np.maximum(row - 1, 0)]
        return np.where(row > 0, total[row] - np.maximum(last_end - times, 0), 0)


def overlapping(starts: np.ndarray, ends: np.ndarray, pieces: Intervals) -> tuple[np.ndarray, np.ndarray]:
    """Positions of every query [start, end) and piece that share time."""
    first = np.searchsorted(pieces.ends, starts, side="right")
    past = np.searchsorted(pieces.starts, ends, side="left")
    count = np.where(ends > starts, np.maximum(past - first, 0), 0)
    query = np.repeat(np.arange(len(starts)), count)
    return query, np.arange(len(query)) - np.repeat(np.cumsum(count) - count - first, count)


EMPTY = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(trace: RankTrace, kind: str, window: Window | None = None) -> Intervals:
    """∪kind of DEFINITIONS: the union of the rank's GPU operations of `kind`, clipped to the window looked at."""
    return unions(trace)[kind].inside(window or trace.window)


@memoized_by_trace
def unions(trace: RankTrace) -> Mapping[str, Intervals]:
    """By kind the union of all the rank's GPU operations of it."""
    starts, ends = arrays_of(trace.gpu_ops, "start_ns", "end_ns")
    kind = trace.gpu_ops["kind"].array
    places = kind.categories.tolist()
    return {name: Intervals.of_rows(starts, ends, kind.codes == places.index(name)) for name in kinds.KINDS}


@memoized_by_trace
def busy(trace: RankTrace) -> Intervals:
    """The union of all the rank's GPU operations."""
    return Intervals.of(array_of(trace.gpu_ops, "start_ns"), array_of(trace.gpu_ops, "end_ns"))


def of_rows(frame: pd.DataFrame, mask: np.ndarray) -> Intervals:
    """Union of the rows of a table with `start_ns` and `end_ns` that `mask` picks."""
    return Intervals.of_rows(array_of(frame, "start_ns"), array_of(frame, "end_ns"), mask)


def new_ns(starts: np.ndarray, ends: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """For each interval the time that it adds to the union of those of its group that start before it.

    Their sums by group are the lengths of the groups' unions.
    """
    order = np.lexsort((starts, groups))
    before = np.empty(len(order), dtype=np.int64)
    before[order] = largest_before(ends[order], groups[order])
    is_first = np.ones(len(order), dtype=bool)
    is_first[order[1:]] = groups[order[1:]] != groups[order[:-1]]
    return np.maximum(ends - np.where(is_first, starts, np.maximum(starts, before)), 0)


def bins_of(window: Window, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of about `most` bins of about one length that fill the window, and cross no edge of a stretch.

    A window of one stretch has `most` bins, fewer when it is shorter than that many ns.
    """
    edges = []
    for start_ns, end_ns in window.stretches:
        length_ns = end_ns - start_ns
        if not length_ns:
            continue
        bins = min(max(1, most * length_ns // window.length_ns), length_ns)
        edges.append(start_ns + np.arange(bins + 1) * length_ns // bins)
    return np.concatenate([edge[:-1] for edge in edges]), np.concatenate([edge[1:] for edge in edges])


def _combine(left: Intervals, right: Intervals, *, in_both: bool) -> Intervals:
    """Stretches inside `left` that are inside (`in_both`) or outside `right`."""
    if max(len(left), len(right)) <= MOST_ROWS:
        return _combined(left, right, in_both=in_both)
    parts = []
    since_ns: int | None = None
    for _, until_ns in time_blocks([left.starts, right.starts]):
        parts.append(_combined(left.between(since_ns, until_ns), right.between(since_ns, until_ns), in_both=in_both))
        since_ns = until_ns
    return Intervals.of_all(parts)


def _combined(left: Intervals, right: Intervals, *, in_both: bool) -> Intervals:
    if not len(left) or (in_both and not len(right)):
        return EMPTY
    if not len(right):
        return Intervals.of(left.starts, left.ends)
    within = right if in_both else _outside(right)
    own, other = overlapping(left.starts, left.ends, within)
    return Intervals.of(
        np.maximum(left.starts[own], within.starts[other]), np.minimum(left.ends[own], within.ends[other])
    )


def _outside(union: Intervals) -> Intervals:
    """All time that it does not cover."""
    always = np.iinfo(np.int64)
    return Intervals(np.append(always.min, union.ends), np.append(union.starts, always.max))
