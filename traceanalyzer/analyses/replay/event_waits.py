"""Which operation waits for which of another stream: by recorded events, else inferred from calls and times."""

from bisect import bisect_left
from itertools import pairwise

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.grouping import Groups, largest_before
from traceanalyzer.analyses.host import host_names
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, rows_where, table_of

TOUCHING_NS = 16_000
"""An operation that begins within this of another stream's operation's end, with no other reason, waited for it."""

_PART_OF_LAG = 0.05
"""Or within this part of the time that nothing else explains: it found no room at once."""

_LAST_PART, _LAST_NS = 0.25, 50_000
"""What is left of a kernel when its last blocks make room for another's."""

_TOUCHES = 0.25
"""Of the times that a kernel follows a collective: in so many it begins just when that ends, if it waits for that."""

_NO_ROWS = np.empty(0, dtype=np.int64)

_LONG_AGO = np.iinfo(np.int64).min


def event_waits(trace: RankTrace, ops: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`source`, `target` (rows of `ops`), `is_recorded` and `is_touching` (false: not told by times); and denied ones.

    Recorded events give exact edges. Without them a call to wait for an event is taken to hold what its thread
    launches next; it waits for the stream that was launched on before (a collective for what it reads), else for
    communication launched before (its result). Edges that the recorded times contradict are left out: inferred ones
    are denied, and tell of other ranks, too.
    """
    order = _Streams(trace, ops)
    waits = trace.stream_waits
    recorded = rows_where(waits, (array_of(waits, "record") != NONE) & ~column_of(waits, "source_stream").isna())
    table = _recorded(trace, recorded, order) if len(recorded) else _inferred(trace, order)
    source, target, is_recorded = (array_of(table, name) for name in ("source", "target", "is_recorded"))
    fits = order.ends[source] <= order.starts[target]
    # What a stream waits for is guessed: where times contradict that, it is an earlier one of that stream, or another.
    is_denied = ~(fits | is_recorded)
    return _without_implied(picked(table, fits), order.stream), picked(table, is_denied)


def touching(ops: pd.DataFrame, lag_ns: np.ndarray) -> pd.DataFrame:
    """Operations that begin later than all that is known explains, just when one of another stream ends.

    Of one that begins 36 ms after anything that is known to hold it, and 43 µs after an operation of another stream,
    that operation is the reason, and another one's blocks were still in the way.
    """
    starts = array_of(ops, "start_ns")
    ends = starts + array_of(ops, "duration_ns")
    stream = array_of(ops, "stream")
    late = np.flatnonzero(lag_ns > 0)
    order = np.argsort(ends, kind="stable")
    found = np.full(len(late), NONE, dtype=np.int64)
    place = np.searchsorted(ends[order], starts[late], side="right") - 1
    within_ns = np.maximum(TOUCHING_NS, _PART_OF_LAG * lag_ns[late])
    for back in range(4):  # the last ends before it may be of its own stream
        at = place - back
        source = np.where(at >= 0, order[np.maximum(at, 0)], NONE)
        near = (source != NONE) & (starts[late] - ends[source] <= within_ns) & (stream[source] != stream[late])
        found = np.where((found == NONE) & near, source, found)
    held = (found != NONE) & (ends[found] - starts[found] > 0)
    return _inferred_pairs(found[held], late[held], is_touching=True)


def without_room(ops: pd.DataFrame, lag_ns: np.ndarray) -> pd.DataFrame:
    """Kernels that begin later than all that is known explains, for another stream's that left them no room.

    A kernel whose blocks fill the GPU lets another stream's begin only when the first of its last blocks are done: in
    its last quarter, or within 50 µs of its end. It ran all the while from when nothing held the other any more.
    """
    starts = array_of(ops, "start_ns")
    ends = starts + array_of(ops, "duration_ns")
    stream = array_of(ops, "stream")
    compute = np.flatnonzero(is_any(ops["kind"], "compute"))
    late = np.flatnonzero((lag_ns > 0) & ~is_any(ops["kind"], "copy"))
    if not len(compute) or not len(late):
        return _inferred_pairs(_NO_ROWS, _NO_ROWS)
    order = compute[np.argsort(starts[compute], kind="stable")]
    place = np.searchsorted(starts[order], starts[late], side="right") - 1
    since = starts[late] - lag_ns[late]
    found = np.full(len(late), NONE, dtype=np.int64)
    for back in range(4):  # the last ones before it may be of its own stream
        source = order[np.maximum(place - back, 0)]
        left = ends[source] - starts[late]
        ends_soon = (left > 0) & (left <= np.maximum(_LAST_PART * (ends[source] - starts[source]), _LAST_NS))
        held = ends_soon & (starts[source] <= since + TOUCHING_NS) & (stream[source] != stream[late])
        found = np.where((found == NONE) & held & (place >= back), source, found)
    return _inferred_pairs(found[found != NONE], late[found != NONE])


def _inferred_pairs(source: np.ndarray, target: np.ndarray, *, is_touching: bool = False) -> pd.DataFrame:
    return table_of({"source": source, "target": target, "is_recorded": False, "is_touching": is_touching})


class _Streams:
    """The operations' streams in order of launch."""

    def __init__(self, trace: RankTrace, ops: pd.DataFrame) -> None:
        self.starts = array_of(ops, "start_ns")
        self.ends = self.starts + array_of(ops, "duration_ns")
        self.stream = array_of(ops, "stream")
        self.is_comm = is_any(ops["kind"], "comm")
        self.name = ops["name"].cat.codes.to_numpy()
        call = array_of(ops, "api_call")
        self.call = call
        self.launched = np.where(call == NONE, _LONG_AGO, np.append(array_of(trace.api_calls, "start_ns"), 0)[call])
        bounds = np.append(np.flatnonzero(np.append(True, self.stream[1:] != self.stream[:-1])), len(self.stream))
        if not len(ops):
            bounds = np.zeros(1, dtype=np.int64)
        self.begins = {int(self.stream[begin]): int(begin) for begin in bounds[:-1]}
        self.times = {
            int(self.stream[begin]): np.maximum.accumulate(self.launched[begin:end]).tolist()
            for begin, end in pairwise(bounds)
        }

    def last_before(self, stream: int, time_ns: int) -> int:
        """Row of the last operation launched on the stream before a time; -1 for none."""
        place = bisect_left(self.times.get(stream, []), time_ns)
        return self.begins[stream] + place - 1 if place else NONE

    def first_after(self, stream: int, time_ns: int) -> int:
        """Row of the first operation launched on it since; -1 for none."""
        times = self.times.get(stream, [])
        place = bisect_left(times, time_ns)
        return self.begins[stream] + place if place < len(times) else NONE


def _recorded(trace: RankTrace, waits: pd.DataFrame, order: _Streams) -> pd.DataFrame:
    """Each event stands for the last operation launched on its stream before it, and for what that stream waits for.

    Where no operation has a launch nothing tells what was before or after an event.
    """
    if (order.call == NONE).all():
        return _table([], is_recorded=True)
    recorded = array_of(trace.api_calls, "start_ns")[array_of(waits, "record")].tolist()
    pending: dict[int, list[tuple[int, int]]] = {}
    rows: list[tuple[int, int]] = []
    streams = zip(waits["start_ns"].tolist(), waits["stream"].tolist(), waits["source_stream"].tolist(),
                  recorded, strict=True)  # fmt: skip
    for told, stream, source, event in streams:
        last = order.last_before(source, event)
        since = order.launched[last] if last != NONE else _LONG_AGO
        held = [op for time, op in pending.get(source, ()) if since <= time < event]
        # Streams that wait for each other in turn name the same operations again and again.
        sources = [*dict.fromkeys([last, *held] if last != NONE else held)]
        launched = order.last_before(stream, told)
        fresh = order.launched[launched] if launched != NONE else _LONG_AGO
        kept = [entry for entry in pending.get(stream, ()) if entry[0] >= fresh]
        pending[stream] = [*kept, *((told, op) for op in sources)]
        target = order.first_after(stream, told)
        if target != NONE:
            rows += [(op, target) for op in sources]
    return _table(rows, is_recorded=True)


def _inferred(trace: RankTrace, order: _Streams) -> pd.DataFrame:
    """What calls to wait tell without naming streams."""
    calls = trace.api_calls
    rows = np.flatnonzero(host_names.matches(calls["name"], lambda name: "StreamWaitEvent" in name))
    launches = np.flatnonzero(order.call != NONE)
    if not len(rows) or not len(launches) or len(order.times) < 2:
        return _table([], is_recorded=False)
    by_call = launches[np.argsort(order.call[launches], kind="stable")]
    call_of = order.call[by_call]
    threads = array_of(calls, "thread")
    starts = array_of(calls, "start_ns")
    found: list[tuple[int, int]] = []
    for thread in np.unique(threads[rows]):
        own = by_call[threads[call_of] == thread]
        asked = rows[threads[rows] == thread]
        place = np.searchsorted(order.call[own], asked)
        held = place < len(own)
        targets, told = own[place[held]], starts[asked[held]]
        before = by_call[np.searchsorted(call_of, asked[held]) - 1]
        has_before = np.searchsorted(call_of, asked[held]) > 0
        found += _sources(order, targets, told, np.where(has_before, before, NONE))
    return _table(found, is_recorded=False)


def _sources(order: _Streams, targets: np.ndarray, told: np.ndarray, before: np.ndarray) -> list[tuple[int, int]]:
    comm_streams = {int(stream) for stream in np.unique(order.stream[order.is_comm])}
    is_known = _is_for_last(order, targets, before)
    found: list[tuple[int, int]] = []
    rows = zip(targets.tolist(), told.tolist(), before.tolist(), is_known.tolist(), strict=True)
    for target, time, previous, is_it in rows:
        stream = int(order.stream[target])
        if previous != NONE and order.stream[previous] != stream:
            found.append((previous, target))
        if not (is_it or order.is_comm[target]):
            found += [(order.last_before(other, time), target) for other in comm_streams - {stream}]
    return [(source, target) for source, target in found if source != NONE]


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
    if len(rows):
        later = order.starts[targets[rows]] - order.ends[before[rows]]
        keys = [own[ops[rows]] for ops in (targets, before) for own in (order.name, order.stream)]
        pairs = Groups.of({str(place): key for place, key in enumerate(keys)}, [*map(str, range(len(keys)))])
        is_later, touches = ~pairs.any(later < 0), pairs.sums(((later >= 0) & (later <= TOUCHING_NS)).astype(np.int64))
        found[rows] = (is_later & (touches / pairs.counts() >= _TOUCHES))[pairs.of_row]
    return found


def _table(rows: list[tuple[int, int]], *, is_recorded: bool) -> pd.DataFrame:
    pairs = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return table_of({"source": pairs[:, 0], "target": pairs[:, 1], "is_recorded": is_recorded, "is_touching": False})


def _without_implied(table: pd.DataFrame, stream: np.ndarray) -> pd.DataFrame:
    """Without edges that an earlier operation of the target's stream already waits for."""
    source, target = array_of(table, "source"), array_of(table, "target")
    order = np.lexsort((-source, target, stream[source], stream[target]))
    source, target = source[order], target[order]
    number = pd.factorize(stream)[0].astype(np.int64)
    pair = number[target] * len(stream) + number[source]
    return picked(table, order[source > largest_before(source, pair)])
