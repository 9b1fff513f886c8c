"""The host of one rank as segments of work between calls that block it, and what each of those waits for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.cpu_collectives import cpu_collectives
from traceanalyzer.analyses.replay.host_cuts import CALL_NS, HANDS_OVER, LATE_NS, PEERS, Cuts, blocks_of, cuts_of
from traceanalyzer.analyses.replay.piece import MEMORY
from traceanalyzer.analyses.replay.recording import recorded_calls, stretches_taken_up
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, of_rows
from traceanalyzer.meaning.vocabulary import DATA
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, columns_of, picked, rows_where, table_of, under_each_other
from traceanalyzer.selection import host_spans, step_at

SHARED_TIME = 0.2
"""Threads that are busy at the same time for more than this share of the less busy one do not take turns."""


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
            if (time & own).total_ns <= SHARED_TIME * own.total_ns:
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
    made_meanwhile = _named(trace, threads, host_names.is_loader_of_workers).covered_ns(since, until)
    was_blocked = np.append(False, cuts.ends - cuts.starts > LATE_NS)
    host = table_of(
        {
            "segment": segment,
            "ns": until - since,
            DATA.column: _named(trace, threads, host_names.is_data).covered_ns(since, until),
            MEMORY: _memory_calls(trace, threads).covered_ns(since, until),
            "recorded": recorded_calls(trace, threads, since, until),
            "takes_up": stretches_taken_up(made_meanwhile, is_first & was_blocked[segment]),
            # A stretch over the end of a step is of the one that holds most of it.
            "step": _steps(trace, since + (until - since) // 2),
            "is_launch": ~is_cut,
        }
    )
    names: Any = column_of(calls, "name")
    segments = table_of(
        {
            "begin_ns": begins,
            "before": np.arange(-1, len(cuts.ends)),
            "own_ns": np.append(0, np.minimum(cuts.ends - cuts.starts, CALL_NS)),
            "step": _steps(trace, begins),
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


def _named(trace: RankTrace, threads: np.ndarray, is_meant: Callable[[str], bool]) -> Intervals:
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


def _steps(trace: RankTrace, times: np.ndarray) -> np.ndarray:
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
            "step": _steps(trace, array_of(exchanges, "start_ns")),
            "begins": begins,
            "segment": segment,
            "start_ns": array_of(exchanges, "start_ns"),
            "end_ns": array_of(exchanges, "end_ns"),
            "instance": NONE,
            "name": array_of(exchanges, "name"),
        }
    )
    return picked(table, begins != NONE)
