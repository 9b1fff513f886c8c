"""Every stretch in which a rank's GPU runs nothing, cut into the causes of DEFINITIONS, exactly."""

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blocks import row_blocks
from traceanalyzer.analyses.grouping import largest_before
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.one_off_calls import one_off_calls
from traceanalyzer.analyses.once import once_a_trace
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, busy, of_rows
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
from traceanalyzer.model.plain import known_of, rows_named, rows_named_so, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, table_of

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
        lengths: np.ndarray = self.ends - self.starts
        return lengths

    def take(self, rows: np.ndarray | slice) -> "Gaps":
        """The gaps at these positions (or under this mask)."""
        return Gaps(self.starts[rows], self.ends[rows], self.ended_by[rows], self.launch[rows], self.launched[rows])


@once_a_trace
def find(trace: RankTrace) -> Gaps:
    """All gaps of the capture and of its steps' windows; where two operations end one together, by the shorter.

    Operations without duration end none, except at the capture's end.
    """
    ops = trace.gpu_ops
    starts, ends = array_of(ops, "start_ns"), array_of(ops, "end_ns")
    if ops.empty:
        return Gaps(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
    has_window = known_of(trace.steps, "start_ns")
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


@once_a_trace
def launching_threads(trace: RankTrace) -> np.ndarray:
    """Host threads that launched at least one of the rank's GPU operations."""
    launch = array_of(trace.gpu_ops, "launch")
    return np.unique(array_of(trace.api_calls, "thread")[launch[launch != NONE]])


@once_a_trace
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


@once_a_trace
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
        since[launch[waits]] = np.where(_busy_until(ops)[waits] > called, called, array_of(ops, "start_ns")[waits])
        is_blocking[launch[waits]] = True
        # A copy that begins when its call has returned held nobody up.
        ends = array_of(calls, "end_ns")
        held = array_of(ops, "start_ns")[waits] < ends[launch[waits]]
        since[launch[waits]] = np.where(held, since[launch[waits]], ends[launch[waits]])
    rows = np.flatnonzero(is_blocking)
    return rows, since[rows]


def _busy_until(ops: pd.DataFrame) -> np.ndarray:
    """When the operations before each one on its stream have all ended; -1 for a stream's first one."""
    return largest_before(array_of(ops, "end_ns"), array_of(ops, "stream"))


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


@once_a_trace
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
