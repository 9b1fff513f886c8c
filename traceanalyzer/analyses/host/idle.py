"""Why each GPU is idle: every gap cut into causes, and the totals per window and step."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import INNERMOST_RANGE, RANK, Result, all_known, percent
from traceanalyzer.analyses.grouping import Groups, largest_before, memoized_by_trace, row_blocks
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import longest, names_around_launches, thread_activity, user_ranges
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, busy, of_rows, overlapping
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.meaning.vocabulary import (
    BETWEEN_KERNELS,
    DATA,
    GAP_CAUSES,
    HOST,
    IDLE_CAUSES,
    LAUNCH,
    LAUNCH_NS,
    SHORT_NS,
    SYNC,
    UNKNOWN,
)
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    as_objects,
    lengths_of,
    rows_named,
    rows_named_so,
    table_of,
    whole_of,
)

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
    starts, ends = array_of(calls, "start_ns"), array_of(calls, "end_ns")
    launch, kernel = array_of(ops, "launch"), np.full(len(calls), NONE, dtype=np.int64)
    kernel[launch[launch != NONE]] = ops["name"].array.codes[launch != NONE]
    names = calls["name"].array.codes.astype(np.int64)
    order = np.argsort(starts, kind="stable")
    is_first = np.zeros(len(calls), dtype=bool)
    is_first[order[Groups.of_numbers((names * (kernel.max() + 2) + kernel + 1)[order]).first]] = True
    lengths = lengths_of(calls)
    peers = np.bincount(names, ~is_first)[names]
    peers_ns = np.bincount(names, np.where(is_first, 0, lengths))[names]
    tried = np.flatnonzero(is_first & (peers > 0))
    idle_ns = lengths[tried] - busy(trace).covered_ns(starts[tried], ends[tried])
    chance = (1 + idle_ns / np.maximum(peers_ns[tried], 1)) ** -peers[tried]
    loads = rows_named_so(calls, host_names.is_module_load)
    loads[tried[chance * len(tried) < _CHANCE]] = True
    return order[loads[order]]


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
    has_window = trace.steps["start_ns"].notna().to_numpy()
    since, until = (whole_of(trace.steps, name)[has_window] for name in ("start_ns", "end_ns"))
    free = Intervals.of([np.append(since, starts).min()], [np.append(until, ends).max()]) - busy(trace)
    gap_starts, gap_ends = free.starts, free.ends
    lasting = np.append(np.flatnonzero(ends > starts), len(ops) - 1)
    ended_by = lasting[np.searchsorted(starts[lasting[:-1]], gap_ends)]
    is_last = starts[ended_by] < gap_ends
    launch = array_of(ops, "launch")[ended_by]
    returned = gap_starts
    if len(trace.api_calls):
        returned = np.where(launch == NONE, gap_starts, array_of(trace.api_calls, "end_ns")[launch])
    returned = np.where(is_last & (launch != NONE), gap_ends, returned)
    return Gaps(gap_starts, gap_ends, ended_by, launch, np.clip(returned, gap_starts, gap_ends))


def parts(
    trace: RankTrace,
    gaps: Gaps,
    start_ns: int | np.ndarray,
    end_ns: int | np.ndarray,
    *,
    short_ns: int = SHORT_NS,
    launch_ns: int = LAUNCH_NS,
) -> pd.DataFrame:
    """For each gap its part inside [start_ns, end_ns) by cause: columns `PARTS`, that add up to that part.

    Before the launch (until the call that launched the operation that ends the gap had returned) the launching
    thread decides, in this order: `sync` inside a synchronising call, or a first one that takes far longer than later
    ones (`one_off_calls`), `data` inside a data range, else `host`. For
    the time in which that thread records neither call nor operator (autograd's thread waits for the main one) the
    other threads that launch work on this GPU, and the thread of JAX's program, decide in the same order. After it,
    the first `launch_ns` are `launch` and the rest is `unknown`; without a recorded launch all of it is `unknown`. A
    gap shorter than `short_ns` is `between kernels`, whatever caused it.
    """
    start_ns, end_ns = (np.broadcast_to(times, len(gaps)) for times in (start_ns, end_ns))
    limits = {"short_ns": short_ns, "launch_ns": launch_ns}
    blocks = [_parts(trace, gaps.take(rows), start_ns[rows], end_ns[rows], **limits) for rows in row_blocks(len(gaps))]
    return table_of({name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]})


def _parts(
    trace: RankTrace, gaps: Gaps, start_ns: np.ndarray, end_ns: np.ndarray, *, short_ns: int, launch_ns: int
) -> dict[str, np.ndarray]:
    starts, ends = np.clip(gaps.starts, start_ns, end_ns), np.clip(gaps.ends, start_ns, end_ns)
    launched = np.clip(gaps.launched, starts, ends)
    latest = np.clip(gaps.launched + launch_ns, launched, ends)
    has_launch = gaps.launch != NONE
    sync, data = _before_launch(trace, gaps, starts, launched)
    is_short = gaps.lengths < short_ns
    columns = {
        SYNC.column: sync,
        DATA.column: data,
        HOST.column: launched - starts - sync - data,
        LAUNCH.column: np.where(has_launch, latest - launched, 0),
        UNKNOWN.column: np.where(has_launch, ends - latest, ends - starts),
    }
    columns = {name: np.where(is_short, 0, column) for name, column in columns.items()}
    columns[BETWEEN_KERNELS.column] = np.where(is_short, ends - starts, 0)
    assert (sum(columns.values()) == ends - starts).all(), "the causes must add up to the gap"
    return columns


@memoized_by_trace
def launching_threads(trace: RankTrace) -> np.ndarray:
    """Host threads that launched at least one of the rank's GPU operations."""
    launch = array_of(trace.gpu_ops, "launch")
    return np.unique(array_of(trace.api_calls, "thread")[launch[launch != NONE]])


@memoized_by_trace
def program_thread(trace: RankTrace) -> int | None:
    """Of JAX, whose runtime launches on threads of its own, the thread that runs the program's steps; else `None`."""
    if trace.meta.format != "xplane":
        return None
    is_step = trace.ranges["name"].isin(trace.steps["name"].astype("object").unique())
    threads = trace.ranges.loc[is_step, "thread"].mode()
    return int(threads.iloc[0]) if len(threads) else None


def thread_of_launch(trace: RankTrace, launch: np.ndarray) -> np.ndarray:
    """Thread of each launching call; -1 where there is none."""
    if not len(trace.api_calls):
        return np.full(len(launch), NONE, dtype=np.int64)
    return np.where(launch == NONE, NONE, array_of(trace.api_calls, "thread")[launch])


@memoized_by_trace
def blocking(trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
    """Calls that block the host until the GPU is done: their rows in `api_calls`, and since when each one blocks.

    They are the synchronising calls, and copies that return only when done: those without `Async`, and those
    that touch pageable memory. A copy call blocks from its copy's start: before, it is launching it; where the
    copy's stream still has work when the call begins, the call waits for that first, and blocks from its own start.
    """
    calls, ops = trace.api_calls, trace.gpu_ops
    since = array_of(calls, "start_ns").copy()
    is_blocking = rows_named_so(calls, host_names.is_sync)
    is_plain = rows_named_so(calls, host_names.is_plain_copy)
    pageable = rows_named(ops, "source_memory", "pageable") | rows_named(ops, "target_memory", "pageable")
    launch = array_of(ops, "launch")
    is_copy = rows_named(ops, "activity", "memcpy") & (launch != NONE)
    if is_copy.any():
        waits = is_copy & (pageable | is_plain[launch])
        called = since[launch[waits]]
        busy_until = largest_before(array_of(ops, "end_ns"), array_of(ops, "stream"))  # by those before each
        since[launch[waits]] = np.where(busy_until[waits] > called, called, array_of(ops, "start_ns")[waits])
        is_blocking[launch[waits]] = True
        # A copy that begins when its call has returned held nobody up.
        ends = array_of(calls, "end_ns")
        held = array_of(ops, "start_ns")[waits] < ends[launch[waits]]
        since[launch[waits]] = np.where(held, since[launch[waits]], ends[launch[waits]])
    rows = np.flatnonzero(is_blocking)
    return rows, since[rows]


def _before_launch(
    trace: RankTrace, gaps: Gaps, starts: np.ndarray, launched: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Time of each stretch [start, launched) spent in synchronising calls, and in data ranges outside them."""
    sync, data = np.zeros(len(gaps), dtype=np.int64), np.zeros(len(gaps), dtype=np.int64)
    threads, decided = thread_of_launch(trace, gaps.launch), _decided(trace)
    for thread in np.unique(threads[threads != NONE]):
        of_thread = threads == thread
        in_sync, in_data = decided[int(thread)]
        sync[of_thread] = in_sync.covered_ns(starts[of_thread], launched[of_thread])
        data[of_thread] = in_data.covered_ns(starts[of_thread], launched[of_thread])
    return sync, data


@memoized_by_trace
def _decided(trace: RankTrace) -> dict[int, tuple[Intervals, Intervals]]:
    """Synchronising and data time as each launching thread sees it; the others speak where it records nothing."""
    host = _threads(trace)
    recorded = {number: _recorded(trace, number, own.data) for number, own in host.items()} if len(host) > 1 else {}
    decided = {}
    for number, own in host.items():
        sync, data = own.sync, own.data
        for other in (events for thread, events in host.items() if thread != number):
            sync = sync | (other.sync - recorded[number])
            data = data | (other.data - recorded[number])
        decided[number] = (sync, data - sync)
    return decided


class _Thread(Struct, frozen=True):
    sync: Intervals
    data: Intervals


def _threads(trace: RankTrace) -> dict[int, _Thread]:
    """What threads that launch work on the GPU, and that of JAX's program, record of synchronising calls and data."""
    rows, since = blocking(trace)
    once = np.setdiff1d(one_off_calls(trace), rows)
    rows, since = np.append(rows, once), np.append(since, array_of(trace.api_calls, "start_ns")[once])
    until = array_of(trace.api_calls, "end_ns")[rows]
    of_call, of_op, of_range = (array_of(frame, "thread") for frame in (trace.api_calls, trace.host_ops, trace.ranges))
    is_data_op, is_data_range = _are_data(trace)
    threads = {}
    program = program_thread(trace)
    for thread in {*launching_threads(trace).tolist(), *(() if program is None else (program,))}:
        own = of_call[rows] == thread
        # The loader's own range is an operator in some versions.
        data = of_rows(trace.ranges, is_data_range & (of_range == thread)) | of_rows(
            trace.host_ops, is_data_op & (of_op == thread)
        )
        threads[thread] = _Thread(Intervals.of(since[own], until[own]), data)
    return threads


def held_up(trace: RankTrace) -> Intervals:
    """When a call blocks one of the threads that launch."""
    held = [own.sync for own in _threads(trace).values()]
    return Intervals.of_all(held) if held else EMPTY


def loading(trace: RankTrace) -> Intervals:
    """When any thread of the host is in the data loader."""
    is_data_op, is_data_range = _are_data(trace)
    return of_rows(trace.ranges, is_data_range) | of_rows(trace.host_ops, is_data_op)


def _are_data(trace: RankTrace) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the host's operators, and of the ranges, that are the data loader's."""
    op, each = (rows_named_so(frame, host_names.is_data) for frame in (trace.host_ops, trace.ranges))
    return op, each


def _recorded(trace: RankTrace, thread: int, data: Intervals) -> Intervals:
    """Time inside a call, an operator or a data range of the thread."""
    calls, operators = (of_rows(frame, array_of(frame, "thread") == thread)
                        for frame in (trace.api_calls, trace.host_ops))  # fmt: skip
    return calls | operators | data


# Why each rank's GPU is idle, in the whole window and in each step: causes that add up to idle exactly.


class Idle(Result):
    """One row for each rank's window (`step` absent) and for each step's GPU window; the parts add up to idle."""

    title = "Why the GPU is idle"
    keys = ("rank", "step")
    columns = {
        "rank": RANK,
        "step": Column.ident("Step; absent for the whole window."),
        "window_ns": Column.time("Length of the window.", better=Better.LESS),
        "idle_ns": Column.time("Time in which nothing runs on the GPU.", is_news_when_zero=True, better=Better.LESS),
        **{cause.column: Column.time(cause.definition) for cause in IDLE_CAUSES},
        "gaps": Column.count("Gaps of 5 µs and more that begin in the window.", is_compared=False),
        "longest_ns": Column.time(
            "The longest part of a gap inside the window; absent without gaps.", adds=Adds.EXTREME
        ),
        "idle_pct": Column.share("100 · idle / window.", better=Better.LESS),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(idle_pct=percent(table["idle_ns"], table["window_ns"]))


def idle_per_rank(
    trace: RankTrace,
    breakdown: pd.DataFrame,
    steps: pd.DataFrame,
    idle_short_ns: int = SHORT_NS,
    idle_launch_ns: int = LAUNCH_NS,
) -> pd.DataFrame:
    """The gaps of each window, clipped to it and cut by cause; checked against the breakdown's idle time."""
    facts, row, begin, end = _windows(trace, breakdown, steps)
    gaps = find(trace)
    window, gap = overlapping(begin, end, Intervals(gaps.starts, gaps.ends))
    of_row = row[window]
    sums = {name: np.zeros(len(facts), dtype=np.int64) for name in (*PARTS, "gaps", "pieces")}
    longest = np.zeros(len(facts), dtype=np.int64)
    for rows in row_blocks(len(gap)):
        pieces, own = gaps.take(gap[rows]), of_row[rows]
        start_ns, end_ns = begin[window[rows]], end[window[rows]]
        causes = parts(trace, pieces, start_ns, end_ns, short_ns=idle_short_ns, launch_ns=idle_launch_ns)
        for name in PARTS:
            np.add.at(sums[name], own, array_of(causes, name))
        np.add.at(sums["gaps"], own, (pieces.lengths >= idle_short_ns) & (pieces.starts >= start_ns))
        np.add.at(sums["pieces"], own, 1)
        np.maximum.at(longest, own, np.minimum(pieces.ends, end_ns) - np.maximum(pieces.starts, start_ns))
    idle_ns = np.sum([sums[name] for name in PARTS], axis=0)
    assert (idle_ns == array_of(facts, "idle_ns")).all(), "the causes must add up to the breakdown's idle time"
    longest_ns = pd.arrays.IntegerArray(longest, sums.pop("pieces") == 0)
    known = {name: facts[name].array for name in ("step", "window_ns")}
    return table_of({**known, **sums, "idle_ns": idle_ns, "longest_ns": longest_ns})


def _windows(
    trace: RankTrace, breakdown: pd.DataFrame, steps: pd.DataFrame
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """The rows' `step`, `window_ns` and `idle_ns`, the whole window's first; and stretches: of which row, from, to."""
    whole = trace.window
    has_window = ~steps["start_ns"].array.isna() if len(steps) else np.empty(0, dtype=bool)
    of_steps = {name: steps[name].to_numpy(dtype=np.int64, na_value=NONE)[has_window] if len(steps) else _NO_TIMES
                for name in ("step", "start_ns", "window_ns", "idle_ns")}  # fmt: skip
    is_absent = np.append(True, steps["step"].array.isna()[has_window] if len(steps) else has_window)
    facts = {name: np.append(array_of(breakdown, name)[0], of_steps[name]) for name in ("window_ns", "idle_ns")}
    step = pd.arrays.IntegerArray(np.append(1, of_steps["step"]), is_absent)
    row = np.append(np.zeros(len(whole.starts), dtype=np.int64), np.arange(1, len(step)))
    begin = np.append(whole.starts, of_steps["start_ns"])
    end = np.append(whole.ends, of_steps["start_ns"] + of_steps["window_ns"])
    return table_of({"step": step, **facts}), row, begin, end


_NO_TIMES = np.empty(0, dtype=np.int64)


# Each gap of the GPU: how long, by which causes, and what the host was doing in it.


_KEYS = {cause.column: cause.key for cause in GAP_CAUSES}


class GapTable(Result):
    """One row for each stretch of 5 µs or more in which the rank's GPU runs nothing; its causes add up to it."""

    title = "Gaps"
    is_detail = True
    keys = ("rank", "gap")
    columns = {
        "rank": RANK,
        "gap": Column.ident("Position among the rank's gaps."),
        "step": Column.ident("Step whose GPU window it begins in; absent for none."),
        "start_ns": Column.moment("End of the operation before it, or where the window begins."),
        "end_ns": Column.moment("Start of the operation after it, or where the window ends."),
        "length_ns": Column.time("End − start."),
        "cause": Column.text(f"The cause with the largest part: {', '.join(cause.key for cause in GAP_CAUSES)}."),
        **{cause.column: Column.time(cause.definition) for cause in GAP_CAUSES},
        "doing": Column.text(
            "What the launching thread did for longest before the launch: the innermost recorded call, operator "
            "or range; absent when the operation was already launched.",
            written=Written.KERNEL,
        ),
        "doing_what": Column.text("synchronising call, API call, operator or range; absent when nothing was recorded."),
        "doing_ns": Column.time("For how long in the gap."),
        "range": INNERMOST_RANGE,
        "ended_by": Column.text("The operation that ends the gap; absent after the last one.", written=Written.KERNEL),
        "ended_by_kind": Column.text("Its kind."),
        "ended_by_stream": Column.ident("Its stream."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(length_ns=table["end_ns"] - table["start_ns"])


def gaps_per_rank(trace: RankTrace, idle_short_ns: int = SHORT_NS, idle_launch_ns: int = LAUNCH_NS) -> pd.DataFrame:
    """The rank's gaps inside the window, of `idle_short_ns` and more."""
    gaps = find(trace)
    window = trace.window
    stretch = window.touched(gaps.starts, gaps.ends)
    is_held = (gaps.lengths >= idle_short_ns) & (stretch != NONE)
    gaps = gaps.take(is_held)
    if not len(gaps):
        return pd.DataFrame()
    limits = {"short_ns": idle_short_ns, "launch_ns": idle_launch_ns}
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
            "ended_by_kind": ops["kind"].array.take(follows, allow_fill=True),
            "ended_by_stream": all_known(array_of(ops, "stream")).take(follows, allow_fill=True),
        },
    )


def step_of_time(trace: RankTrace, times: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """Number of the step whose GPU window holds each time, NA where none does."""
    held = trace.steps["start_ns"].notna().to_numpy()
    if not held.any():
        return pd.array([pd.NA] * len(times), dtype="Int64")
    starts, ends = (whole_of(trace.steps, name)[held] for name in ("start_ns", "end_ns"))
    row = np.searchsorted(starts, times, side="right") - 1
    is_inside = (row >= 0) & (times < ends[row])
    return pd.arrays.IntegerArray(array_of(trace.steps, "step")[held][row], ~is_inside)


def _doing(trace: RankTrace, gaps: Gaps) -> dict[str, Any]:
    """What the launching thread did for longest between each gap's start and the launch."""
    doing, what = np.full(len(gaps), None, dtype=object), np.full(len(gaps), None, dtype=object)
    lengths, is_known = np.zeros(len(gaps), dtype=np.int64), np.zeros(len(gaps), dtype=bool)
    threads = thread_of_launch(trace, gaps.launch)
    is_before = gaps.launched > gaps.starts
    for thread in np.unique(threads[(threads != NONE) & is_before]):
        rows = np.flatnonzero((threads == thread) & is_before)
        starts, ends = gaps.starts[rows], gaps.launched[rows]
        for held, activity in thread_activity(trace, int(thread), starts, ends):
            own = rows[held]
            doing[own], what[own], lengths[own] = longest(activity, starts[held], ends[held])
        is_known[rows] = True
    doing_ns = pd.arrays.IntegerArray(lengths, ~is_known)
    return {"doing": as_objects(doing), "doing_what": as_objects(what), "doing_ns": doing_ns}
