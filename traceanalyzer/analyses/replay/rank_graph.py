"""One rank's part of the job's graph: operations, CPU chain, waits between streams."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.grouping import Groups, largest_before
from traceanalyzer.analyses.host import host_names, idle
from traceanalyzer.analyses.host.cpu_collectives import cpu_collectives
from traceanalyzer.analyses.host.idle import blocking
from traceanalyzer.analyses.host.launches import into_full_queue
from traceanalyzer.analyses.operators.operator_tree import PASS_NAMES, OperatorTree
from traceanalyzer.analyses.phases.phases import NAMES as PHASES
from traceanalyzer.analyses.replay.changes import recorded_calls, stretches_taken_up
from traceanalyzer.analyses.statistics import PERCENT, SHARE
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, of_rows
from traceanalyzer.meaning.vocabulary import DATA, LAUNCH_NS, SHORT_NS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.spilled import spilled
from traceanalyzer.model.tables import (
    array_of,
    column_of,
    columns_of,
    picked,
    rows_where,
    table_of,
    under_each_other,
    with_columns,
)
from traceanalyzer.selection import before_pauses, host_spans, step_at

# One rank's part of the job's graph: its operations, its host's stretches of work, and what waits for what.


MEMORY = "memory_ns"
"""A column of `Piece.host`."""

SOURCE = 0
"""The node that stands for what happened before the capture: always reached at time 0."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One rank's operations and host, as parallel columns; times are on the rank's own clock.

    Attributes:
        ops: GPU operations, stream by stream, each in order of start: `row` (in `gpu_ops`), `stream`, `start_ns`,
            `duration_ns`, `kind`, `name`, `work` (`same_work`), `operator`, its `autograd` pass and `shapes`, `phase`,
            `step` (number, -1 for none), `call` (position among the rank's communication operations, -1 for none),
            `collective`, its `group_ranks`, `launch` (row in `host`, -1: none), `loop` (of which it is a later turn),
            `is_ring` (a message that goes round between attention kernels).
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
        denied: waits that calls would tell and times contradict, as `waits`.
        blocks: a segment begins when an operation has ended: `op`, `segment`, `is_own` (the copy that the call made).
        meetings: collectives of the CPU that the host takes part in: `step`, `name`, `start_ns`, `end_ns`, `begins`
            (the segment that begins where it does), `segment` (the one that begins when the host has waited for it, -1:
            it did not), `instance` (the same number on all ranks that meet, once pieces are joined).
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
    denied: pd.DataFrame
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
    starts = array_of(ops, "start_ns")
    ends = starts + array_of(ops, "duration_ns")
    first = piece.begins_stream
    previous = np.where(first, NEVER, np.append(0, ends[:-1])[: len(ends)])
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
    total = np.cumsum(ns, axis=0)
    is_first = np.append(True, segment[1:] != segment[:-1])[: len(segment)]
    before = np.where(is_first, total - ns, 0)
    return total - np.maximum.accumulate(before, axis=0)


def _median(values: np.ndarray, default: int) -> int:
    return int(np.median(values)) if len(values) else default


# Where a chain of the host is cut: the calls that block it and its CPU's collectives, and what each waits for.


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
    rows = idle.blocking(trace)[0]
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
    was_blocked = ends - starts > LATENCY_NS
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


# The host of one rank as segments of work between calls that block it, and what each of those waits for.


class HostChain(Struct, frozen=True):
    """Tables of a `Piece` (`host` to `meetings`), and the row in `host` of each row of `api_calls` that launches."""

    host: pd.DataFrame
    segments: pd.DataFrame
    blocks: pd.DataFrame
    meetings: pd.DataFrame
    launch_row: np.ndarray


Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]
"""`host`, `segments`, `blocks` and `meetings`."""


def host_chain(trace: RankTrace, ops: pd.DataFrame) -> HostChain:
    """Chains of the threads that launch work; `ops` are a `Piece`'s, with `api_call`, the row of the launching call.

    Threads that take turns, such as the main one and autograd's, are one chain: what one does after the other waits for
    it. A chain begins with the first thing recorded of its threads, at its recorded time.
    """
    launch_row = np.full(len(trace.api_calls) + 1, NONE, dtype=np.int64)
    parts: list[Tables] = []
    rows = segments = 0
    for threads in _chains(trace):
        chain, calls = _one_chain(trace, ops, threads)
        launch_row[calls[calls != NONE]] = rows + np.flatnonzero(calls != NONE)
        parts.append(_numbered_from(segments, chain) if segments else chain)
        rows, segments = rows + len(chain[0]), segments + len(chain[1])
    host, own, blocks, meetings = map(under_each_other, zip(*parts or [no_hosts()], strict=True))
    return HostChain(host, own, blocks, meetings, launch_row)


def _numbered_from(first: int, chain: Tables) -> Tables:
    """The chain's tables with its segments numbered from `first`."""
    host, own, blocks, meetings = chain
    return (
        host.assign(segment=host["segment"] + first),
        own.assign(before=np.where(own["before"] == NONE, NONE, own["before"] + first)),
        blocks.assign(segment=blocks["segment"] + first),
        meetings.assign(begins=meetings["begins"] + first, segment=meetings["segment"] + first),
    )


def no_hosts() -> Tables:
    """The tables of a capture without a host's side."""
    integers = (
        ("segment", "ns", DATA.column, MEMORY, "recorded", "takes_up", "step"),
        ("begin_ns", "before", "own_ns", "step"),
        ("op", "segment"),
        ("step", "begins", "segment", "start_ns", "end_ns", "instance"),
    )
    host, segments, blocks, meetings = (
        table_of({name: np.empty(0, dtype=np.int64) for name in names}) for names in integers
    )
    text = pd.Series(dtype="str")
    return (
        host.assign(is_launch=False), segments.assign(call=text), blocks.assign(is_own=False),
        meetings.assign(name=text),
    )  # fmt: skip


def _chains(trace: RankTrace) -> list[np.ndarray]:
    """The launching threads, those that take turns together, the busiest first."""
    launch = array_of(trace.gpu_ops, "launch")
    # Not numpy's unique: of few distinct values among many pandas finds them ten times faster.
    threads = pd.unique(array_of(trace.api_calls, "thread")[launch[launch != NONE]])
    busy = {int(thread): _busy(trace, int(thread)) for thread in threads}
    chains: list[tuple[list[int], Intervals]] = []
    for thread in sorted(busy, key=lambda thread: -busy[thread].total_ns):
        own = busy[thread]
        for place, (members, time) in enumerate(chains):
            if (time & own).total_ns <= SHARE * own.total_ns:
                chains[place] = ([*members, thread], time | own)
                break
        else:
            chains.append(([thread], own))
    return [np.array(members) for members, _ in chains]


def _busy(trace: RankTrace, thread: int) -> Intervals:
    """Time in which a thread is inside a call or an operator."""
    tables = [columns_of(frame) for frame in (trace.api_calls, trace.host_ops)]
    rows = [np.flatnonzero(own["thread"] == thread) for own in tables]
    return Intervals.of(*(
        np.concatenate([own[name][held] for own, held in zip(tables, rows, strict=True)])
        for name in ("start_ns", "end_ns")
    ))  # fmt: skip


def _one_chain(trace: RankTrace, ops: pd.DataFrame, threads: np.ndarray) -> tuple[Tables, np.ndarray]:
    """The chain's tables, segments numbered from 0, and for each row of `host` the launch that it ends with, or -1."""
    calls = trace.api_calls
    mine = np.isin(array_of(calls, "thread"), threads)
    starts = array_of(calls, "start_ns")
    exchanges = _exchanges(trace, threads)
    cuts = cuts_of(trace, mine, exchanges)
    begin = _begin(trace, threads)
    begins = np.append(begin, cuts.ends)
    is_launch = np.zeros(len(calls) + 1, dtype=bool)
    is_launch[array_of(ops, "api_call")] = True
    launches = np.flatnonzero(is_launch[:-1] & mine)
    # A launch of another thread while this one is blocked belongs to the segment before.
    times = np.concatenate([starts[launches], cuts.starts])
    segment = np.concatenate([np.searchsorted(begins[1:], starts[launches], side="right"), np.arange(len(cuts.ends))])
    is_cut = np.repeat([False, True], [len(launches), len(cuts.ends)])
    order = np.lexsort((is_cut, times, segment))
    times, segment, is_cut = times[order], segment[order], is_cut[order]
    is_first = np.append(True, segment[1:] != segment[:-1])[: len(segment)]
    since = np.where(is_first, begins[segment], np.append(0, times[:-1])[: len(times)])
    until = np.maximum(times, since)
    made_meanwhile = _host_chain_named(trace, threads, host_names.is_loader_of_workers).covered_ns(since, until)
    was_blocked = np.append(False, cuts.ends - cuts.starts > LATENCY_NS)
    host = table_of(
        {
            "segment": segment,
            "ns": until - since,
            DATA.column: _host_chain_named(trace, threads, host_names.is_data).covered_ns(since, until),
            MEMORY: _memory_calls(trace, threads).covered_ns(since, until),
            "recorded": recorded_calls(trace, threads, since, until),
            "takes_up": stretches_taken_up(made_meanwhile, is_first & was_blocked[segment]),
            # A stretch over the end of a step is of the one that holds most of it.
            "step": _host_chain_steps(trace, since + (until - since) // 2),
            "is_launch": ~is_cut,
        }
    )
    names: Any = column_of(calls, "name")
    segments = table_of(
        {
            "begin_ns": begins,
            "before": np.arange(-1, len(cuts.ends)),
            "own_ns": np.append(0, np.minimum(cuts.ends - cuts.starts, LATENCY_NS)),
            "step": _host_chain_steps(trace, begins),
            "call": np.array([*names.categories, ""], dtype=object)[
                np.append(NONE, np.append(names.codes, NONE)[cuts.call])
            ],
        }
    )
    blocks, meetings = blocks_of(trace, ops, cuts), _meetings(trace, exchanges, cuts)
    return (host, segments, blocks, meetings), np.concatenate([launches, np.full(len(cuts.ends), NONE)])[order]


def _begin(trace: RankTrace, threads: np.ndarray) -> int:
    """When the first thing is recorded of the threads; a range, as of a step, may begin before any call in it."""
    frames = (trace.api_calls, trace.host_ops, trace.ranges)
    starts = [array_of(frame, "start_ns")[np.isin(array_of(frame, "thread"), threads)] for frame in frames]
    return int(min(own.min() for own in starts if len(own)))


def _host_chain_named(trace: RankTrace, threads: np.ndarray, is_meant: Callable[[str], bool]) -> Intervals:
    """When the threads are in ranges or operators of such names."""
    found = EMPTY
    for frame in (trace.ranges, trace.host_ops):
        named = host_names.matches(frame["name"], is_meant)
        if named.any():
            found = found | of_rows(frame, named & np.isin(array_of(frame, "thread"), threads))
    return found


def _memory_calls(trace: RankTrace, threads: np.ndarray) -> Intervals:
    """When the threads are in calls that take GPU memory or give it back."""
    calls = trace.api_calls
    named = host_names.matches(calls["name"], host_names.is_memory_call)
    return of_rows(calls, named & np.isin(array_of(calls, "thread"), threads)) if named.any() else EMPTY


def _host_chain_steps(trace: RankTrace, times: np.ndarray) -> np.ndarray:
    row = step_at(*host_spans(trace.steps), times)
    steps: np.ndarray = np.append(array_of(trace.steps, "step"), NONE)[row]
    return steps


def _exchanges(trace: RankTrace, threads: np.ndarray) -> pd.DataFrame:
    """The CPU's collectives that the chain's threads call."""
    table = cpu_collectives(trace)
    return rows_where(table, np.isin(array_of(table, "thread"), threads))


def _meetings(trace: RankTrace, exchanges: pd.DataFrame, cuts: Cuts) -> pd.DataFrame:
    """`Piece.meetings`: of each of those the segments that begin where it does, and where the host goes on after it."""
    places = np.full((2, len(exchanges)), NONE)
    for row, what in enumerate((HANDS_OVER, PEERS)):
        found = np.flatnonzero(cuts.what == what)
        places[row, cuts.exchange[found]] = found + 1
    begins, segment = places
    table = table_of(
        {
            "step": _host_chain_steps(trace, array_of(exchanges, "start_ns")),
            "begins": begins,
            "segment": segment,
            "start_ns": array_of(exchanges, "start_ns"),
            "end_ns": array_of(exchanges, "end_ns"),
            "instance": NONE,
            "name": array_of(exchanges, "name"),
        }
    )
    return picked(table, begins != NONE)


# Which operation waits for which of another stream: by recorded events, else inferred from calls and times.


_NO_ROWS = np.empty(0, dtype=np.int64)


def event_waits(trace: RankTrace, ops: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`source`, `target` (rows of `ops`), `is_recorded` and `is_touching` (false: not shown by times); and denied ones.

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
    that operation is the reason, and another one's blocks were still in the way. Recorded times jitter: operations of a
    kind that elsewhere begin right behind each other may overlap a little.
    """
    starts = array_of(ops, "start_ns")
    ends = starts + array_of(ops, "duration_ns")
    stream = array_of(ops, "stream")
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
    held = found != NONE
    source, target = found[held], late[held]
    names = ops["name"].cat.codes.to_numpy()
    keys = {f"{of} {end}": own[rows] for of, own in (("stream", stream), ("name", names))
            for end, rows in (("source", source), ("target", target))}  # fmt: skip
    pairs, gap_ns = Groups.of(keys, list(keys)), starts[target] - ends[source]
    held = (pairs.largest(gap_ns) >= 0)[pairs.of_row]
    return _inferred_pairs(source[held], target[held], is_touching=True)


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
        self.launched = np.where(call == NONE, NEVER, np.append(array_of(trace.api_calls, "start_ns"), 0)[call])
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
        is_later, touches = ~pairs.any(later < 0), pairs.sums(((later >= 0) & (later <= LATENCY_NS)).astype(np.int64))
        found[rows] = (is_later & (touches / pairs.counts() >= SHARE))[pairs.of_row]
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


# A rank's piece of the graph, from its events.


def piece_of(
    trace: RankTrace, calls: pd.DataFrame, tree: OperatorTree, phases: np.ndarray, ring: np.ndarray,
    loops: pd.Categorical, work: np.ndarray,
) -> Piece:  # fmt: skip
    """Build it; `calls` are the rank's communication calls with their row in `gpu_ops`, `ring` those of a ring.

    `loops` names for each GPU operation the loop that launched it, `work` are the numbers of `same_work`.
    """
    why = _why_no_host(trace)
    if why:  # nor is there anything to follow from a launch then
        trace = replace(trace, api_calls=trace.api_calls.iloc[:0], gpu_ops=trace.gpu_ops.assign(launch=NONE))
    ops = with_columns(_operations(trace, calls, tree, phases, ring, work), loop=_in_order(loops, trace))
    chain = host_chain(trace, ops)
    waits, denied = event_waits(trace, ops)
    launch = chain.launch_row[array_of(ops, "api_call")]
    host = _build_named(chain.host, ops, launch)
    columns = {name: values for name, values in columns_of(ops).items() if name != "api_call"}
    piece = Piece(table_of({**columns, "launch": launch}), host, chain.segments, waits, chain.blocks,
                  chain.meetings, denied, _build_steps(trace), why_no_host=why)  # fmt: skip
    lag_ns = explained(piece).lag_ns - 3_000
    if len(waits) and waits["is_recorded"].all():
        return piece
    return replace(piece, waits=under_each_other([waits, touching(piece.ops, lag_ns)]))


def _build_steps(trace: RankTrace) -> pd.DataFrame:
    steps = trace.steps
    if not len(steps):
        begins = array_of(trace.gpu_ops, "start_ns")[:1]
        return table_of(
            {"step": np.full(len(begins), NONE), "begin_ns": begins, "is_paused": np.zeros(len(begins), dtype=bool)}
        )
    begins = array_of(steps, "host_start_ns")
    return table_of({"step": array_of(steps, "step"), "begin_ns": begins, "is_paused": before_pauses(steps)})


def _operations(
    trace: RankTrace,
    calls: pd.DataFrame,
    tree: OperatorTree,
    phases: np.ndarray,
    ring: np.ndarray,
    work: np.ndarray,
) -> pd.DataFrame:
    """Operations stream by stream in order of start."""
    ops = columns_of(trace.gpu_ops)
    order = np.argsort(ops["stream"], kind="stable")
    call, collective, group = (np.full(len(order), NONE, dtype=np.int64) for _ in range(3))
    collectives, groups = (pd.Categorical(calls[name] if len(calls) else []) for name in ("collective", "group_ranks"))
    if len(calls):
        call[array_of(calls, "gpu_op")] = array_of(calls, "call")
        collective[array_of(calls, "gpu_op")] = collectives.codes
        group[array_of(calls, "gpu_op")] = groups.codes
    call = call[order]
    owner = np.where(tree.owner >= 0, tree.owner, NONE)[order]
    held = {name: ops[name].take(order) for name in ("stream", "start_ns", "kind", "name", "launch")}
    numbers = np.append(array_of(trace.steps, "step"), NONE)
    ends = _ends_with_their_calls(trace)[order]
    return table_of(
        {
            "row": order,
            "stream": held["stream"],
            "start_ns": held["start_ns"],
            "duration_ns": ends - held["start_ns"],
            "kind": held["kind"],
            "name": held["name"],
            "work": work[order],
            "operator": _of_owners(trace.host_ops["name"], owner),
            "autograd": pd.Categorical.from_codes(np.append(tree.autograd, NONE)[owner], dtype=PASS_NAMES),
            "shapes": _of_owners(trace.host_ops["shapes"], owner),
            "phase": pd.Categorical.from_codes(phases[order], categories=list(PHASES)),
            "step": numbers[trace.op_step[order]],
            "call": call,
            "collective": pd.Categorical.from_codes(collective[order], dtype=collectives.dtype),
            "group_ranks": pd.Categorical.from_codes(group[order], dtype=groups.dtype),
            "is_ring": np.isin(call, ring),
            "api_call": held["launch"],
        }
    )


def _in_order(loops: pd.Categorical, trace: RankTrace) -> pd.Categorical:
    return loops.take(np.argsort(array_of(trace.gpu_ops, "stream"), kind="stable"))


def _of_owners(column: pd.Series, owner: np.ndarray) -> pd.Categorical:
    values: Any = column.array
    return pd.Categorical.from_codes(np.append(values.codes, NONE)[owner], dtype=values.dtype)


def _ends_with_their_calls(trace: RankTrace) -> np.ndarray:
    """Ends of the operations; a blocking copy's is its call's when that returned a moment before.

    A copy from pageable memory returns when its last bytes are staged, some 20 µs before they have arrived: it is the
    copy that blocked the host all the same.
    """
    ops, calls = trace.gpu_ops, trace.api_calls
    ends, launch = array_of(ops, "end_ns"), array_of(ops, "launch")
    is_blocking = np.zeros(len(calls) + 1, dtype=bool)
    is_blocking[blocking(trace)[0]] = True
    returned = np.append(array_of(calls, "end_ns"), 0)[launch]
    is_early = is_blocking[launch] & (launch != NONE) & (returned < ends) & (ends - returned <= LAUNCH_NS)
    made: np.ndarray = np.where(is_early & (returned > array_of(ops, "start_ns")), returned, ends)
    return made


def _build_named(host: pd.DataFrame, ops: pd.DataFrame, launch: np.ndarray) -> pd.DataFrame:
    """Host stretches with the operator, phase and loop of what they launch."""
    held = np.flatnonzero(launch != NONE)
    columns = {}
    for name in ("operator", "phase", "loop"):
        values: Any = column_of(ops, name)
        codes = np.full(len(host), NONE, dtype=np.int64)
        codes[launch[held]] = values.codes[held]
        columns[name] = pd.Categorical.from_codes(codes, dtype=values.dtype)
    return with_columns(host, **columns)


def _why_no_host(trace: RankTrace) -> str:
    if trace.gpu_ops.empty:
        return "no GPU operations"
    if trace.meta.format == "xplane":
        return "waits of JAX's hosts for their GPUs leave no events"
    return "" if (trace.gpu_ops["launch"] != NONE).any() else "the capture has no launches"
