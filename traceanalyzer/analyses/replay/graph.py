"""A rank's part of the job's graph, contracted to few nodes, and the order in which nodes can be computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.meaning.vocabulary import DATA, LAUNCH_NS, SHORT_NS
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, rows_named, spilled, table_of

MEMORY = "memory_ns"
"""A column of `Piece.host`."""

SOURCE = 0
"""The node that stands for what happened before the capture: always reached at time 0."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One rank's operations and host, as parallel columns; times are on the rank's own clock.

    Attributes:
        ops: GPU operations, stream by stream, each in order of start: `row` (in `gpu_ops`), `stream`, `start_ns`,
            `duration_ns`, `kind`, `name`, `work` (`same_work`; of communication its collective, size and group),
            `operator`, its `autograd` pass and `shapes`, `phase`, `step` (number, -1 for none), `call` (position among
            the rank's communication operations, -1 for none), `collective`, its `group_ranks`, `launch` (row in `host`,
            -1: none), `loop` (of which it is a later turn), `is_ring` (a message that goes round between attention
            kernels).
        host: the host's stretches of work in order: `segment`, `ns` (length), `data_ns` (of that in the data
            loader), `memory_ns` (in calls that take GPU memory or give it back), `recorded` (operators and calls that
            the profiler wrote down in it), `takes_up` (of one that waits for workers' batch, how many up to it:
            `stretches_taken_up`; else 0), `step`, `operator` (around the launch that ends it), `loop` (of that),
            `is_launch`. A stretch ends with a launch, or with the call that ends its segment.
        segments: the host between two blocking calls: `begin_ns`, `before` (the segment that its call ends, -1 for the
            first of a chain), `own_ns` (what the call takes when nothing is left to wait for), `step` (in which it
            returns), `call` (its name).
        waits: an operation waits for one of another stream: `source`, `target` (rows of `ops`), `is_recorded`,
            `is_touching` (inferred from one's end and the other's start).
        blocks: a segment begins when an operation has ended: `op`, `segment`, `is_own` (the copy that the call made).
        meetings: collectives of the CPU that the host takes part in: `step`, `name`, `start_ns`, `end_ns`, `begins`
            (the segment that begins where it does), `segment` (the one that begins when the host has waited for it, -1:
            it did not).
        steps: `step`, `begin_ns` (when the host begins it), `is_paused` (recording paused after it); without any one
            of number -1 that begins with the first operation.
        why_no_host: why there is no host side; empty when there is one.
    """

    ops: pd.DataFrame
    host: pd.DataFrame
    segments: pd.DataFrame
    waits: pd.DataFrame
    blocks: pd.DataFrame
    meetings: pd.DataFrame
    steps: pd.DataFrame
    why_no_host: str = field(default="", kw_only=True)

    def __len__(self) -> int:
        return len(self.ops)

    def spilled(self) -> "Piece":
        """The same with large tables in files: from when it is made until all ranks' are put together."""
        return replace(self, ops=spilled(self.ops), host=spilled(self.host), waits=spilled(self.waits))

    @property
    def segment_of_op(self) -> np.ndarray:
        """The segment in which each operation was launched; -1 for none."""
        segment: np.ndarray = np.append(array_of(self.host, "segment"), NONE)[array_of(self.ops, "launch")]
        return segment

    @property
    def ends_ns(self) -> np.ndarray:
        """When each operation ends."""
        return array_of(self.ops, "start_ns") + array_of(self.ops, "duration_ns")

    @property
    def begins_stream(self) -> np.ndarray:
        """Operations that are the first of their stream."""
        stream = array_of(self.ops, "stream")
        begins: np.ndarray = np.append(True, stream[1:] != stream[:-1])[: len(stream)]
        return begins


# What of each operation's start its known reasons explain: launch latency, turnaround, and the lag that is left.


LATENCY_NS = 20_000
"""From a launching call to its operation, or from an operation to the return of a call that waits for it.

At most, with nothing else to wait for.
"""

NEVER = int(np.iinfo(np.int64).min) // 8
"""Long before any recorded time; the weight of an edge that a change has taken away."""


class Explained(Struct, frozen=True):
    """For each operation: from the end before it in its stream, from its launch, from each wait's source, to its start.

    Attributes:
        turnaround_ns: after the operation before it in its stream.
        latency_ns: after its launching call's start.
        wait_ns: for each row of `waits`, after its source's end.
        lag_ns: what is left when the latest of these had come.
        release_ns: recorded start of operations that nothing recorded comes before or explains, else -1.
    """

    turnaround_ns: np.ndarray
    latency_ns: np.ndarray
    wait_ns: np.ndarray
    lag_ns: np.ndarray
    release_ns: np.ndarray


def explained(piece: Piece) -> Explained:
    """Delays are as recorded where they decide, up to a limit, and the rank's median where something else decides."""
    ops = piece.ops
    starts, ends = array_of(ops, "start_ns"), piece.ends_ns
    previous = np.where(piece.begins_stream, NEVER, np.append(0, ends[:-1])[: len(ends)])
    launched = launch_times(piece)
    source, target = array_of(piece.waits, "source"), array_of(piece.waits, "target")
    reached = np.full(len(ops), NEVER)
    np.maximum.at(reached, target, ends[source])
    after, since = starts - previous, starts - launched
    queued = launched + SHORT_NS < np.maximum(previous, reached)
    turnaround = _median(after[queued & (after >= 0) & (after < SHORT_NS)], 0)
    free = (launched > np.maximum(previous, reached)) & (since >= 0) & (since < LATENCY_NS)
    latency = _median(since[free], SHORT_NS)
    by_launch = launched + latency > np.maximum(previous, reached)
    by_wait = ~by_launch & (reached > previous)
    turnarounds = np.minimum(after, np.where(by_launch | by_wait, turnaround, SHORT_NS))
    latencies = np.minimum(since, np.where(by_launch, LATENCY_NS, latency))
    waits = np.minimum(starts[target] - ends[source], np.where(by_wait[target], SHORT_NS, turnaround))
    ready = np.maximum(previous + turnarounds, launched + latencies)
    np.maximum.at(ready, target, ends[source] + waits)
    # What was launched before the capture, and began late for no reason, was launched late: nothing moves that.
    is_untold = (array_of(ops, "launch") == NONE) & (starts - ready > LAUNCH_NS) & (not piece.why_no_host)
    has_reason = (ready > NEVER // 2) & ~is_untold
    return Explained(turnarounds, latencies, waits, np.where(has_reason, starts - ready, 0),
                     np.where(has_reason, NONE, starts))  # fmt: skip


def launch_times(piece: Piece) -> np.ndarray:
    """Recorded start of each operation's launching call; long ago for none."""
    host = piece.host
    begins = array_of(piece.segments, "begin_ns")
    times = begins[array_of(host, "segment")] + offsets(array_of(host, "segment"), array_of(host, "ns"))
    launched: np.ndarray = np.append(times, NEVER)[array_of(piece.ops, "launch")]
    return launched


def offsets(segment: np.ndarray, ns: np.ndarray) -> np.ndarray:
    """For each stretch of the host its end since its segment's begin; segments are in order."""
    first = np.flatnonzero(np.append(True, segment[1:] != segment[:-1])[: len(segment)])
    total = np.cumsum(ns)
    before = total[first] - ns[first]
    found: np.ndarray = total - np.repeat(before, np.diff(np.append(first, len(segment))))
    return found


def _median(values: np.ndarray, default: int) -> int:
    return int(np.median(values)) if len(values) else default


def no_hosts() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """`Piece.host`, `segments`, `blocks` and `meetings` of a capture without a host's side."""
    integers = (
        ("segment", "ns", DATA.column, MEMORY, "recorded", "takes_up", "step"),
        ("begin_ns", "before", "own_ns", "step"),
        ("op", "segment"),
        ("step", "begins", "segment", "start_ns", "end_ns"),
    )
    host, segments, blocks, meetings = (
        table_of({name: np.empty(0, dtype=np.int64) for name in names}) for names in integers
    )
    text = pd.Series(dtype="str")
    return (
        host.assign(is_launch=False), segments.assign(call=text), blocks.assign(is_own=False),
        meetings.assign(name=text),
    )  # fmt: skip


# A piece of the graph contracted to few nodes: whole runs of operations and segments of the host.
#
# Within a run of a stream that one segment launched, an operation starts at max(end of the one before, its launch), so
# that the run's end is max(its begin + a, the segment's begin + b) with a and b from sums and maxima
# over whole columns.


@dataclass(frozen=True, slots=True)
class Timing:
    """What may be changed about a piece.

    Attributes:
        duration_ns: of each operation; of one in a matched instance its transfer decides instead.
        host: what its CPU takes.
        is_blocking: segments whose call still waits for the GPU.
        is_called: segments whose call is made at all.
        has_lag: keep what the model does not explain.
    """

    duration_ns: np.ndarray
    host: "HostTiming"
    is_blocking: np.ndarray
    is_called: np.ndarray
    has_lag: bool = True


class HostTiming(Struct, frozen=True):
    """What a piece's CPU takes.

    Attributes:
        ns: each of its stretches.
        launched_ns: since its segment's begin, when the launch of each operation lets it begin.
        until_call_ns: of each segment that follows another, when its blocking call comes since the other's begin.
    """

    ns: np.ndarray
    launched_ns: np.ndarray
    until_call_ns: np.ndarray


FOLLOWS, LAUNCHED, RELEASED, WAITS, OWN, CHAINED, ANCHOR, BLOCKS, BEGINS, CLEARED = range(10)
"""Kinds of edges: into a run from the one before it, from the host, from nothing, from another stream; from a single
operation's start to its end; into a segment from the one before it, from nothing, from an operation; into the first
step's begin from nothing, from the earlier operations' ends."""


class Nodes:
    """Nodes of one piece, numbered from 1 (0 is `SOURCE`), and edges between them.

    First the ends of the runs, then the starts of operations that have one of their own (communication, a step's
    first), then the begins of the segments, then the first step's begin. An edge has a `kind`, and a `row`: the first
    operation of the run that it leads to, or the segment.
    """

    def __init__(self, piece: Piece, main_stream: int) -> None:
        self.piece, self.main_stream = piece, main_stream
        ops = piece.ops
        self.known: Explained = explained(piece)
        self._is_of: dict[str, np.ndarray] = {}
        self._columns: dict[tuple[str, str], np.ndarray] = {}
        self.is_single = (self.column("ops", "call") != NONE) | self.begins_step
        self.earlier = self._earlier()
        self.begins_run = self._runs()
        self.first = np.flatnonzero(self.begins_run)
        self.last = np.append(self.first[1:], len(ops))[: len(self.first)] - 1
        self.run_of_op = np.cumsum(self.begins_run) - 1
        self.singles = np.flatnonzero(self.is_single)
        self.count = len(self.first) + len(self.singles) + len(piece.segments) + 1
        self.begin_node = self.count
        self.end_node = 1 + self.run_of_op
        self.start_node = np.full(len(ops), NONE)
        self.start_node[self.singles] = 1 + len(self.first) + np.arange(len(self.singles))
        self.segment_node = 1 + len(self.first) + len(self.singles) + np.arange(len(piece.segments))
        self._link()

    @cached_property
    def recorded(self) -> Timing:
        """Nothing changed."""
        every_segment = np.ones(len(self.piece.segments), dtype=bool)
        host = self.host_timing(self.column("host", "ns"))
        return Timing(self.column("ops", "duration_ns"), host, every_segment, every_segment)

    def column(self, table: str, name: str) -> np.ndarray:
        """Values of a column of one of the piece's tables: replays ask for some of them again and again."""
        if (table, name) not in self._columns:
            self._columns[table, name] = array_of(getattr(self.piece, table), name)
        return self._columns[table, name]

    def is_of(self, kind: str) -> np.ndarray:
        """Mask of the operations of a kind."""
        if kind not in self._is_of:
            self._is_of[kind] = rows_named(self.piece.ops, "kind", kind)
        return self._is_of[kind]

    @cached_property
    def begins_step(self) -> np.ndarray:
        """The operations with which steps begin on the main stream, and `resumed`; and the very first of all."""
        found = np.zeros(len(self.piece), dtype=bool)
        held = np.flatnonzero(self.column("ops", "stream") == self.main_stream)
        _, first = np.unique(self.column("ops", "step")[held], return_index=True)
        found[held[first]] = True
        found[self.column("ops", "start_ns").argmin()] = found[self.resumed] = True
        return found

    @cached_property
    def resumed(self) -> list[int]:
        """The first operation, on any stream, of each step before which recording paused."""
        steps, step = self.piece.steps, self.column("ops", "step")
        after = steps["step"].shift(-1)[steps["is_paused"].astype(bool)].dropna()
        held = (np.flatnonzero(step == number) for number in after)
        return [int(rows[self.column("ops", "start_ns")[rows].argmin()]) for rows in held if len(rows)]

    def last_of_streams(self, held: np.ndarray) -> np.ndarray:
        """Of the operations under a mask the last one of each stream."""
        rows = np.flatnonzero(held)
        stream = self.column("ops", "stream")[rows]
        last: np.ndarray = rows[np.append(stream[1:] != stream[:-1], True)[: len(rows)]]
        return last

    def _earlier(self) -> np.ndarray:
        """The last operation of each stream before those of the first step."""
        is_of_none, starts = self.column("ops", "step") == NONE, self.column("ops", "start_ns")
        first_ns = starts[~is_of_none].min(initial=np.iinfo(np.int64).max)
        return (
            self.last_of_streams(is_of_none & (starts < first_ns))
            if not is_of_none.all()
            else is_of_none.nonzero()[0][:0]
        )

    def _runs(self) -> np.ndarray:
        """Where runs begin: at streams, waits, other segments, single operations, and after what is waited for."""
        piece = self.piece
        begins = piece.begins_stream.copy()
        segment = piece.segment_of_op
        begins[1:] |= segment[1:] != segment[:-1]
        begins[array_of(piece.waits, "target")] = True
        awaited = (
            np.concatenate([piece.waits["source"], piece.blocks["op"], np.flatnonzero(self.is_single), self.earlier])
            + 1
        )
        begins[awaited[awaited < len(begins)]] = True
        begins[self.is_single | (self.known.release_ns != NONE)] = True
        return begins

    def _link(self) -> None:
        """Edges by kind; the target of one into a run is the start of a single operation, else the run's end."""
        piece, first = self.piece, self.first
        entry = np.where(self.is_single[first], self.start_node[first], self.end_node[first])
        follows = ~piece.begins_stream[first]
        launched = piece.segment_of_op[first] != NONE
        released = self.known.release_ns[first] != NONE
        entry_of_op = np.where(self.is_single, self.start_node, self.end_node)
        source, target = array_of(piece.waits, "source"), array_of(piece.waits, "target")
        before = array_of(piece.segments, "before")
        chained = np.flatnonzero(before != NONE)
        anchors = np.flatnonzero(before == NONE)
        blocks = piece.blocks
        self.follows, self.launched, self.released = (np.flatnonzero(mask) for mask in (follows, launched, released))
        self._chained, self._anchors = chained, anchors
        segment_node = np.append(self.segment_node, NONE)
        parts = (
            (self.end_node[first[follows] - 1], entry[follows], first[follows]),
            (segment_node[piece.segment_of_op[first[launched]]], entry[launched], first[launched]),
            (np.full(released.sum(), SOURCE), entry[released], first[released]),
            (self.end_node[source], entry_of_op[target], target),
            (self.start_node[self.singles], self.end_node[self.singles], self.singles),
            (segment_node[before[chained]], segment_node[chained], chained),
            (np.full(len(anchors), SOURCE), segment_node[anchors], anchors),
            (self.end_node[array_of(blocks, "op")], segment_node[array_of(blocks, "segment")], blocks["segment"]),
            (np.array([SOURCE]), np.array([self.begin_node]), np.array([NONE])),
            (self.end_node[self.earlier], np.full(len(self.earlier), self.begin_node), self.earlier),
        )
        self.source, self.target, self.row = (
            np.concatenate([part[place] for part in parts]).astype(np.int64) for place in range(3)
        )
        self.kind = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])

    def host_timing(self, ns: np.ndarray) -> HostTiming:
        """What the CPU takes where its stretches take so long."""
        ends = offsets(self.column("host", "segment"), ns)
        launched = np.append(ends, 0)[self.column("ops", "launch")]
        launched += self.known.latency_ns
        return HostTiming(ns, launched, ends[self.cut_of_segment[self._chained]])

    def in_row_ns(self, timing: Timing) -> tuple[np.ndarray, np.ndarray]:
        """When each operation could begin if the piece's operations ran in one row, and when each run ends in it.

        What is unexplained of an operation's own start is not in it. Of a single operation's run its start counts.
        """
        duration, lag = timing.duration_ns, self.known.lag_ns * timing.has_lag
        begins = np.empty(len(duration) + 1, dtype=np.int64)
        begins[0] = -lag[0]
        np.add(duration, self._gaps[timing.has_lag], out=begins[1:])
        np.cumsum(begins, out=begins)
        ends = begins[self.last] + lag[self.last] + np.where(self.is_single[self.last], 0, duration[self.last])
        return begins[:-1], ends

    @cached_property
    def _gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """What lies between each operation and the next in that row, without and with what is unexplained."""
        gaps = np.append(self.known.turnaround_ns[1:], 0)
        return gaps, gaps + self.known.lag_ns

    def weights(self, timing: Timing) -> np.ndarray:
        """Length of each edge, in the order of `parts`."""
        known, first = self.known, self.first
        begins, ends = self.in_row_ns(timing)
        left = ends - begins[first]
        by_launch = np.maximum.reduceat(timing.host.launched_ns - begins, first) + ends
        return np.concatenate(
            [
                known.turnaround_ns[first[self.follows]] + left[self.follows],
                by_launch[self.launched],
                known.release_ns[first[self.released]] + left[self.released],
                known.wait_ns + left[self.run_of_op[self.column("waits", "target")]],
                timing.duration_ns[self.singles],
                *self._host_weights(timing),
                self.column("steps", "begin_ns")[:1],
                np.zeros(len(self.earlier), dtype=np.int64),
            ]
        )

    def _host_weights(self, timing: Timing) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of edges into segments: from the segment before, from nothing, from operations."""
        own = np.where(timing.is_called, self.column("segments", "own_ns"), 0)[self._chained]
        known, lag = self.returns
        kept = lag if timing.has_lag else np.zeros_like(lag)
        segment = self.column("blocks", "segment")
        into = np.where(timing.is_blocking[segment], known + kept[segment], NEVER)
        kept = np.where(timing.is_blocking, kept, 0)
        anchored = self.column("segments", "begin_ns")[self._anchors]
        return timing.host.until_call_ns + own + kept[self._chained], anchored, into

    @cached_property
    def cut_of_segment(self) -> np.ndarray:
        """For each segment the row in `host` of the stretch before the blocking call that it begins with, or -1."""
        cuts = np.full(len(self.piece.segments), NONE)
        cuts[self._chained] = np.flatnonzero(~self.piece.host["is_launch"].to_numpy(dtype=bool))
        return cuts

    @cached_property
    def returns(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each row of `blocks` the time to the call's return; of each segment what that leaves unexplained."""
        piece = self.piece
        begin = array_of(piece.segments, "begin_ns")
        ends = self.column("ops", "start_ns") + self.column("ops", "duration_ns")
        op, segment = array_of(piece.blocks, "op"), array_of(piece.blocks, "segment")
        after = begin[segment] - ends[op]
        # After its own copy from or to pageable memory a call works on: it moves the bytes, and its pages come.
        after = np.where(piece.blocks["is_own"].to_numpy(dtype=bool), after, np.minimum(after, LATENCY_NS))
        reached = np.full(len(begin), NEVER)
        np.maximum.at(reached, segment, ends[op] + after)
        chained, before = self._chained, array_of(piece.segments, "before")[self._chained]
        tail = offsets(array_of(piece.host, "segment"), array_of(piece.host, "ns"))[self.cut_of_segment[chained]]
        reached[chained] = np.maximum(
            reached[chained], begin[before] + tail + array_of(piece.segments, "own_ns")[chained]
        )
        met = array_of(piece.meetings, "segment")
        met = met[met != NONE]  # there the hosts that meet decide
        reached[met] = begin[met]
        return after, np.where(reached == NEVER, 0, begin - reached)


# An order in which a graph's nodes can be computed, many at a time.


class CircleError(ValueError):
    """A node would come before itself."""


class Order(Struct, frozen=True):
    """Edges sorted so that every level needs only earlier ones.

    Attributes:
        place: of each node in the order.
        edges: the edges in order of their targets; those of `dropped` are left out.
        source: place of each one's source.
        levels: for each level its first node's and first edge's place; and the ends.
        first: for each node its first edge's place.
        begins: the same within its level.
        dropped: mask of the edges that would have closed a circle.
    """

    place: np.ndarray
    edges: np.ndarray
    source: np.ndarray
    levels: np.ndarray
    first: np.ndarray
    begins: np.ndarray
    dropped: np.ndarray

    def latest(self, weights: np.ndarray) -> np.ndarray:
        """When each node is reached: the largest over its edges of the source's time + the edge's weight.

        `weights` has a row for each edge as given, and a column for each replay; so has the answer for nodes.
        """
        ordered = weights[self.edges]
        times = np.zeros((len(self.place), weights.shape[1]), dtype=np.int64)
        source, begins = self.source, self.begins
        bounds = self.levels.tolist()
        for (node, edge), (next_node, next_edge) in pairwise(bounds):
            reached = times[source[edge:next_edge]]
            reached += ordered[edge:next_edge]
            times[node:next_node] = np.maximum.reduceat(reached, begins[node:next_node], axis=0)
        given: np.ndarray = times[self.place]
        return given

    def bounds(self, node: int) -> tuple[int, int]:
        """The node's first edge's place, and the end of its edges."""
        place = int(self.place[node])
        following = self.first[place + 1] if place + 1 < len(self.first) else len(self.edges)
        return int(self.first[place]), int(following)

    @property
    def nodes(self) -> np.ndarray:
        """The node at each place."""
        nodes = np.empty(len(self.place), dtype=np.int64)
        nodes[self.place] = np.arange(len(self.place))
        return nodes


def order_of(count: int, source: np.ndarray, target: np.ndarray, may_drop: np.ndarray, when_ns: np.ndarray) -> Order:
    """Order `count` nodes, of which 0 is the source; where edges close a circle, the earliest that may is dropped.

    Args:
        count: nodes.
        source: of each edge.
        target: of each edge.
        may_drop: edges that are less sure than the others.
        when_ns: of each edge, to choose among those.

    Raises:
        CircleError: the edges that may not be dropped close a circle.
    """
    level = np.full(count, NONE, dtype=np.int64)
    dropped = np.zeros(len(source), dtype=bool)
    by_source = np.argsort(source, kind="stable")
    first = np.searchsorted(source[by_source], np.arange(count + 1))
    missing = np.bincount(target, minlength=count)
    frontier, number = np.flatnonzero(missing == 0), 0
    while True:
        while len(frontier):
            level[frontier] = number
            edges = by_source[_ranges(first[frontier], first[frontier + 1])]
            edges = edges[~dropped[edges]]
            frontier = _released(missing, target[edges])
            number += 1
        open_edges = np.flatnonzero((level[source] == NONE) & may_drop & ~dropped)
        if not len(open_edges):
            break
        cut = open_edges[when_ns[open_edges] == when_ns[open_edges].min()]
        dropped[cut] = True
        frontier = _released(missing, target[cut])
    if (level == NONE).any():
        raise CircleError
    return _sorted(level, source, target, dropped)


def _released(missing: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Nodes that wait for nothing more once these edges are done; `missing` is brought up to date."""
    np.subtract.at(missing, targets, 1)
    touched = np.unique(targets)
    released: np.ndarray = touched[missing[touched] == 0]
    return released


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The numbers of all ranges [begin, end), one after the other."""
    lengths = ends - begins
    return np.repeat(begins - np.append(0, np.cumsum(lengths)[:-1])[: len(lengths)], lengths) + np.arange(lengths.sum())


def _sorted(level: np.ndarray, source: np.ndarray, target: np.ndarray, dropped: np.ndarray) -> Order:
    nodes = np.argsort(level, kind="stable")
    place = np.empty(len(level), dtype=np.int64)
    place[nodes] = np.arange(len(level))
    edges = np.flatnonzero(~dropped)
    edges = edges[np.argsort(place[target[edges]], kind="stable")]
    targets = place[target[edges]]
    # Level 0 is what nothing comes before.
    cuts = np.flatnonzero(np.diff(level[nodes])) + 1
    bounds = np.append(cuts, len(level))
    edge_bounds = np.searchsorted(targets, bounds)
    first = np.searchsorted(targets, np.arange(len(level)))
    of_level = np.repeat(np.append(0, edge_bounds[:-1]), np.diff(np.append(0, bounds)))
    return Order(
        place, edges, place[source[edges]], np.stack([bounds, edge_bounds], axis=1), first, first - of_level, dropped
    )


# On which stream each rank's steps begin: the one that computes most, the same on all ranks that compute on it.


def main_streams(pieces: Mapping[int, Piece]) -> dict[int, int]:
    """Of each rank its stream: the job's, where the rank computes on it in each of its steps, else its own.

    The job's stream is the one whose (lower) median of compute over ranks is longest. A straggler may compute most on a
    stream on which all prepare the next batch: its steps would begin at other moments than theirs.
    """
    each = {rank: _compute_ns(piece) for rank, piece in pieces.items()}
    common = _of_job(pd.DataFrame(each).fillna(0)) if each else NONE
    return {
        rank: common if _has_in_each_step(pieces[rank], common) else int(own.idxmax()) for rank, own in each.items()
    }


def _of_job(compute: pd.DataFrame) -> int:
    """`NONE` where most ranks have no stream in common that computes."""
    median = np.sort(compute.to_numpy(), axis=1)[:, (compute.shape[1] - 1) // 2]
    return int(compute.index[median.argmax()]) if median.any() else NONE


def _compute_ns(piece: Piece) -> pd.Series:
    """Time that kernels take, by stream in the order of the piece."""
    codes, streams = pd.factorize(array_of(piece.ops, "stream"))
    compute = np.where(rows_named(piece.ops, "kind", "compute"), array_of(piece.ops, "duration_ns"), 0)
    return pd.Series(np.bincount(codes, compute, len(streams)), index=streams)


def _has_in_each_step(piece: Piece, stream: int) -> bool:
    step = array_of(piece.ops, "step")
    is_own = (array_of(piece.ops, "stream") == stream) & rows_named(piece.ops, "kind", "compute")
    return bool(is_own.any()) and len(np.setdiff1d(step[step != NONE], step[is_own])) == 0
