"""The job's critical path, stretch by stretch and summed up."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.graph import (
    ANCHOR,
    BLOCKS,
    CHAINED,
    FOLLOWS,
    LAUNCHED,
    OWN,
    RELEASED,
    SOURCE,
)
from traceanalyzer.analyses.replay.job import Job, Lengths, Windows
from traceanalyzer.analyses.replay.replay import Engine, Replay
from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.meaning.columns import Adds, Column, declared
from traceanalyzer.meaning.vocabulary import (
    BEFORE,
    BETWEEN_KERNELS,
    COMM,
    COMPUTE,
    COPY,
    DATA,
    HOST,
    KINDS,
    LAUNCH,
    ON_PATH,
    SYNC,
    UNKNOWN,
)
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, rearranged, sorted_by, table_of, without_rows

# The job's critical path: what ran, where, in each moment of the window, of all that could not have been later.


CATEGORIES = tuple(one.key for one in ON_PATH)
"""What a stretch of the path is."""

_CODE = {name: code for code, name in enumerate(CATEGORIES)}


def critical_path(job: Job, windows: Windows, lengths: Lengths) -> pd.DataFrame:
    """Stretches that tile the window, in order of time.

    The window is that of the job's steps, from when the last rank begins the first to when the last has done the
    last; of a capture without steps all of it. Backwards from its end every stretch is what the next one waited for.

    Returns:
        `start_ns`, `end_ns` (common clock), `rank`, `category`, and rows `op` and `host` of the rank's piece, or -1.
    """
    weights = job.weights(lengths)
    times = job.order.latest(weights[:, None])[:, 0]
    begins = times[windows.begin]
    begin_ns = int(begins[windows.step == 0].max() if windows.has_steps else begins.min())
    last = int(windows.ends[times[windows.ends].argmax()])
    edges = list(_walk(job, times, weights, last, begin_ns))
    stretches = _Stretches(job, lengths)
    for edge in reversed(edges):
        stretches.add(edge)
    first = SOURCE if not edges else int(job.source[edges[-1]])
    return _tiling(job, stretches.rows, int(times[first]) if first != SOURCE else 0, begin_ns, int(times[last]))


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
    """What edges of the job's graph consist of, in order of time: length, category, operation, host's stretch, rank.

    In one buffer: of a large trace the path has millions of them.
    """

    def __init__(self, job: Job, lengths: Lengths) -> None:
        self.job, self.lengths, self._rows = job, lengths, array("q")
        self.ranks = list(job.nodes)
        self.bounds = np.append(0, np.cumsum([len(nodes.source) for nodes in job.nodes.values()]))
        self.begins: dict[int, np.ndarray] = {}

    @property
    def rows(self) -> np.ndarray:
        """A row for each stretch."""
        return np.frombuffer(self._rows, dtype=np.int64).reshape(-1, 5)

    def add(self, edge: int) -> None:
        """Add those of an edge; between ranks, into an instance none, and from it the transfer."""
        row = edge - int(self.bounds[-1]) - len(self.job.joins)
        if row >= 0:
            call = int(self.job.waiting[row])
            rank, op = (int(self.job.joins[name].iloc[call]) for name in ("rank", "op"))
            self._row(rank, self.lengths.transfer_ns[call], COMM.kind, op)
        elif edge < self.bounds[-1]:
            place = int(np.searchsorted(self.bounds, edge, side="right")) - 1
            self._add_own(self.ranks[place], edge - int(self.bounds[place]))

    def _row(self, rank: int, length: int, key: str, op: int = NONE) -> None:
        self._rows.extend((int(length), _CODE[key], op, NONE, rank))

    def _block(self, rank: int, parts: Sequence[tuple[np.ndarray, Any]], op: Any, host: Any) -> None:
        """Lengths and codes of their categories: those of the first operation or stretch of the CPU, then the next."""
        columns = np.array([np.broadcast_arrays(*part, op, host, rank) for part in parts], dtype=np.int64)
        self._rows.frombytes(columns.transpose(2, 0, 1).tobytes())

    def _add_own(self, rank: int, edge: int) -> None:
        """Add those of an edge of one rank: its CPU's work, what decided, what that leaves unexplained, operations."""
        nodes, timing, shift = self.job.nodes[rank], self.lengths.timing[rank], self.job.shift_ns(rank)
        known, (returns, late) = nodes.known, nodes.returns
        kind, row = int(nodes.kind[edge]), int(nodes.row[edge])
        at = edge - int(np.searchsorted(nodes.kind, kind))
        if kind == OWN:
            self._add_operations(rank, row, row)
        elif kind == ANCHOR:
            self._row(rank, nodes.column("segments", "begin_ns")[row] - shift, BEFORE.key)
        elif kind in (CHAINED, BLOCKS):
            if kind == CHAINED:
                self._add_work(rank, int(nodes.cut_of_segment[row]))
            called = nodes.column("segments", "own_ns")[row] * timing.is_called[row]
            left = late[row] * (timing.has_lag and timing.is_blocking[row])
            self._row(rank, called if kind == CHAINED else returns[at], SYNC.key)
            self._row(rank, left, UNKNOWN.key)
        else:
            last = int(nodes.last[nodes.run_of_op[row]])
            if kind == LAUNCHED:
                if rank not in self.begins:
                    self.begins[rank] = nodes.in_row_ns(timing)[0]
                own = slice(row, last + 1)
                row += int((timing.host.launched_ns[own] - self.begins[rank][own]).argmax())
                self._add_work(rank, int(nodes.column("ops", "launch")[row]))
                self._row(rank, known.latency_ns[row], LAUNCH.key, row)
            elif kind == RELEASED:
                self._row(rank, known.release_ns[row] - shift, BEFORE.key)
            else:
                decided = known.turnaround_ns[row] if kind == FOLLOWS else known.wait_ns[at]
                self._row(rank, decided, BETWEEN_KERNELS.key, row)
            self._row(rank, known.lag_ns[row] * timing.has_lag, UNKNOWN.key, row)
            if not nodes.is_single[row]:
                self._add_operations(rank, row, last)

    def _add_operations(self, rank: int, first: int, last: int) -> None:
        """Add a run's operations from one on, with what lies between them."""
        nodes, own = self.job.nodes[rank], slice(first, last + 1)
        timing = self.lengths.timing[rank]
        between, lag = nodes.known.turnaround_ns[own].copy(), nodes.known.lag_ns[own] * timing.has_lag
        between[0] = lag[0] = 0
        kind = nodes.piece.ops["kind"].cat
        kinds = np.array([_CODE[name] for name in kind.categories])[kind.codes.to_numpy()[own]]
        duration = timing.duration_ns[own]
        parts = [(between, _CODE[BETWEEN_KERNELS.key]), (lag, _CODE[UNKNOWN.key]), (duration, kinds)]
        self._block(rank, parts, np.arange(first, last + 1), NONE)

    def _add_work(self, rank: int, last: int) -> None:
        """Add the host's stretches of a segment up to one, each cut into the loader's part and the rest."""
        nodes = self.job.nodes[rank]
        segment = nodes.column("host", "segment")
        own = slice(int(np.searchsorted(segment, segment[last])), last + 1)
        ns = self.lengths.timing[rank].host.ns[own]
        data = np.minimum(nodes.column("host", DATA.column)[own], ns)
        parts = [(data, _CODE[DATA.key]), (ns - data, _CODE[HOST.key])]
        self._block(rank, parts, NONE, np.arange(own.start, own.stop))


def _tiling(job: Job, rows: np.ndarray, start_ns: int, begin_ns: int, end_ns: int) -> pd.DataFrame:
    """The stretches, which begin at a time and follow each other, as far as they lie in the window."""
    length, code, op, host, rank = (column.copy() for column in rows.T)
    # What overlaps its successor (kernels of one stream may) is on the path until that begins.
    ends = np.minimum.accumulate((start_ns + np.cumsum(length))[::-1])[::-1]
    starts, ends = np.maximum(np.append(start_ns, ends[:-1])[: len(ends)], begin_ns), np.minimum(ends, end_ns)
    category = pd.Categorical.from_codes(code, categories=list(CATEGORIES))
    columns = {"start_ns": starts + job.origin_ns, "end_ns": ends + job.origin_ns, "rank": rank, "category": category}
    return rearranged({**columns, "op": op, "host": host}, np.flatnonzero(ends > starts))


# The critical path of the recorded job, stretch by stretch and summed up.


_WORK = (*(kind.key for kind in KINDS), HOST.key, DATA.key)
"""Categories that are summed up by name; the others are one row a rank."""


class PathStretches(Result):
    """One row for each stretch of the critical path, in order of time; they tile the window."""

    title = "Critical path, stretch by stretch"
    is_detail = True
    keys = ("start_ns",)
    columns = declared(
        start_ns="Start on the common clock.",
        end_ns="End: the next one's start.",
        rank="Global rank that it runs on.",
        where="`host`, or the stream.",
        category=f"{', '.join(f'{one.key} ({one.definition})' for one in ON_PATH)}.",
        name="The kernel or copy that runs, or that a launch, turnaround or unknown stretch leads to.",
        operator="Operator that launched it, or around the launch that the host's work leads to.",
        phase="Phase of the same.",
        step="Step of the same; absent for none.",
    )


class CriticalPath(Result):
    """One row for each rank, category and name on the critical path, longest first; they add up to the window."""

    title = "Critical path"
    keys = ("rank", "category", "phase", "name")
    columns = declared(
        rank="Global rank that it runs on.",
        category=PathStretches.columns["category"],
        phase="Phase of the work; absent for the rest.",
        name="Operator behind the work, of an operation without one its own name; absent for the rest.",
        stretches="How many of the path's stretches.",
        path_ns="Their length.",
        window_ns="Length of the path: the job's complete steps, of a capture without any all of it.",
        path_pct="100 · path / window.",
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"path_pct": percent(table["path_ns"], table["window_ns"])})


class Bottleneck(Result):
    """One row for each category of the critical path without the profiler, longest first; they add up to it."""

    title = "What bounds a step without the profiler"
    keys = ("category",)
    columns = declared(
        category=PathStretches.columns["category"],
        path_ns="Length of its stretches.",
        step_ns="A mean step so long; of a capture without steps all of it.",
        step_least_ns=Column.time("The same at the most that the profiler's overhead may be.", adds=Adds.DERIVED),
        step_most_ns=Column.time("The same at the least that it may be.", adds=Adds.DERIVED),
        unmatched_ns="Time a rank and step in communication calls whose partners are not known: waits in them stay.",
        is_unprofiled="The profiler's overhead is estimated, and left out.",
        path_pct="Its share of the path.",
        is_hidden="Without the CPUs' work a step would be less than 3% shorter: they only keep up with the GPUs.",
        bound_at_most="What bounds it at the most that the profiler's overhead may be; absent if unknown.",
    )

    @property
    def shares(self) -> dict[str, float]:
        """Percent of the path by what it is bound by: `CPU-bound`, …; the rest is unknown."""
        by_category = self.table.set_index("category")["path_pct"].astype("float64")
        return {bound: float(by_category.reindex(keys).sum()) for bound, keys in _OF_BOUND.items()}

    @property
    def bound(self) -> str | None:
        """What bounds the step; `None` where more of the path is unknown, or the CPUs only keep up."""
        shares, most = self.shares, self.largest
        is_hidden = most == "CPU-bound" and bool(self.table["is_hidden"].any())
        return most if shares[most] > 100 - sum(shares.values()) and not is_hidden else None

    @property
    def largest(self) -> str:
        """What takes most of the path."""
        return max(self.shares, key=self.shares.__getitem__)

    @property
    def bounds(self) -> tuple[str, ...]:
        """What may bound the step: two classes where the profiler's overhead, which is estimated, decides."""
        known = [] if self.bound is None else [self.bound, *self.table["bound_at_most"].dropna()]
        return tuple(dict.fromkeys(known))


_OF_BOUND: Mapping[str, list[str]] = {
    "GPU-bound": [COMPUTE.kind, BETWEEN_KERNELS.key],
    "CPU-bound": [HOST.key, LAUNCH.key, SYNC.key],
    "Input-bound": [DATA.key],
    "Communication-bound": [COMM.kind],
    "Copy-bound": [COPY.kind],
}
"""Categories of the path by the class of bottleneck that they are."""


def bottleneck(_parts: Mapping[int, pd.DataFrame], replay: Replay) -> Bottleneck:
    """The path of the job without what profiling is estimated to take; as recorded where that is not known."""
    return Bottleneck(without_rows(Bottleneck.columns)) if replay.engine is None else bottleneck_after(replay.engine)


def bottleneck_after(engine: Engine, *changes: Change) -> Bottleneck:
    """The same after changes."""
    steps, without_cpu = (
        engine.steps([(*changes, *gone, *cost) for cost in engine.costs]).mean(axis=0)
        for gone in ((), (Change("cpu"),))
    )
    is_hidden = 100 * (steps - without_cpu) < PERCENT * steps
    found = Bottleneck(_by_category(engine, (*changes, *engine.costs[0])).assign(is_hidden=bool(is_hidden[0])))
    at_most = found
    if len(engine.costs) > 1:
        at_most = Bottleneck(_by_category(engine, (*changes, *engine.costs[-1])).assign(is_hidden=bool(is_hidden[-1])))
    table = found.table.assign(
        step_ns=round(float(steps[0])),
        step_least_ns=round(float(steps.min())),
        step_most_ns=round(float(steps.max())),
        unmatched_ns=engine.unmatched_ns,
        is_unprofiled=engine.has_cost_of_recording,
        bound_at_most="GPU-bound" if is_hidden[-1] and at_most.largest == "CPU-bound" else at_most.bound,
    )
    return Bottleneck(sorted_by(table, "path_ns"))


def _by_category(engine: Engine, changes: Sequence[Change]) -> pd.DataFrame:
    """`category`, `path_ns` and `path_pct` of the critical path after changes."""
    path = critical_path(engine.job, engine.windows, engine.lengths(*changes))
    lengths = (path["end_ns"] - path["start_ns"]).groupby(path["category"].astype("str")).sum()
    table = table_of({"category": lengths.index.astype("str"), "path_ns": lengths.to_numpy()})
    return table.assign(path_pct=100.0 * table["path_ns"] / table["path_ns"].sum())


def stretches(_parts: Mapping[int, pd.DataFrame], replay: Replay) -> PathStretches:
    """The path of the job as recorded."""
    if replay.engine is None:
        return PathStretches(without_rows(PathStretches.columns))
    return PathStretches(path_of(replay, replay.engine.job.recorded))


def across(_parts: Mapping[int, pd.DataFrame], path_stretches: PathStretches) -> CriticalPath:
    """Sum up its stretches."""
    return CriticalPath(summed(path_stretches.table))


def path_of(replay: Replay, lengths: Lengths) -> pd.DataFrame:
    """The path of the job with these lengths, with names."""
    assert replay.engine is not None
    job = replay.engine.job
    path = critical_path(job, replay.engine.windows, lengths)
    ranks = np.unique(array_of(path, "rank")).tolist()
    if len(ranks) == 1:  # of a large trace alone the path is long
        return _named(job, ranks[0], path)[list(PathStretches.columns)]
    parts = [_named(job, int(rank), part) for rank, part in path.groupby("rank", sort=False)]
    named = pd.concat(parts).sort_index() if parts else path.reindex(columns=list(PathStretches.columns))
    return named[list(PathStretches.columns)]


def summed(path: pd.DataFrame) -> pd.DataFrame:
    """Rows of `CriticalPath`."""
    keys = list(CriticalPath.keys)
    works = path["category"].isin(_WORK)
    name = path["operator"].fillna(path["name"]).where(works, None)
    table = path.assign(ns=path["end_ns"] - path["start_ns"], name=name, phase=path["phase"].where(works, None))
    groups = table.groupby(keys, dropna=False, observed=True)["ns"]
    found = table_of({"stretches": groups.size(), "path_ns": groups.sum()}).reset_index()
    found["window_ns"] = int(table["ns"].sum())
    return sorted_by(found, "path_ns")


def composition(path: pd.DataFrame) -> dict[str, float]:
    """Percent of a path by category, in the order of `CATEGORIES`, without what has none."""
    ns = (path["end_ns"] - path["start_ns"]).groupby(path["category"]).sum()
    total = int(ns.sum())
    return {name: 100 * int(ns.get(name, 0)) / total for name in CATEGORIES if ns.get(name, 0)}


def _named(job: Job, rank: int, path: pd.DataFrame) -> pd.DataFrame:
    piece = job.nodes[rank].piece
    op, host = array_of(path, "op"), array_of(path, "host")
    stream = np.append(array_of(piece.ops, "stream"), NONE)[op]
    step = _of_either(array_of(piece.ops, "step"), op, array_of(piece.host, "step"), host)
    return path.assign(
        where=_places(stream),
        category=path["category"].astype("str"),
        name=_text(piece.ops["name"], op),
        operator=np.where(op == NONE, _text(piece.host["operator"], host), _text(piece.ops["operator"], op)),
        phase=np.where(op == NONE, _text(piece.host["phase"], host), _text(piece.ops["phase"], op)),
        step=step,
    )


def _places(stream: np.ndarray) -> np.ndarray:
    numbers, place = np.unique(stream, return_inverse=True)
    texts = ["host" if number == NONE else f"stream {number}" for number in numbers.tolist()]
    told: np.ndarray = np.array(texts, dtype=object)[place]
    return told


def _text(values: pd.Series, rows: np.ndarray) -> np.ndarray:
    names: Any = values.array
    texts = np.array([*names.categories.tolist(), None], dtype=object)
    told: np.ndarray = texts[np.append(names.codes, NONE)[rows]]
    return told


def _of_either(of_ops: np.ndarray, op: np.ndarray, of_host: np.ndarray, host: np.ndarray) -> pd.arrays.IntegerArray:
    found = np.where(op == NONE, np.append(of_host, NONE)[host], np.append(of_ops, NONE)[op])
    return pd.arrays.IntegerArray(np.where(found == NONE, 1, found), found == NONE)
