"""The job's critical path: what ran, where, in each moment of the window, of all that could not have been later."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.replay.job import Job, Lengths
from traceanalyzer.analyses.replay.nodes import (
    ANCHOR,
    BLOCKS,
    CHAINED,
    FOLLOWS,
    LAUNCHED,
    OWN,
    RELEASED,
    WAITS,
    Nodes,
    Sums,
    Timing,
)
from traceanalyzer.analyses.replay.piece import SOURCE
from traceanalyzer.analyses.replay.windows import Windows
from traceanalyzer.meaning.vocabulary import BEFORE, BETWEEN_KERNELS, COMM, DATA, HOST, LAUNCH, ON_PATH, SYNC, UNKNOWN
from traceanalyzer.model.aside import rearranged
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

CATEGORIES = tuple(one.key for one in ON_PATH)
"""What a stretch of the path is."""

_CODE = {name: code for code, name in enumerate(CATEGORIES)}

Stretch = tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Rank; and of stretches in order of time their lengths, categories, rows in the piece's `ops` and in its `host`."""


def critical_path(job: Job, windows: Windows, lengths: Lengths) -> pd.DataFrame:
    """Stretches that tile the window, in order of time.

    The window is that of the job's steps, from when the last rank begins the first to when the last has done the
    last; of a capture without steps all of it. Backwards from its end every stretch is what the next one waited for.

    Returns:
        `start_ns`, `end_ns` (common clock), `rank`, `category`, and rows `op` and `host` of the rank's piece, or -1.
    """
    weights = job.weights(lengths)
    times = job.order.latest(weights[:, None])[:, 0]
    begin_ns, last = _window(windows, times)
    edges = list(_walk(job, times, weights, last, begin_ns))
    parts = map(_Stretches(job, lengths).of, reversed(edges))
    first = SOURCE if not edges else int(job.source[edges[-1]])
    columns = _tiling(parts, int(times[first]) if first != SOURCE else 0)
    return _clipped(columns, begin_ns, int(times[last]), job.origin_ns)


def _window(windows: Windows, times: np.ndarray) -> tuple[int, int]:
    """Begin of the window, and the node that ends it."""
    begins = times[windows.begin]
    last = int(windows.ends[times[windows.ends].argmax()])
    if not windows.has_steps:
        return int(begins.min()), last
    first_step = windows.table["step"] == windows.table["step"].min()
    return int(begins[first_step.to_numpy(dtype=bool)].max()), last


def _walk(job: Job, times: np.ndarray, weights: np.ndarray, node: int, until_ns: int) -> Iterator[int]:
    """Edges that decided, from the node back to the first that was reached by `until_ns`."""
    order = job.order
    nodes = order.nodes
    reached = times[nodes]
    while node != SOURCE and times[node] > until_ns:
        begin, end = order.bounds(node)
        edges = order.edges[begin:end]
        edge = int(edges[(reached[order.source[begin:end]] + weights[edges]).argmax()])
        yield edge
        node = int(job.source[edge])


class _Stretches:
    """What an edge of the job's graph consists of."""

    def __init__(self, job: Job, lengths: Lengths) -> None:
        self.job, self.lengths = job, lengths
        self.ranks = list(job.nodes)
        counts = [len(nodes.source) for nodes in job.nodes.values()]
        self.bounds = np.append(0, np.cumsum(counts))
        self.sums: dict[int, Sums] = {}

    def of(self, edge: int) -> Stretch:
        """Its stretches in order of time."""
        if edge >= self.bounds[-1]:
            return self._join(edge - int(self.bounds[-1]))
        place = int(np.searchsorted(self.bounds, edge, side="right")) - 1
        rank = self.ranks[place]
        nodes, timing = self.job.nodes[rank], self.lengths.timing[rank]
        if rank not in self.sums:
            self.sums[rank] = nodes.sums(timing)
        own = edge - int(self.bounds[place])
        since_ns = self.job.origin_ns + self.job.offset_ns[rank]
        return rank, *_of_rank(nodes, timing, self.sums[rank], own, since_ns)

    def _join(self, row: int) -> Stretch:
        """Into an instance: nothing; from it to a call's end: the transfer."""
        joins = self.job.joins
        if row < len(joins):
            return int(joins["rank"].iloc[row]), *_columns([])
        row -= len(joins)
        if row >= len(self.job.waiting):
            return self._meeting(row - len(self.job.waiting))
        row = int(self.job.waiting[row])
        length, op = int(self.lengths.transfer_ns[row]), int(joins["op"].iloc[row])
        return int(joins["rank"].iloc[row]), *_columns([(length, COMM.kind, op, NONE)])

    def _meeting(self, row: int) -> Stretch:
        """Into a collective of the CPU: nothing; from it on: what it takes once all hosts have come."""
        meetings = self.job.meetings
        row -= len(meetings.begins)
        if row < 0:
            return next(iter(self.job.nodes)), *_columns([])
        length = (meetings.after_ns if self.lengths.met_ns is None else self.lengths.met_ns)[row]
        return int(meetings.rank[row]), *_columns([(int(length), COMM.kind, NONE, NONE)])


def _of_rank(nodes: Nodes, timing: Timing, sums: Sums, edge: int, since_ns: int) -> "Columns":
    """Stretches of an edge of one rank; recorded times count from `since_ns`."""
    kind, row, known = int(nodes.kind[edge]), int(nodes.row[edge]), nodes.known
    if kind in (CHAINED, BLOCKS, ANCHOR):
        return _of_host(nodes, timing, edge, row, since_ns)
    if kind == OWN:
        return _operations(nodes, timing, sums, row, row)
    last = int(nodes.last[nodes.run_of_op[row]])
    if kind == LAUNCHED:
        row += int(sums.by_launch_ns[row : last + 1].argmax())
        head = _launch(nodes, timing, row)
    elif kind == RELEASED:
        head = _columns([(int(known.release_ns[row]) - since_ns, BEFORE.key, NONE, NONE)])
    elif kind == FOLLOWS:
        head = _columns([(int(known.turnaround_ns[row]), BETWEEN_KERNELS.key, row, NONE)])
    else:
        wait = edge - int(np.searchsorted(nodes.kind, WAITS))
        source = int(array_of(nodes.piece.waits, "source")[wait])
        hidden = int(timing.duration_ns[source]) if timing.is_hidden and nodes.is_comm[source] else 0
        head = _columns([(int(known.wait_ns[wait]) - hidden, BETWEEN_KERNELS.key, row, NONE)])
    head = _joined(head, _columns([(int(sums.lag_ns[row]), UNKNOWN.key, row, NONE)]))
    return head if nodes.is_single[row] else _joined(head, _operations(nodes, timing, sums, row, last))


Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _columns(rows: list[tuple[int, str, int, int]]) -> Columns:
    lengths, names, ops, hosts = zip(*rows, strict=True) if rows else ((), (), (), ())
    codes = [_CODE[name] for name in names]
    first, second, third, fourth = (np.array(values, dtype=np.int64) for values in (lengths, codes, ops, hosts))
    return first, second, third, fourth


def _joined(*parts: Columns) -> Columns:
    first, second, third, fourth = (np.concatenate([part[place] for part in parts]) for place in range(4))
    return first, second, third, fourth


def _operations(nodes: Nodes, timing: Timing, sums: Sums, first: int, last: int) -> Columns:
    """A run's operations from one on, with what lies between them."""
    ops = np.arange(first, last + 1)
    count = len(ops)
    between = np.append(0, nodes.known.turnaround_ns[first + 1 : last + 1])
    lag = np.append(0, sums.lag_ns[first + 1 : last + 1])
    length = np.stack([between, lag, timing.duration_ns[first : last + 1]], axis=1).ravel()
    kind = nodes.piece.ops["kind"].cat
    kinds = np.array([_CODE[name] for name in kind.categories])[kind.codes.to_numpy()[first : last + 1]]
    code = np.stack(
        [np.full(count, _CODE[BETWEEN_KERNELS.key]), np.full(count, _CODE[UNKNOWN.key]), kinds], axis=1
    ).ravel()
    return length, code, np.repeat(ops, 3), np.full(3 * count, NONE)


def _launch(nodes: Nodes, timing: Timing, op: int) -> Columns:
    """From a segment's begin through the host's work to the launch, and its latency."""
    last = int(array_of(nodes.piece.ops, "launch")[op])
    latency = _columns([(int(nodes.known.latency_ns[op]), LAUNCH.key, op, NONE)])
    return _joined(_work(nodes, timing, last), latency)


def _work(nodes: Nodes, timing: Timing, last: int) -> Columns:
    """The host's stretches of a segment up to one, each cut into the loader's part and the rest."""
    host = nodes.piece.host
    segment = array_of(host, "segment")
    first = int(np.searchsorted(segment, segment[last]))
    rows = np.arange(first, last + 1)
    ns = timing.host_ns[rows]
    data = np.minimum(host[DATA.column].to_numpy()[rows], ns)
    length = np.stack([data, ns - data], axis=1).ravel()
    code = np.tile([_CODE[DATA.key], _CODE[HOST.key]], len(rows))
    return length, code, np.full(2 * len(rows), NONE), np.repeat(rows, 2)


def _of_host(nodes: Nodes, timing: Timing, edge: int, segment: int, since_ns: int) -> Columns:
    """Into a segment: the work of the one before and the blocking call, or the return after an operation's end."""
    segments, kind = nodes.piece.segments, int(nodes.kind[edge])
    if kind == ANCHOR:
        return _columns([(int(segments["begin_ns"].iloc[segment]) - since_ns, BEFORE.key, NONE, NONE)])
    returns, lag = nodes.returns
    kept = int(lag[segment]) if timing.has_lag and timing.is_blocking[segment] else 0
    unknown = _columns([(kept, UNKNOWN.key, NONE, NONE)])
    if kind == BLOCKS:
        block = edge - int(np.searchsorted(nodes.kind, BLOCKS))
        return _joined(_columns([(int(returns[block]), SYNC.key, NONE, NONE)]), unknown)
    own_ns = int(segments["own_ns"].iloc[segment]) if timing.is_called[segment] else 0
    call = _columns([(own_ns, SYNC.key, NONE, NONE)])
    return _joined(_work(nodes, timing, int(nodes.cut_of_segment[segment])), call, unknown)


def _tiling(parts: Iterator[Stretch], start_ns: int) -> dict[str, Any]:
    """Columns of the stretches, which begin at a time and follow each other."""
    length, code, op, host, rank = _under_each_other(parts)
    ends = start_ns + np.cumsum(length)
    # What overlaps its successor (kernels of one stream may) is on the path until that begins.
    ends = np.minimum.accumulate(ends[::-1])[::-1]
    category = pd.Categorical.from_codes(code, categories=list(CATEGORIES))
    starts = np.append(start_ns, ends[:-1])[: len(ends)]
    return {"start_ns": starts, "end_ns": ends, "rank": rank, "category": category, "op": op, "host": host}


_EDGES_A_BLOCK = 1 << 14
"""Whose stretches are put together at once: an edge has few, and what describes an array takes more than these do."""


def _under_each_other(parts: Iterator[Stretch]) -> tuple[np.ndarray, ...]:
    """Lengths, categories, rows of operations and of the host, and ranks."""
    blocks = [(*_columns([]), np.empty(0, dtype=np.int64))]
    while some := [*islice(parts, _EDGES_A_BLOCK)]:
        ranks = np.repeat(np.array([part[0] for part in some]), [len(part[1]) for part in some])
        blocks.append((*_joined(*(part[1:] for part in some)), ranks))
    return tuple(np.concatenate([block[place] for block in blocks]) for place in range(5))


def _clipped(columns: dict[str, Any], begin_ns: int, end_ns: int, origin_ns: int) -> pd.DataFrame:
    """The part of the stretches that lies in the window; their times, as those of its ends, count from `origin_ns`."""
    starts, ends = np.maximum(columns["start_ns"], begin_ns), np.minimum(columns["end_ns"], end_ns)
    columns |= {"start_ns": starts + origin_ns, "end_ns": ends + origin_ns}
    return rearranged(columns, np.flatnonzero(ends > starts))
