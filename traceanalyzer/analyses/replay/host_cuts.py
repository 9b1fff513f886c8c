"""Where a chain of the host is cut: the calls that block it and its CPU's collectives, and what each waits for."""

from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.host import host_names, idle_causes
from traceanalyzer.analyses.host.full_queue import into_full_queue
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, table_of

CALL_NS = 10_000
"""What a blocking call takes when the GPU has long been done."""

LATE_NS = 20_000
"""A blocking call returns within this of what it waits for; the rest is not explained."""

_EVERY, _EVENT, _STREAM, _OWN, _QUEUE, HANDS_OVER, PEERS = range(7)
"""What the host waits for where it is cut: all streams, an event, one stream, its own copy, room in the queue; nothing,
for it hands a collective to another thread of the CPU; such a collective."""

_SYNCS = {host_names.FOR_ALL: _EVERY, host_names.FOR_EVENT: _EVENT, host_names.FOR_STREAM: _STREAM}


class Cuts(Struct, frozen=True):
    """In order of time, none inside another: what stands there, since when, and until when.

    Attributes:
        call: row of the blocking call in `api_calls`, or -1.
        what: what is waited for.
        starts: when the host's work ends.
        ends: when it goes on.
        exchange: row of the CPU's collective, or -1.
    """

    call: np.ndarray
    what: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    exchange: np.ndarray

    def take(self, rows: np.ndarray) -> "Cuts":
        """These rows."""
        return Cuts(self.call[rows], self.what[rows], self.starts[rows], self.ends[rows], self.exchange[rows])


def cuts_of(trace: RankTrace, mine: np.ndarray, exchanges: pd.DataFrame) -> Cuts:
    """The chain's calls that block it, and begins and ends of its CPU's collectives, in order, none inside another."""
    calls = trace.api_calls
    rows, what = _blocking(trace, mine)
    called, since, done = (array_of(exchanges, name) for name in ("start_ns", "since_ns", "end_ns"))
    number = np.arange(len(exchanges))
    both = np.full(2 * len(number), NONE)
    cuts = Cuts(
        call=np.append(rows, both),
        what=np.concatenate([what, np.full(len(number), HANDS_OVER), np.full(len(number), PEERS)]),
        starts=np.concatenate([array_of(calls, "start_ns")[rows], called, since]),
        ends=np.concatenate([array_of(calls, "end_ns")[rows], called, done]),
        exchange=np.concatenate([np.full(len(rows), NONE), number, number]),
    )
    cuts = cuts.take(np.flatnonzero((cuts.what != PEERS) | (cuts.ends > cuts.starts)))
    if len(number):
        cuts = cuts.take(np.lexsort((cuts.ends, cuts.starts)))
    reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(cuts.ends)[:-1])[: len(cuts.ends)]
    cuts = cuts.take(np.flatnonzero(cuts.starts >= reach))
    begun = cuts.exchange[cuts.what == HANDS_OVER]
    return cuts.take(np.flatnonzero((cuts.what != PEERS) | np.isin(cuts.exchange, begun)))


def _blocking(trace: RankTrace, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the chain's calls that block it, in order of start, and what each one waits for."""
    calls = trace.api_calls
    rows = idle_causes.blocking(trace)[0]
    what = np.full(len(calls), NONE)
    what[rows] = _OWN
    for text, code in _SYNCS.items():
        what[host_names.matches(calls["name"], partial(_waits_for, text))] = code
    what[into_full_queue(trace) & (what == NONE)] = _QUEUE
    rows = np.flatnonzero((what != NONE) & mine)
    return rows, what[rows]


def _waits_for(what: str, name: str) -> bool:
    return host_names.waits_for(name) == what


def blocks_of(trace: RankTrace, ops: pd.DataFrame, cuts: Cuts) -> pd.DataFrame:
    """For each blocking call the operations whose end lets it return, as far as the recorded times agree."""
    calls = trace.api_calls
    what, starts, ends = cuts.what, cuts.starts, cuts.ends
    call, stream = array_of(ops, "api_call"), array_of(ops, "stream")
    launched = np.where(call == NONE, np.iinfo(np.int64).min, np.append(array_of(calls, "start_ns"), 0)[call])
    op_ends = array_of(ops, "start_ns") + array_of(ops, "duration_ns")
    last = _last_of_streams(stream, launched, starts)
    # An event may have been recorded long before the call: what stands after it in its stream ends later.
    is_event = (what == _EVENT)[:, None]
    last = np.where(is_event, np.minimum(last, _last_of_streams(stream, op_ends, ends + 1)), last)
    last_ends = np.where(last == NONE, np.iinfo(np.int64).min, np.append(op_ends, 0)[last])
    fits = (last != NONE) & (last_ends <= ends[:, None])
    # One stream or event: the latest launched when the call returned at once, else what ended last.
    was_blocked = ends - starts > LATE_NS
    last_launch = np.where(fits, np.append(launched, 0)[last], np.iinfo(np.int64).min)
    score = np.where(was_blocked[:, None], np.where(fits, last_ends, np.iinfo(np.int64).min), last_launch)
    one = np.zeros_like(fits)
    if fits.shape[1]:
        one[np.arange(len(starts)), score.argmax(axis=1)] = True
    kept = fits & np.where((what == _EVERY)[:, None], True, one) & (~is_event | was_blocked[:, None])
    kept &= np.isin(what, (_EVERY, _EVENT, _STREAM))[:, None]
    cut, column = np.nonzero(kept)
    copies, queued = _own_copies(call, cuts.call, what, op_ends, ends), _of_queue(op_ends, starts, ends, what)
    pairs = ((last[cut, column], cut), copies, queued)
    op, cut = (np.concatenate(each) for each in zip(*pairs, strict=True))
    is_own = np.repeat([False, True, False], [len(own) for own, _ in pairs])
    return table_of({"op": op, "segment": cut + 1, "is_own": is_own})


def _last_of_streams(stream: np.ndarray, moments: np.ndarray, times: np.ndarray) -> np.ndarray:
    """For each time and stream the last operation whose moment (launch, end) came before, or -1."""
    bounds = np.append(np.flatnonzero(np.append(True, stream[1:] != stream[:-1])[: len(stream)]), len(stream))
    last = np.full((len(times), len(bounds) - 1), NONE, dtype=np.int64)
    for column, (begin, end) in enumerate(pairwise(bounds)):
        place = np.searchsorted(np.maximum.accumulate(moments[begin:end]), times)
        last[:, column] = np.where(place > 0, begin + place - 1, NONE)
    return last


def _own_copies(
    call: np.ndarray, cuts: np.ndarray, what: np.ndarray, op_ends: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Blocking copies, and the cuts of their calls: such a call waits for the operation that it launched."""
    place = np.full(int(cuts.max()) + 2 if len(cuts) else 1, NONE)
    place[cuts[what == _OWN]] = np.flatnonzero(what == _OWN)
    found = np.where(call < len(place) - 1, place[np.minimum(call, len(place) - 1)], NONE)
    op = np.flatnonzero((found != NONE) & (call != NONE))
    op = op[op_ends[op] <= ends[found[op]]]
    return op, found[op]


def _of_queue(
    op_ends: np.ndarray, starts: np.ndarray, ends: np.ndarray, what: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Launches into a full queue, by their cuts: the operation that ended last before the call returned made room."""
    row = np.flatnonzero(what == _QUEUE)
    order = np.argsort(op_ends, kind="stable")
    place = np.searchsorted(op_ends[order], ends[row], side="right") - 1
    held = (place >= 0) & (np.append(op_ends[order], 0)[place] > starts[row])
    return order[place[held]], row[held]
