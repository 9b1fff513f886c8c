"""Which operation waits for which of another stream: by recorded events, else inferred from calls and times."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups, largest_before, number_in_group, rows_of_each
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.replay.graph import LATENCY_NS, NEVER, Piece
from traceanalyzer.analyses.statistics import PERCENT, SHARE
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, rows_named, rows_where, table_of, under_each_other


def event_waits(trace: RankTrace, ops: pd.DataFrame) -> pd.DataFrame:
    """`Piece.waits` as calls tell them, without those that times contradict.

    Recorded events give exact edges. Without them a call to wait for an event is taken to hold what its thread
    launches next; it waits for the stream that was launched on before (a collective for what it reads), else for
    communication launched before (its result): where times contradict that, it is an earlier one, or another.
    """
    order, waits = _Streams(trace, ops), trace.stream_waits
    recorded = rows_where(waits, (array_of(waits, "record") != NONE) & ~column_of(waits, "source_stream").isna())
    is_recorded = len(recorded) > 0
    pairs = np.array([*(_recorded(trace, recorded, order) if is_recorded else _inferred(trace, order))], dtype=np.int64)
    table = _table(*pairs.reshape(-1, 2).T, is_recorded=is_recorded)
    fits = order.ends[array_of(table, "source")] <= order.starts[array_of(table, "target")]
    return _without_implied(picked(table, fits), order.stream)


def _table(
    source: np.ndarray, target: np.ndarray, *, is_recorded: bool = False, is_touching: bool = False
) -> pd.DataFrame:
    return table_of({"source": source, "target": target, "is_recorded": is_recorded, "is_touching": is_touching})


class _Streams:
    """The operations' streams in order of launch."""

    def __init__(self, trace: RankTrace, ops: pd.DataFrame) -> None:
        self.starts, self.stream, self.call = (array_of(ops, name) for name in ("start_ns", "stream", "api_call"))
        self.ends = self.starts + array_of(ops, "duration_ns")
        self.is_comm = rows_named(ops, "kind", "comm")
        self.name = ops["name"].cat.codes.to_numpy()
        launched = np.append(array_of(trace.api_calls, "start_ns"), 0)[self.call]
        self.launched = np.where(self.call == NONE, NEVER, launched)
        self.launches = {
            int(self.stream[rows[0]]): (int(rows[0]), np.maximum.accumulate(self.launched[rows]).tolist())
            for rows in rows_of_each(self.stream)
        }
        """Of each stream its first operation's row, and when each was launched at the latest."""

    def last_before(self, stream: int, time_ns: int) -> int:
        """Row of the last operation launched on the stream before a time; -1 for none."""
        first, times = self.launches.get(stream, (0, []))
        place = bisect_left(times, time_ns)
        return first + place - 1 if place else NONE

    def first_after(self, stream: int, time_ns: int) -> int:
        """Row of the first operation launched on it since; -1 for none."""
        first, times = self.launches.get(stream, (0, []))
        place = bisect_left(times, time_ns)
        return first + place if place < len(times) else NONE


def _recorded(trace: RankTrace, waits: pd.DataFrame, order: _Streams) -> Iterable[tuple[int, int]]:
    """Each event stands for the last operation launched on its stream before it, and for what that stream waits for.

    Where no operation has a launch nothing tells what was before or after an event.
    """
    if (order.call == NONE).all():
        return
    recorded = array_of(trace.api_calls, "start_ns")[array_of(waits, "record")]
    pending: dict[int, list[tuple[int, int]]] = {}
    for told, stream, source, event in zip(
        *(waits[name].tolist() for name in ("start_ns", "stream", "source_stream")), recorded.tolist(), strict=True
    ):
        last = order.last_before(source, event)
        since = order.launched[last] if last != NONE else NEVER
        held = [op for time, op in pending.get(source, ()) if since <= time < event]
        # Streams that wait for each other in turn name the same operations again and again.
        sources = [*dict.fromkeys([last, *held] if last != NONE else held)]
        launched = order.last_before(stream, told)
        fresh = order.launched[launched] if launched != NONE else NEVER
        kept = [entry for entry in pending.get(stream, ()) if entry[0] >= fresh]
        pending[stream] = [*kept, *((told, op) for op in sources)]
        target = order.first_after(stream, told)
        if target != NONE:
            yield from ((op, target) for op in sources)


def _inferred(trace: RankTrace, order: _Streams) -> Iterable[tuple[int, int]]:
    """What calls to wait tell without naming streams."""
    calls = trace.api_calls
    asked = np.flatnonzero(host_names.matches(calls["name"], lambda name: "StreamWaitEvent" in name))
    launches = np.flatnonzero(order.call != NONE)
    if not len(asked) or not len(launches) or len(order.launches) < 2:
        return
    launches = launches[np.argsort(order.call[launches], kind="stable")]
    place = np.searchsorted(order.call[launches], asked)
    before = np.where(place > 0, launches[place - 1], NONE)
    threads = array_of(calls, "thread")
    for thread in np.unique(threads[asked]):
        own, mine = launches[threads[order.call[launches]] == thread], threads[asked] == thread
        place = np.searchsorted(order.call[own], asked[mine])
        held = place < len(own)
        yield from _sources(order, own[place[held]], array_of(calls, "start_ns")[asked[mine]][held], before[mine][held])


def _sources(order: _Streams, targets: np.ndarray, told: np.ndarray, before: np.ndarray) -> Iterable[tuple[int, int]]:
    comm_streams = {int(stream) for stream in np.unique(order.stream[order.is_comm])}
    is_known = _is_for_last(order, targets, before)
    rows = zip(targets.tolist(), told.tolist(), before.tolist(), is_known.tolist(), strict=True)
    for target, time, previous, is_it in rows:
        stream = int(order.stream[target])
        if previous != NONE and order.stream[previous] != stream:
            yield previous, target
        if not (is_it or order.is_comm[target]):
            results = (order.last_before(other, time) for other in comm_streams - {stream})
            yield from ((source, target) for source in results if source != NONE)


def _is_for_last(order: _Streams, targets: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Whether the one call before a target waits for the collective that was launched last, and for no other.

    So it is where kernels of that name never begin before a collective of that name, launched just before them, has
    ended, and often just when it ends.
    """
    calls = np.bincount(targets, minlength=len(order.starts))[targets]
    is_alone = (calls == 1) & (before != NONE)
    is_alone &= order.is_comm[before] & ~order.is_comm[targets] & (order.stream[before] != order.stream[targets])
    rows = np.flatnonzero(is_alone)
    found = np.zeros(len(targets), dtype=bool)
    later = order.starts[targets[rows]] - order.ends[before[rows]]
    pairs = _pairs_of(order.stream, order.name, before[rows], targets[rows])
    touches = pairs.sums(((later >= 0) & (later <= LATENCY_NS)).astype(np.int64))
    found[rows] = (~pairs.any(later < 0) & (touches >= SHARE * pairs.counts()))[pairs.of_row]
    return found


def _pairs_of(stream: np.ndarray, name: np.ndarray, source: np.ndarray, target: np.ndarray) -> Groups:
    """Pairs of operations by the streams and names of both."""
    keys = [own[rows] for own in (stream, name) for rows in (source, target)]
    return Groups.of({str(place): key for place, key in enumerate(keys)}, [*map(str, range(len(keys)))])


def _without_implied(table: pd.DataFrame, stream: np.ndarray) -> pd.DataFrame:
    """Without edges that an earlier operation of the target's stream already waits for."""
    source, target = array_of(table, "source"), array_of(table, "target")
    order = np.lexsort((-source, target, stream[source], stream[target]))
    source, target = source[order], target[order]
    number = pd.factorize(stream)[0].astype(np.int64)
    pair = number[target] * len(stream) + number[source]
    return picked(table, order[source > largest_before(source, pair)])


def touching(ops: pd.DataFrame, lag_ns: np.ndarray) -> pd.DataFrame:
    """Operations that begin later than all that is known explains, just when one of another stream ends.

    Of one that begins 36 ms after anything that is known to hold it, and 43 µs after an operation of another stream,
    that operation is the reason, and another one's blocks were still in the way. Recorded times jitter: operations of a
    kind that elsewhere begin right behind each other may overlap a little.
    """
    starts, stream = array_of(ops, "start_ns"), array_of(ops, "stream")
    ends = starts + array_of(ops, "duration_ns")
    late = np.flatnonzero(lag_ns > 0)
    order = np.argsort(ends, kind="stable")
    found, after_ns = np.full(len(late), NONE, dtype=np.int64), np.full(len(late), np.iinfo(np.int64).max)
    place = np.searchsorted(ends[order], starts[late], side="right") - 1
    within_ns = np.maximum(LATENCY_NS, PERCENT / 100 * lag_ns[late])
    for at in (place + near for near in (0, -1, -2, -3, 1, 2, 3, 4)):  # the nearest ends may be of its own stream
        source = np.where((at >= 0) & (at < len(order)), order[np.clip(at, 0, len(order) - 1)], NONE)
        gap_ns = starts[late] - ends[source]
        fits = (source != NONE) & (gap_ns <= within_ns) & (gap_ns >= -LATENCY_NS) & (stream[source] != stream[late])
        fits &= (starts[source] < starts[late]) & (ends[source] > starts[source]) & (np.abs(gap_ns) < after_ns)
        found, after_ns = np.where(fits, source, found), np.where(fits, np.abs(gap_ns), after_ns)
    source, target = found[found != NONE], late[found != NONE]
    pairs = _pairs_of(stream, ops["name"].cat.codes.to_numpy(), source, target)
    held = (pairs.largest(starts[target] - ends[source]) >= 0)[pairs.of_row]
    return _table(source[held], target[held], is_touching=True)


# Waits between streams that times show in some steps or on some ranks are there in all: the program is the same.


_PAIR = ["kind_source", "number_source", "kind_target", "number_target"]
"""What two operations of a step are: numbers of stream and name, and place among those of that name in the step."""


def with_waits_alike(pieces: Mapping[int, Piece]) -> dict[int, Piece]:
    """The pieces, each with the waits that times show between the same two operations elsewhere, without refuted ones.

    A wait that no event tells is seen only where nothing else holds the operation for longer: where a collective waits
    for a straggler, that hides that it also waits for its own rank's gradient. Two operations are the same two in
    another step or on another rank when each is of the same stream, name and place among those of its name in the
    step. Where times contradict a wait anywhere, by more than such operations overlap, it is none.
    """
    touching = {rank: rows_where(piece.waits, piece.waits["is_touching"]) for rank, piece in pieces.items()}
    waits = under_each_other([own.assign(rank=rank) for rank, own in touching.items()])
    if waits.empty:
        return dict(pieces)
    ops = _operations_of(pieces, waits)
    seen = _pairs(ops, waits)
    each = seen.groupby(["kind_source", "kind_target"])["over_ns"]
    seen = seen.assign(over_ns=each.transform("max"))[each.transform("size") > 1]
    wanted = seen.drop_duplicates(ignore_index=True).rename_axis("wait").reset_index()
    pairs = _everywhere(ops, wanted)
    over_ns = pairs["end_ns_x"] - pairs["start_ns_y"]
    is_refuted = over_ns > pairs["wait"].map(wanted["over_ns"].clip(lower=0))  # by `wait`, the row; jitter is allowed
    pairs = pairs[~is_refuted.groupby(pairs["wait"]).transform("any")]
    more = dict(list(pairs.groupby("rank")))
    return {rank: _with(piece, more.get(rank)) for rank, piece in pieces.items()}


def _operations_of(pieces: Mapping[int, Piece], waits: pd.DataFrame) -> pd.DataFrame:
    """The operations, by rank and row, of kernels that these waits are of: what they are, where, and when."""
    known: dict[object, int] = {}
    kinds = {rank: _kinds(piece, known) for rank, piece in pieces.items()}
    ends = waits.groupby("rank")[["source", "target"]]
    held = np.unique(np.concatenate([kinds[rank][rows.to_numpy(dtype=np.int64)] for rank, rows in ends]))
    found = []
    for rank, piece in pieces.items():
        rows = np.flatnonzero(np.isin(kinds[rank], held))
        step, start, length = (array_of(piece.ops, name)[rows] for name in ("step", "start_ns", "duration_ns"))
        columns = {"rank": np.full(len(rows), rank), "row": rows, "step": step, "kind": kinds[rank][rows]}
        number = number_in_group(Groups.of(columns, ["step", "kind"]).of_row)
        found.append(table_of({**columns, "number": number, "start_ns": start, "end_ns": start + length}))
    return under_each_other(found)


def _kinds(piece: Piece, known: dict[object, int]) -> np.ndarray:
    """Number of each operation's stream and name over all ranks."""
    columns = {"stream": array_of(piece.ops, "stream"), "name": column_of(piece.ops, "name")}
    each = Groups.of(columns, ["stream", "name"])
    pairs = zip(each.keys["stream"].tolist(), each.keys["name"].tolist(), strict=True)
    kinds: np.ndarray = np.array([known.setdefault(pair, len(known)) for pair in pairs], dtype=np.int64)[each.of_row]
    return kinds


def _pairs(ops: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """What both operations of each wait within a step are, and by how much they overlap (`over_ns`)."""
    own = waits[["rank", "source", "target"]]
    for end in ("source", "target"):
        own = own.merge(ops.add_suffix(f"_{end}"), left_on=["rank", end], right_on=[f"rank_{end}", f"row_{end}"])
    own = own[own["step_source"] == own["step_target"]]
    return own[_PAIR].assign(over_ns=own["end_ns_source"] - own["start_ns_target"])


def _everywhere(ops: pd.DataFrame, wanted: pd.DataFrame) -> pd.DataFrame:
    """Both operations (`row_x`, `row_y`) of each wanted `wait` in each step of each `rank`."""
    source, target = (
        wanted[["wait", f"kind_{end}", f"number_{end}"]].merge(
            ops, left_on=[f"kind_{end}", f"number_{end}"], right_on=["kind", "number"]
        )[["wait", "rank", "step", "row", "start_ns", "end_ns"]]
        for end in ("source", "target")
    )
    return source.merge(target, on=["wait", "rank", "step"])


def _with(piece: Piece, pairs: pd.DataFrame | None) -> Piece:
    """With the waits that it does not have yet."""
    if pairs is None:
        return piece
    more = _table(array_of(pairs, "row_x"), array_of(pairs, "row_y"), is_touching=True)
    both = under_each_other([piece.waits, more])
    is_new = ~both.duplicated(["source", "target"]) | (both.index < len(piece.waits))
    return replace(piece, waits=both[is_new])
