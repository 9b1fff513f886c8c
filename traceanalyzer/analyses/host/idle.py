"""Why each GPU is idle: every gap cut into causes, and the totals per window and step."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import INNERMOST_RANGE, RANK, Result
from traceanalyzer.analyses.grouping import largest_before, memoized_by_trace, sums_at
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import (
    activity_of,
    launching_threads,
    longest,
    names_around_launches,
    thread_of_launch,
    user_ranges,
)
from traceanalyzer.analyses.intervals import EMPTY, Intervals, busy, of_rows, overlapping
from traceanalyzer.meaning.columns import Column, Written, declared
from traceanalyzer.meaning.vocabulary import (
    BETWEEN_KERNELS,
    GAP_CAUSES,
    HOST,
    IDLE_CAUSES,
    LAUNCH,
    LAUNCH_NS,
    NAMED_CAUSES,
    SHORT_NS,
    SYNC,
    UNKNOWN,
    Cause,
)
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    as_objects,
    lengths_of,
    nowhere,
    nullable,
    rows_named,
    rows_named_so,
    rows_where,
    table_of,
    whole_of,
)
from traceanalyzer.selection import step_at

# Calls that take far longer when they are first made than ever again: modules load, libraries begin.


_CHANCE = NormalDist().cdf(-3.0)
"""How often the first call is as long by chance."""


@memoized_by_trace
def one_off_calls(trace: RankTrace) -> np.ndarray:
    """Rows in `api_calls`, in order of start, of first calls that take longer than chance, with an idle GPU.

    A call is its function's first with that kernel (or copy); its peers are the function's calls that are no first
    ones. Were it one of n such calls, of exponential lengths, it would be x or longer with a probability of
    (1 + x / their sum)^-n: of all that are tried, one in a thousand may be so by chance. Time in which the GPU works
    does not count: the call may wait for that. Calls that load modules are always such.
    """
    calls, ops = trace.api_calls, trace.gpu_ops
    if calls.empty or ops.empty:
        return np.empty(0, dtype=np.int64)
    lengths, launch, names = lengths_of(calls), array_of(ops, "launch"), calls["name"].array.codes.astype(np.int64)
    kernel = nowhere(len(calls))
    kernel[launch[launch != NONE]] = ops["name"].array.codes[launch != NONE]
    is_first = ~pd.Series(names * (kernel.max() + 2) + kernel).duplicated().to_numpy()
    peers, peers_ns = (np.bincount(names, own)[names] for own in (~is_first, np.where(is_first, 0, lengths)))
    tried = np.flatnonzero(is_first & (peers > 0))
    starts, ends = arrays_of(calls, "start_ns", "end_ns", rows=tried)
    idle_ns = lengths[tried] - busy(trace).covered_ns(starts, ends)
    chance = (1 + idle_ns / np.maximum(peers_ns[tried], 1)) ** -peers[tried]
    is_one_off = rows_named_so(calls, host_names.is_module_load)
    is_one_off[tried[chance * len(tried) < _CHANCE]] = True
    return np.flatnonzero(is_one_off)


# Every stretch in which a rank's GPU runs nothing, cut into the causes of DEFINITIONS, exactly.


CAUSES = tuple(cause.column for cause in GAP_CAUSES)

PARTS = tuple(cause.column for cause in IDLE_CAUSES)
"""Columns that add up to idle time."""


class Gaps(Struct, frozen=True):
    """Stretches without any GPU operation, in order, as parallel arrays.

    Attributes:
        starts: end of the operation before; a step's start before the first one.
        ends: start of the operation after; a step's end after the last one.
        ended_by: that operation's row in `gpu_ops`; after the last one that one's.
        launch: row in `api_calls` of the call that launched it, or -1.
        launched: when that call had returned, held inside [start, end]; the start when there is no launch, the end
            when no operation follows.
    """

    starts: np.ndarray
    ends: np.ndarray
    ended_by: np.ndarray
    launch: np.ndarray
    launched: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> np.ndarray:
        """End minus start."""
        return self.ends - self.starts

    def take(self, rows: np.ndarray | slice) -> "Gaps":
        """The gaps at these positions (or under this mask)."""
        return Gaps(self.starts[rows], self.ends[rows], self.ended_by[rows], self.launch[rows], self.launched[rows])


@memoized_by_trace
def find(trace: RankTrace) -> Gaps:
    """All gaps of the capture and of its steps' windows; where two operations end one together, by the shorter.

    Operations without duration end none, except at the capture's end.
    """
    ops = trace.gpu_ops
    starts, ends = array_of(ops, "start_ns"), array_of(ops, "end_ns")
    if ops.empty:
        return Gaps(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
    steps = rows_where(trace.steps, trace.steps["start_ns"].notna())
    since, until = (whole_of(steps, name) for name in ("start_ns", "end_ns"))
    free = Intervals.of([np.append(since, starts).min()], [np.append(until, ends).max()]) - busy(trace)
    lasting = np.append(np.flatnonzero(ends > starts), len(ops) - 1)
    ended_by = lasting[np.searchsorted(starts[lasting[:-1]], free.ends)]
    launch = array_of(ops, "launch")[ended_by]
    returned = np.append(array_of(trace.api_calls, "end_ns"), NONE)[launch]
    returned = np.where(starts[ended_by] < free.ends, free.ends, returned)
    launched = np.clip(np.where(launch == NONE, free.starts, returned), free.starts, free.ends)
    return Gaps(free.starts, free.ends, ended_by, launch, launched)


def parts(
    trace: RankTrace,
    gaps: Gaps,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    *,
    short_ns: int = SHORT_NS,
    launch_ns: int = LAUNCH_NS,
) -> pd.DataFrame:
    """For each gap its part inside [start_ns, end_ns) by cause: columns `PARTS`, that add up to that part.

    Before the launch (until the call that launched the operation that ends the gap had returned) the launching
    thread decides, in this order: `sync` inside a synchronising call, or a first one that takes far longer than later
    ones (`one_off_calls`), `NAMED_CAUSES` inside events of their names, else `host`. For
    the time in which that thread records neither call nor operator (autograd's thread waits for the main one) the
    other threads that launch work on this GPU, and the thread of JAX's program, decide in the same order. After it,
    the first `launch_ns` are `launch` and the rest is `unknown`; without a recorded launch all of it is `unknown`. A
    gap shorter than `short_ns` is `between kernels`, whatever caused it.
    """
    starts, ends = np.clip(gaps.starts, start_ns, end_ns), np.clip(gaps.ends, start_ns, end_ns)
    launched = np.clip(gaps.launched, starts, ends)
    latest = np.where(gaps.launch == NONE, launched, np.clip(gaps.launched + launch_ns, launched, ends))
    waited = {cause.column: np.zeros(len(gaps), dtype=np.int64) for cause in (SYNC, *NAMED_CAUSES)}
    threads = thread_of_launch(trace, gaps.launch)
    for thread, waits in _decided(trace).items():
        own = threads == thread
        for column, held in zip(waited.values(), waits, strict=True):
            column[own] = held.covered_ns(starts[own], launched[own])
    columns = {
        **waited,
        HOST.column: launched - starts - sum(waited.values()),
        LAUNCH.column: latest - launched,
        UNKNOWN.column: ends - latest,
    }
    is_short = gaps.lengths < short_ns
    columns = {name: np.where(is_short, 0, column) for name, column in columns.items()}
    columns[BETWEEN_KERNELS.column] = np.where(is_short, ends - starts, 0)
    assert (sum(columns.values()) == ends - starts).all(), "the causes must add up to the gap"
    return table_of(columns)


@memoized_by_trace
def program_thread(trace: RankTrace) -> int | None:
    """Of JAX, whose runtime launches on threads of its own, the thread that runs the program's steps; else `None`."""
    if trace.meta.format != "xplane":
        return None
    is_step = trace.ranges["name"].isin(trace.steps["name"].astype("object").unique())
    threads = trace.ranges.loc[is_step, "thread"].mode()
    return int(threads.iloc[0]) if len(threads) else None


@memoized_by_trace
def blocking(trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
    """Calls that block the host until the GPU is done: their rows in `api_calls`, and since when each one blocks.

    They are the synchronising calls, and copies that return only when done: those without `Async`, and those
    that touch pageable memory. A copy call blocks from its copy's start: before, it is launching it; where the
    copy's stream still has work when the call begins, the call waits for that first, and blocks from its own start.
    """
    calls, ops = trace.api_calls, trace.gpu_ops
    since, launch = array_of(calls, "start_ns").copy(), array_of(ops, "launch")
    is_blocking = rows_named_so(calls, host_names.is_sync)
    is_pageable = rows_named(ops, "source_memory", "pageable") | rows_named(ops, "target_memory", "pageable")
    is_plain = np.append(rows_named_so(calls, host_names.is_plain_copy), False)[launch]
    waits = rows_named(ops, "activity", "memcpy") & (launch != NONE) & (is_pageable | is_plain)
    if waits.any():
        launch, op_starts = launch[waits], array_of(ops, "start_ns")[waits]
        called, returned = since[launch], array_of(calls, "end_ns")[launch]
        busy_until = largest_before(array_of(ops, "end_ns"), array_of(ops, "stream"))[waits]  # by those before each
        blocks_ns = np.where(busy_until > called, called, op_starts)
        # A copy that begins when its call has returned held nobody up.
        since[launch] = np.where(op_starts < returned, blocks_ns, returned)
        is_blocking[launch] = True
    rows = np.flatnonzero(is_blocking)
    return rows, since[rows]


Waits = tuple[Intervals, ...]
"""Time in synchronising calls, or in first ones that take far longer than later ones; and by each of `NAMED_CAUSES`."""


@memoized_by_trace
def _decided(trace: RankTrace) -> dict[int, Waits]:
    """These as each launching thread sees them, without overlap; the others speak where it records nothing."""
    own, decided = _waits(trace), dict[int, Waits]()
    for thread, waits in own.items():
        others = [each for other, each in own.items() if other != thread]
        recorded = [of_rows(events, array_of(events, "thread") == thread)
                    for events in (trace.api_calls, trace.host_ops) if others]  # fmt: skip
        recorded_ns = Intervals.of_all([*waits[1:], *recorded])
        found, taken = [], EMPTY
        for kind, own_ns in enumerate(waits):
            held = Intervals.of_all([own_ns, *(each[kind] - recorded_ns for each in others)])
            found.append(held - taken)
            taken |= held
        decided[thread] = tuple(found)
    return decided


def _waits(trace: RankTrace) -> dict[int, Waits]:
    """What threads that launch work on the GPU, and that of JAX's program, record of them."""
    rows, since = blocking(trace)
    once = np.setdiff1d(one_off_calls(trace), rows)
    rows, since = np.append(rows, once), np.append(since, array_of(trace.api_calls, "start_ns")[once])
    until, caller = arrays_of(trace.api_calls, "end_ns", "thread", rows=rows)
    program, waits = program_thread(trace), dict[int, Waits]()
    for thread in {*launching_threads(trace).tolist(), *(() if program is None else (program,))}:
        blocked = Intervals.of(since[caller == thread], until[caller == thread])
        waits[thread] = blocked, *(during(trace, cause, thread) for cause in NAMED_CAUSES)
    return waits


def during(trace: RankTrace, cause: Cause, thread: int | None = None) -> Intervals:
    """When a thread, or any thread, of the host is in events whose names say that a GPU is idle for this cause."""
    found = EMPTY
    for events in (trace.ranges, trace.host_ops, trace.api_calls):
        is_named = rows_named_so(events, lambda name: host_names.cause_of(name) is cause)
        found |= of_rows(events, is_named & (thread is None or array_of(events, "thread") == thread))
    return found


class Windows(Struct, frozen=True):
    """A rank's whole window, its step -1, and the GPU window of each step that has one.

    `row` is the window of each stretch [start, end): the whole one may be of several.
    """

    step: np.ndarray
    length_ns: np.ndarray
    row: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace, steps: pd.DataFrame) -> "Windows":
        """Of the rank's window and these steps."""
        names = ["step", "start_ns", "window_ns"]
        held = steps[steps["start_ns"].notna()] if len(steps) else pd.DataFrame(columns=names, dtype="Int64")
        step, starts, lengths = (whole_of(held, name) for name in names)
        whole = trace.window
        return cls(
            np.append(NONE, step),
            np.append(whole.length_ns, lengths),
            np.append(np.zeros(len(whole.starts), dtype=np.int64), np.arange(1, 1 + len(step))),
            np.append(whole.starts, starts),
            np.append(whole.ends, starts + lengths),
        )

    def holding(self, pieces: Intervals) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of each piece's part inside each window: the window, the piece, and when the part starts and ends."""
        window, piece = overlapping(self.starts, self.ends, pieces)
        since = np.maximum(pieces.starts[piece], self.starts[window])
        return self.row[window], piece, since, np.minimum(pieces.ends[piece], self.ends[window])


# Why each rank's GPU is idle, in the whole window and in each step: causes that add up to idle exactly.


class Idle(Result):
    """One row for each rank's window (`step` absent) and for each step's GPU window; the parts add up to idle."""

    title = "Why the GPU is idle"
    keys = ("rank", "step")
    derived = {"idle_pct": "idle_ns / window_ns"}
    columns = declared(
        rank=RANK,
        step="Step; absent for the whole window.",
        window_ns="Length of the window.",
        idle_ns="Time in which nothing runs on the GPU.",
        **{cause.column: Column.time(cause.definition) for cause in IDLE_CAUSES},
        gaps=Column.count("Gaps of 5 µs and more that begin in the window.", is_compared=False),
        idle_pct="100 · idle / window.",
    )


def idle_per_rank(
    trace: RankTrace, steps: pd.DataFrame, idle_short_ns: int = SHORT_NS, idle_launch_ns: int = LAUNCH_NS
) -> pd.DataFrame:
    """The gaps of the window and of each step's, clipped to it and cut by cause."""
    windows = Windows.of(trace, steps)
    gaps = find(trace)
    own, gap, since, until = windows.holding(Intervals(gaps.starts, gaps.ends))
    pieces, count = gaps.take(gap), len(windows.step)
    causes = parts(trace, pieces, since, until, short_ns=idle_short_ns, launch_ns=idle_launch_ns)
    sums = {name: sums_at(own, array_of(causes, name), count) for name in PARTS}
    sums["gaps"] = np.bincount(own[(pieces.lengths >= idle_short_ns) & (pieces.starts == since)], minlength=count)
    facts = {
        "step": nullable(windows.step, windows.step == NONE),
        "window_ns": windows.length_ns,
        "idle_ns": np.sum([sums[name] for name in PARTS], axis=0),
    }
    return table_of(sums | facts)


# Each gap of the GPU: how long, by which causes, and what the host was doing in it.


_KEYS = {cause.column: cause.key for cause in GAP_CAUSES}


class GapTable(Result):
    """One row for each stretch of 5 µs or more in which the rank's GPU runs nothing; its causes add up to it."""

    title = "Gaps"
    is_detail = True
    keys = ("rank", "gap")
    derived = {"length_ns": "end_ns - start_ns"}
    columns = declared(
        rank=RANK,
        gap=Column.ident("Position among the rank's gaps."),
        step="Step whose GPU window it begins in; absent for none.",
        start_ns="End of the operation before it, or where the window begins.",
        end_ns="Start of the operation after it, or where the window ends.",
        length_ns="End − start.",
        cause=f"The cause with the largest part: {', '.join(cause.key for cause in GAP_CAUSES)}.",
        **{cause.column: Column.time(cause.definition) for cause in GAP_CAUSES},
        doing=Column.text(
            "What the launching thread did for longest before the launch: the innermost recorded call, operator "
            "or range; absent when the operation was already launched.",
            written=Written.KERNEL,
        ),
        doing_ns="For how long in the gap.",
        range=INNERMOST_RANGE,
        ended_by=Column.text("The operation that ends the gap; absent after the last one.", written=Written.KERNEL),
    )


def gaps_per_rank(trace: RankTrace, idle_short_ns: int = SHORT_NS, idle_launch_ns: int = LAUNCH_NS) -> pd.DataFrame:
    """The rank's gaps of `idle_short_ns` and more, of chosen steps inside their windows.

    The first one may begin with a step, before the first operation, and the last one end with a step.
    """
    gaps, window = find(trace), trace.window
    stretch = window.touched(gaps.starts, gaps.ends)
    is_held = (gaps.lengths >= idle_short_ns) & ((stretch != NONE) | (window.steps is None))
    gaps = gaps.take(is_held)
    if not len(gaps):
        return pd.DataFrame()
    limits = {"short_ns": idle_short_ns, "launch_ns": idle_launch_ns}
    begin, end = gaps.starts, gaps.ends
    if window.steps is not None:
        begin, end = window.starts[stretch[is_held]], window.ends[stretch[is_held]]
    causes = parts(trace, gaps, begin, end, **limits)
    starts = np.maximum(gaps.starts, begin)
    ops = trace.gpu_ops
    by_cause = {cause: array_of(causes, cause) for cause in CAUSES}
    follows = np.where(array_of(ops, "start_ns")[gaps.ended_by] < gaps.ends, NONE, gaps.ended_by)
    longest_cause = np.stack([*by_cause.values()]).argmax(axis=0)
    return table_of(
        {
            "gap": np.arange(len(gaps)),
            "step": step_of_time(trace, starts),
            "start_ns": starts,
            "end_ns": np.minimum(gaps.ends, end),
            "cause": np.array([_KEYS[cause] for cause in CAUSES], dtype=object)[longest_cause],
            **by_cause,
            **_doing(trace, gaps),
            "range": names_around_launches(user_ranges(trace), trace, gaps.launch),
            # Names stay numbered: as texts those of kernels take as much as all other columns together.
            "ended_by": ops["name"].array.take(follows, allow_fill=True),
        },
    )


def step_of_time(trace: RankTrace, times: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """Number of the step whose GPU window holds each time, NA where none does."""
    held = rows_where(trace.steps, trace.steps["start_ns"].notna())
    row = step_at(whole_of(held, "start_ns"), whole_of(held, "end_ns"), times)
    return nullable(np.append(array_of(held, "step"), NONE)[row], row == NONE)


def _doing(trace: RankTrace, gaps: Gaps) -> dict[str, Any]:
    """What the launching thread did for longest between each gap's start and the launch."""
    doing, lengths = np.full(len(gaps), None, dtype=object), np.zeros(len(gaps), dtype=np.int64)
    threads = np.where(gaps.launched > gaps.starts, thread_of_launch(trace, gaps.launch), NONE)
    for thread in np.unique(threads[threads != NONE]).tolist():
        rows = np.flatnonzero(threads == thread)
        starts, ends = gaps.starts[rows], gaps.launched[rows]
        for held, activity in activity_of(trace, thread, starts, ends):
            doing[rows[held]], lengths[rows[held]] = longest(activity, starts[held], ends[held])
    return {"doing": as_objects(doing), "doing_ns": nullable(lengths, threads == NONE)}
