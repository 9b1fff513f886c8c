"""The host of one rank as segments of work between calls that block it, and what each of those waits for."""

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from traceanalyzer.analyses.host import host_names, idle_causes
from traceanalyzer.analyses.host.full_queue import into_full_queue
from traceanalyzer.analyses.replay.recording import recorded_calls
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, of_rows
from traceanalyzer.meaning.vocabulary import DATA
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import table_of, under_each_other
from traceanalyzer.selection import step_at

SHARED_TIME = 0.2
"""Threads that are busy at the same time for more than this share of the less busy one do not take turns."""

CALL_NS = 10_000
"""What a blocking call takes when the GPU has long been done."""

LATE_NS = 20_000
"""A blocking call returns within this of what it waits for; the rest is not explained."""

_EVERY, _EVENT, _STREAM, _OWN, _QUEUE = range(5)
"""What a blocking call waits for: all streams, an event, one stream, its own copy, room in the queue."""


@dataclass(frozen=True, slots=True)
class HostChain:
    """`host`, `segments` and `blocks` of a `Piece`, and the row in `host` of each row of `api_calls` that launches."""

    host: pd.DataFrame
    segments: pd.DataFrame
    blocks: pd.DataFrame
    launch_row: np.ndarray


def host_chain(trace: RankTrace, ops: pd.DataFrame) -> HostChain:
    """Chains of the threads that launch work; `ops` are a `Piece`'s, with `api_call`, the row of the launching call.

    Threads that take turns, such as the main one and autograd's, are one chain: what one does after the other waits for
    it. A chain begins with the first thing recorded of its threads, at its recorded time.
    """
    launch_row = np.full(len(trace.api_calls) + 1, NONE, dtype=np.int64)
    parts: list[tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]] = []
    rows = segments = 0
    for threads in _chains(trace):
        chain, calls = _one_chain(trace, ops, threads)
        host, own, blocks = chain
        launch_row[calls[calls != NONE]] = rows + np.flatnonzero(calls != NONE)
        parts.append((
            host.assign(segment=host["segment"] + segments),
            own.assign(before=np.where(own["before"] == NONE, NONE, own["before"] + segments)),
            blocks.assign(segment=blocks["segment"] + segments),
        ))  # fmt: skip
        rows, segments = rows + len(host), segments + len(own)
    empty = _empty()
    host, own, blocks = (under_each_other([part[place] for part in parts] or [empty[place]]) for place in range(3))
    return HostChain(host, own, blocks, launch_row)


def _empty() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    integers = (
        ("segment", "ns", DATA.column, "recorded", "step"),
        ("begin_ns", "before", "own_ns", "step"),
        ("op", "segment"),
    )
    host, segments, blocks = (table_of({name: np.empty(0, dtype=np.int64) for name in names}) for names in integers)
    return host.assign(is_launch=False), segments.assign(call=pd.Series(dtype="str")), blocks.assign(is_own=False)


def _chains(trace: RankTrace) -> list[np.ndarray]:
    """The launching threads, those that take turns together, the busiest first."""
    launch = trace.gpu_ops["launch"].to_numpy()
    # Not numpy's unique: of few distinct values among many pandas finds them ten times faster.
    threads = pd.unique(trace.api_calls["thread"].to_numpy()[launch[launch != NONE]])
    busy = {int(thread): _busy(trace, int(thread)) for thread in threads}
    chains: list[tuple[list[int], Intervals]] = []
    for thread in sorted(busy, key=lambda thread: -busy[thread].total_ns):
        own = busy[thread]
        for place, (members, time) in enumerate(chains):
            if (time & own).total_ns <= SHARED_TIME * own.total_ns:
                chains[place] = ([*members, thread], time | own)
                break
        else:
            chains.append(([thread], own))
    return [np.array(members) for members, _ in chains]


def _busy(trace: RankTrace, thread: int) -> Intervals:
    """Time in which a thread is inside a call or an operator."""
    found = EMPTY
    for frame in (trace.api_calls, trace.host_ops):
        found = found | of_rows(frame, frame["thread"].to_numpy() == thread)
    return found


def _one_chain(
    trace: RankTrace, ops: pd.DataFrame, threads: np.ndarray
) -> tuple[tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame], np.ndarray]:
    """The chain's tables, segments numbered from 0, and for each row of `host` the launch that it ends with, or -1."""
    calls = trace.api_calls
    mine = np.isin(calls["thread"].to_numpy(), threads)
    starts, ends = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    cuts, what = _blocking(trace, mine)
    begin = _begin(trace, threads)
    begins = np.append(begin, ends[cuts])
    is_launch = np.zeros(len(calls) + 1, dtype=bool)
    is_launch[ops["api_call"].to_numpy()] = True
    launches = np.flatnonzero(is_launch[:-1] & mine)
    # A launch of another thread while this one is blocked belongs to the segment before.
    times = np.concatenate([starts[launches], starts[cuts]])
    segment = np.concatenate([np.searchsorted(begins[1:], starts[launches], side="right"), np.arange(len(cuts))])
    is_cut = np.repeat([False, True], [len(launches), len(cuts)])
    order = np.lexsort((is_cut, times, segment))
    times, segment, is_cut = times[order], segment[order], is_cut[order]
    is_first = np.append(True, segment[1:] != segment[:-1])[: len(segment)]
    since = np.where(is_first, begins[segment], np.append(0, times[:-1])[: len(times)])
    host = table_of(
        {
            "segment": segment,
            "ns": np.maximum(times - since, 0),
            DATA.column: _data(trace, threads).covered_ns(since, np.maximum(times, since)),
            "recorded": recorded_calls(trace, threads, since, np.maximum(times, since)),
            # A stretch over the end of a step is of the one that holds most of it.
            "step": _steps(trace, since + np.maximum(times - since, 0) // 2),
            "is_launch": ~is_cut,
        }
    )
    segments = table_of(
        {
            "begin_ns": begins,
            "before": np.arange(-1, len(cuts)),
            "own_ns": np.append(0, np.minimum(ends[cuts] - starts[cuts], CALL_NS)),
            "step": _steps(trace, begins),
            "call": np.append("", calls["name"].array[cuts].astype(object)),
        }
    )
    blocks = _blocks(trace, ops, cuts, what)
    return (host, segments, blocks), np.concatenate([launches, np.full(len(cuts), NONE)])[order]


def _begin(trace: RankTrace, threads: np.ndarray) -> int:
    """When the first thing is recorded of the threads."""
    frames = (trace.api_calls, trace.host_ops)
    starts = [frame["start_ns"].to_numpy()[np.isin(frame["thread"].to_numpy(), threads)] for frame in frames]
    return int(min(own.min() for own in starts if len(own)))


def _data(trace: RankTrace, threads: np.ndarray) -> Intervals:
    found = EMPTY
    for frame in (trace.ranges, trace.host_ops):
        named = host_names.matches(frame["name"], host_names.is_data)
        found = found | of_rows(frame, named & np.isin(frame["thread"].to_numpy(), threads))
    return found


def _steps(trace: RankTrace, times: np.ndarray) -> np.ndarray:
    row = step_at(trace.steps["host_start_ns"].to_numpy(), trace.steps["host_end_ns"].to_numpy(), times)
    steps: np.ndarray = np.append(trace.steps["step"].to_numpy(), NONE)[row]
    return steps


def _blocking(trace: RankTrace, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the chain's calls that block it, in order and not inside each other, and what each one waits for."""
    calls = trace.api_calls
    starts, ends = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    rows = idle_causes.blocking(trace)[0]
    what = np.full(len(calls), NONE)
    what[rows] = _OWN
    for pattern, code in (("Stream", _STREAM), ("Event", _EVENT), ("Device|Ctx|Thread", _EVERY)):
        what[host_names.matches(calls["name"], re.compile(f"(?:{pattern})Synchronize").search)] = code
    what[into_full_queue(trace) & (what == NONE)] = _QUEUE
    rows = np.flatnonzero((what != NONE) & mine)
    reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(ends[rows])[:-1])[: len(rows)]
    rows = rows[starts[rows] >= reach]
    return rows, what[rows]


def _blocks(trace: RankTrace, ops: pd.DataFrame, cuts: np.ndarray, what: np.ndarray) -> pd.DataFrame:
    """For each blocking call the operations whose end lets it return, as far as the recorded times agree."""
    calls = trace.api_calls
    starts, ends = calls["start_ns"].to_numpy()[cuts], calls["end_ns"].to_numpy()[cuts]
    launched = np.where(ops["api_call"] == NONE, np.iinfo(np.int64).min,
                        np.append(calls["start_ns"].to_numpy(), 0)[ops["api_call"]])  # fmt: skip
    op_ends = (ops["start_ns"] + ops["duration_ns"]).to_numpy()
    last = _last_of_streams(ops["stream"].to_numpy(), launched, starts)
    # An event may have been recorded long before the call: what stands after it in its stream ends later.
    is_event = (what == _EVENT)[:, None]
    last = np.where(is_event, np.minimum(last, _last_of_streams(ops["stream"].to_numpy(), op_ends, ends + 1)), last)
    last_ends = np.where(last == NONE, np.iinfo(np.int64).min, np.append(op_ends, 0)[last])
    fits = (last != NONE) & (last_ends <= ends[:, None])
    # One stream or event: the latest launched when the call returned at once, else what ended last.
    was_blocked = ends - starts > LATE_NS
    last_launch = np.where(fits, np.append(launched, 0)[last], np.iinfo(np.int64).min)
    score = np.where(was_blocked[:, None], np.where(fits, last_ends, np.iinfo(np.int64).min), last_launch)
    one = np.zeros_like(fits)
    if fits.shape[1]:
        one[np.arange(len(cuts)), score.argmax(axis=1)] = True
    kept = fits & np.where((what == _EVERY)[:, None], True, one) & (~is_event | was_blocked[:, None])
    kept &= ((what != _OWN) & (what != _QUEUE))[:, None]
    segment, stream = np.nonzero(kept)
    copies = _own_copies(ops, cuts, what, op_ends, ends).assign(is_own=True)
    queued = _of_queue(op_ends, starts, ends, what).assign(is_own=False)
    table = table_of({"op": last[segment, stream], "segment": segment + 1, "is_own": False})
    return under_each_other([table, copies, queued])


def _last_of_streams(stream: np.ndarray, moments: np.ndarray, times: np.ndarray) -> np.ndarray:
    """For each time and stream the last operation whose moment (launch, end) came before, or -1."""
    bounds = np.append(np.flatnonzero(np.append(True, stream[1:] != stream[:-1])[: len(stream)]), len(stream))
    last = np.full((len(times), len(bounds) - 1), NONE, dtype=np.int64)
    for column, (begin, end) in enumerate(pairwise(bounds)):
        place = np.searchsorted(np.maximum.accumulate(moments[begin:end]), times)
        last[:, column] = np.where(place > 0, begin + place - 1, NONE)
    return last


def _own_copies(
    ops: pd.DataFrame, cuts: np.ndarray, what: np.ndarray, op_ends: np.ndarray, ends: np.ndarray
) -> pd.DataFrame:
    """Blocking copies: the call waits for the operation that it launched."""
    place = np.full(int(cuts.max()) + 2 if len(cuts) else 1, NONE)
    place[cuts[what == _OWN]] = np.flatnonzero(what == _OWN)
    call = ops["api_call"].to_numpy()
    found = np.where(call < len(place) - 1, place[np.minimum(call, len(place) - 1)], NONE)
    op = np.flatnonzero((found != NONE) & (call != NONE))
    op = op[op_ends[op] <= ends[found[op]]]
    return table_of({"op": op, "segment": found[op] + 1})


def _of_queue(op_ends: np.ndarray, starts: np.ndarray, ends: np.ndarray, what: np.ndarray) -> pd.DataFrame:
    """Launches into a full queue: what ended last before the call returned had made room."""
    row = np.flatnonzero(what == _QUEUE)
    order = np.argsort(op_ends, kind="stable")
    place = np.searchsorted(op_ends[order], ends[row], side="right") - 1
    held = (place >= 0) & (np.append(op_ends[order], 0)[place] > starts[row])
    return table_of({"op": order[place[held]], "segment": row[held] + 1})
