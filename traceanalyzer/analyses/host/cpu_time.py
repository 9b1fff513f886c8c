"""CPU time per thread, by step and by operator; stretches in which the CPU records nothing, and compilation."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, is_true, joined, ratio, stack
from traceanalyzer.analyses.breakdown import Headline, Steps
from traceanalyzer.analyses.grouping import Groups, largest_before, memoized_by_trace, row_blocks
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import (
    AUTOGRAD,
    COLLECTIVES,
    MAIN,
    NOTHING,
    OTHER,
    Nesting,
    names_at,
    thread_roles,
    user_ranges,
    waiting,
)
from traceanalyzer.analyses.host.host_names import is_graph_capture
from traceanalyzer.analyses.intervals import EMPTY, Intervals, busy, new_ns, of_rows
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.meaning.columns import Adds, Better, Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    column_of,
    is_name,
    mask_of,
    nowhere,
    nullable,
    picked,
    rows_named_so,
    rows_where,
    sorted_by,
    table_of,
    with_columns,
)
from traceanalyzer.selection import step_at

# Time that hosts spend in something, in a mean step, and how much of it their GPUs idle: what tables of it share.


TIMES: Mapping[str, Column] = MappingProxyType(
    {
        "idle_ns": Column.lost("The part of it in which nothing ran on the GPU; absent in a capture without GPU work."),
        "seen_ns": Column.time(
            "The part of it between the rank's first and last GPU operation: before and after, whether the GPU idled "
            "is not known.",
            is_compared=False,
            is_secondary=True,
        ),
        "steps": Column.count("Complete steps that it is of; absent for the whole capture.", adds=Adds.NONE),
        "host_per_step_ns": Column.time("host_ns / steps.", adds=Adds.DERIVED),
        "idle_per_step_ns": Column.time(
            "host_per_step_ns, times the part of it that the GPU was seen to idle; n/a where none of it was seen.",
            adds=Adds.DERIVED,
        ),
    }
)
"""Columns beside `host_ns`, the time on the host."""


class HostTimes(Result):
    """A table of them, longest first."""

    @classmethod
    def of_ranks(cls, parts: Mapping[int, pd.DataFrame]) -> Self:
        """The ranks' rows, longest first."""
        return cls(sorted_by(stack(parts, tuple(cls.columns)), "host_ns"))

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        a_step = ratio(table["host_ns"], table["steps"])
        idle = a_step * ratio(table["idle_ns"], table["seen_ns"])
        table = super()._derived(table)
        return table.assign(host_per_step_ns=_whole(a_step), idle_per_step_ns=_whole(idle))


def times_of(
    trace: RankTrace, groups: Groups, starts: np.ndarray, ends: np.ndarray, steps: pd.DataFrame
) -> dict[str, Any]:
    """What is stored of each group of stretches on the host, which are of these steps: none for the whole capture.

    Of stretches of one group that overlap, on several threads, the common time counts once.
    """
    starts, working = ends - new_ns(starts, ends, groups.of_row), busy(trace)
    seen_ns = Intervals(working.starts[:1], working.ends[-1:]).covered_ns(starts, ends)
    idle_ns, without_gpu = seen_ns - working.covered_ns(starts, ends), np.full(len(groups), trace.gpu_ops.empty)
    return {
        "host_ns": groups.sums(ends - starts),
        "idle_ns": nullable(groups.sums(idle_ns), without_gpu),
        "seen_ns": nullable(groups.sums(seen_ns), without_gpu.copy()),
        "steps": nullable(np.full(len(groups), len(steps)), np.full(len(groups), not len(steps))),
    }


@memoized_by_trace
def steps_of_hosts(trace: RankTrace) -> pd.DataFrame:
    """Complete steps of those looked at; without GPU work no step has a GPU window, and all that are not cut count.

    Of chosen steps of which none is complete, all of them.
    """
    steps = trace.steps
    counts = ~array_of(steps, "is_partial")
    if not trace.gpu_ops.empty:
        counts = counts & steps["start_ns"].notna().to_numpy()
    if trace.window.steps is None:
        return rows_where(steps, counts)
    is_chosen = np.isin(array_of(steps, "step"), trace.window.steps)
    return rows_where(steps, counts & is_chosen if (counts & is_chosen).any() else is_chosen)


def launches_inside(trace: RankTrace, events: pd.DataFrame) -> np.ndarray:
    """API calls with a GPU operation that begin in each event, on its thread."""
    has_op = array_of(trace.api_calls, "has_gpu_op")
    begins, thread_of = arrays_of(trace.api_calls, "start_ns", "thread", rows=has_op)
    starts, ends, threads = arrays_of(events, "start_ns", "end_ns", "thread")
    count = np.zeros(len(events), dtype=np.int64)
    for thread in np.unique(thread_of).tolist():
        rows = np.flatnonzero(threads == thread)
        times = np.sort(begins[thread_of == thread])
        count[rows] = np.searchsorted(times, ends[rows]) - np.searchsorted(times, starts[rows])
    return count


def looked_at(trace: RankTrace, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times on the host clipped to what they are compared with: the GPU's first to last operation, and complete steps.

    Without either nothing is clipped.
    """
    tables = ((trace.gpu_ops, "start_ns", "end_ns"), (steps_of_hosts(trace), "host_start_ns", "host_end_ns"))
    spans = [(array_of(table, first).min(), array_of(table, last).max()) for table, first, last in tables if len(table)]
    if not spans:
        return starts, ends
    first, last = min(first for first, _ in spans), max(last for _, last in spans)
    return np.clip(starts, first, last), np.clip(ends, first, last)


def _whole(values: pd.Series) -> pd.Series:
    return values.round().astype("Int64")


# What the CPU itself does in a step, thread by thread, and how much of that the GPU spends idle.


RANGE, OPERATOR, COLLECTIVE, FRAME = "range", "operator", "collective", "frame"


class HostWork(HostTimes):
    """One row for each rank, role of a thread, and range or operator at the top of its stack; longest first."""

    title = "Work on the CPU"
    keys = ("rank", "role", "what", "name")
    derived = {"idle_pct": "idle_ns / seen_ns"}
    columns = declared(
        rank=RANK,
        role=Column.text(
            "What the thread is for: main (it runs the steps), autograd, data loader, collectives (gloo's), other.",
            is_aside=True,
        ),
        what=Column.text(
            "range (of the user or the framework), collective (run by the CPU), operator, or Python frame of at least "
            "1 ms in which no GPU work is launched or awaited; what lies in no other.",
            is_aside=True,
        ),
        name=(
            "Its name. Ranges that span half of a step, on average, and hold others count as the step itself, not "
            "as a row."
        ),
        calls="How often, in the complete steps; in the whole capture where there are none.",
        launches="Calls in it that started GPU work: with none, the work is the CPU's own.",
        host_ns=Column.time(
            "Time in which a thread of this role is in it; what lies inside it is part of it.",
            replaced_by="host_per_step_ns",
        ),
        **TIMES,
        idle_pct="100 · GPU idle time in it / the time in it between the first and last GPU operation.",
    )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's top-level ranges, collectives and operators of its complete steps, else of the whole capture."""
    steps = steps_of_hosts(trace)
    events = _inside(_top_level(trace), steps)
    if events.empty:
        return pd.DataFrame()
    roles = thread_roles(trace)
    role = [roles.get(thread, OTHER) for thread in array_of(events, "thread").tolist()]
    keys = {"role": np.array(role, dtype=object), "what": array_of(events, "what"), "name": events["name"].array}
    groups = Groups.of(keys, by_appearance=True)
    total = groups.table(
        calls=groups.counts(),
        launches=groups.sums(launches_inside(trace, events)),
        **times_of(trace, groups, array_of(events, "start_ns"), array_of(events, "end_ns"), steps),
    )
    return sorted_by(total, "host_ns")


def times_to_compare(host_work: HostWork) -> tuple[pd.DataFrame, bool]:
    """The rows with `time_ns`, of a mean step; where not all ranks have steps (false), of the whole capture."""
    frame = host_work.to_frame()
    is_of_steps = bool(frame["steps"].notna().all())
    return frame.assign(time_ns=frame["host_per_step_ns" if is_of_steps else "host_ns"].astype("float64")), is_of_steps


def _top_level(trace: RankTrace) -> pd.DataFrame:
    """Ranges, collectives, operators and frames without GPU work that lie in no other, on each thread."""
    names = trace.ranges["name"].array
    is_collective = mask_of(names, host_names.is_cpu_collective)
    is_place = mask_of(names, host_names.is_user_range)
    is_step = is_name(names, *trace.steps["name"].array.categories.tolist())
    ranges = np.flatnonzero((is_place | is_collective) & ~is_step)
    ranges = ranges[~_wraps(trace, ranges)]
    held = (
        (trace.ranges, ranges),
        (trace.host_ops, _outer(trace.host_ops)),
        (trace.frames, _own_frames(trace, ranges)),
    )
    columns: dict[str, Any] = {
        name: np.concatenate([array_of(table, name)[rows] for table, rows in held])
        for name in ("start_ns", "end_ns", "thread")
    }
    columns["name"] = joined([table["name"].array[rows] for table, rows in held])
    sorts = [
        np.where(is_collective[ranges], COLLECTIVE, RANGE),
        *([OPERATOR] * len(held[1][1]), [FRAME] * len(held[2][1])),
    ]
    what = np.concatenate([np.asarray(sort, dtype=object) for sort in sorts])
    starts, ends, threads = columns["start_ns"], columns["end_ns"], columns["thread"]
    # Ranges before operators of the same times; the longer first.
    order = np.lexsort((what == OPERATOR, -ends, starts, threads))
    order = order[ends[order] > largest_before(ends[order], threads[order])]
    return table_of({"what": what[order], **{name: values[order] for name, values in columns.items()}})


def _uses_gpu(name: str) -> bool:
    return host_names.is_sync(name) or host_names.is_memory_call(name)


def _own_frames(trace: RankTrace, ranges: np.ndarray) -> np.ndarray:
    """Long Python frames without GPU work, waits for it, GPU memory calls, and the begin of one of these ranges."""
    calls = trace.api_calls
    is_of_gpu = array_of(calls, "has_gpu_op") | host_names.matches(calls["name"], _uses_gpu)
    begins = np.sort(
        np.concatenate([array_of(calls, "start_ns")[is_of_gpu], array_of(trace.ranges, "start_ns")[ranges]])
    )
    starts, ends = arrays_of(trace.frames, "start_ns", "end_ns")
    is_own = (ends - starts >= LEAST_NS) & (np.searchsorted(begins, starts) == np.searchsorted(begins, ends))
    return np.flatnonzero(is_own & is_of_gpu.any())


def _outer(host_ops: pd.DataFrame) -> np.ndarray:
    """Operators that lie in no other of those before them in their block: all that lie in none, and a few more."""
    ends, threads = array_of(host_ops, "end_ns"), array_of(host_ops, "thread")
    found = []
    for rows in row_blocks(len(host_ops)):
        before = largest_before(ends[rows], threads[rows])
        found.append(rows.start + np.flatnonzero((before == NONE) | (ends[rows] > before)))
    return np.concatenate(found)


def _wraps(trace: RankTrace, rows: np.ndarray) -> np.ndarray:
    """Which of these ranges take half of a step and hold another one of their thread: all of a name, or none.

    Such a range says no more than the step does. By its calls together: one that spans half of some steps only would
    else hide what it holds in the others.
    """
    begins, until = arrays_of(trace.steps, "host_start_ns", "host_end_ns")
    starts, ends, threads = arrays_of(trace.ranges, "start_ns", "end_ns", "thread", rows=rows)
    row = step_at(begins, until, starts)
    order = np.lexsort((-ends, starts, threads))
    holds = np.zeros(len(rows), dtype=bool)
    holds[order[:-1]] = (starts[order[1:]] < ends[order[:-1]]) & (threads[order[1:]] == threads[order[:-1]])
    names = trace.ranges["name"].array
    groups = Groups.of({"name": names[rows].codes, "thread": threads})
    is_inside, lengths = row != NONE, np.append(until - begins, 0)[row]
    own_ns, steps_ns = (groups.sums(np.where(is_inside, ns, 0)) for ns in (ends - starts, lengths))
    is_long = (own_ns >= SHARE * steps_ns) & (steps_ns > 0)
    is_around = 2 * groups.sums(holds & is_inside) >= groups.sums(is_inside)
    return (is_long & is_around)[groups.of_row]


def _inside(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Events that begin in a step, cut at its end; all of them without steps."""
    if steps.empty:
        return events
    ends = array_of(steps, "host_end_ns")
    row = step_at(array_of(steps, "host_start_ns"), ends, array_of(events, "start_ns"))
    held = row != NONE
    inside = picked(events, held)
    return with_columns(inside, end_ns=np.minimum(array_of(inside, "end_ns"), ends[row[held]]))


# How long the hosts' steps take where no GPU works.


class CpuSteps(Result):
    """One row for each step that no capture cuts, of captures without GPU work."""

    title = "Steps of the hosts"
    keys = ("step",)
    is_of_one_run = True
    columns = declared(
        step="Step.",
        ranks="Ranks that have it.",
        mean_ns="The range that marks it on the host: mean over these ranks.",
        least_ns="Least of them.",
        most_ns="Most of them.",
        times_median=Column.number("mean_ns / its median over the steps.", better=Better.LESS),
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        median_ns = pd.Series(table["mean_ns"].median(), index=table.index)
        return table.assign(times_median=ratio(table["mean_ns"], median_ns))


def cpu_steps_across(headline: Headline, steps: Steps) -> CpuSteps:
    """The ranks' steps put together; no rows where a GPU works, or no step is marked."""
    lengths = _lengths(steps)
    if len(headline) or lengths.empty:
        return CpuSteps.without_rows()
    by_step = lengths.groupby("step")["host_ns"]
    return CpuSteps(by_step.agg(ranks="size", mean_ns="mean", least_ns="min", most_ns="max").reset_index())


def mean_steps_ns(steps: Steps) -> pd.Series:
    """By rank the mean length of its steps on the host."""
    by_rank: pd.Series = _lengths(steps).groupby("rank")["host_ns"].mean()
    return by_rank


def _lengths(steps: Steps) -> pd.DataFrame:
    """`rank`, `step` and `host_ns` of the steps that are whole on the host."""
    frame = steps.to_frame()
    whole = frame[~is_true(frame["is_partial"]) & frame["step"].notna()]
    host_ns = (whole["host_end_ns"] - whole["host_start_ns"]).astype("float64")
    return whole[["rank", "step"]].assign(host_ns=host_ns)


def per_step_ns(host_work: HostWork, role: str, ranks: pd.Index) -> pd.DataFrame:
    """What threads of a role do in a step: a row for each of the ranks, a column for each name, longest first (ns)."""
    work = host_work.to_frame()
    mine = work[(work["role"] == role) & work["host_per_step_ns"].notna()]
    mine = mine.astype({"host_per_step_ns": "float64"})
    times = mine.pivot_table(values="host_per_step_ns", index="rank", columns="name", aggfunc="sum")
    times = times.reindex(ranks).fillna(0.0)
    return times[times.mean().sort_values(ascending=False, kind="stable").index]


# What other threads of a process run in Python while one of them records nothing: one at a time runs Python.


BESIDE = f"{NOTHING} beside "
"""Before the frame of another thread, in what a CPU does where nothing of its own thread is recorded."""

_LEAST_BESIDE_NS = 200_000
"""Shorter stretches are not looked at: threads change every 5 ms, or when one of them waits."""

_SAMPLES = 5

# Their functions begin threads, and wait: for a lock, an item of a queue, a message.
_OF_THREADS = re.compile(
    r"^(?:.*/)?(?:threading|queue|selectors|socket|ssl|subprocess|(?:asyncio|concurrent|multiprocessing)/[\w/]+|"
    r"tqdm/_monitor)\.py\("
)


def beside(trace: RankTrace, thread: int, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """For each stretch of the thread the innermost Python frame of another one that covers it; `None` where none does.

    None of threads that wait then.
    """
    answer = np.full(len(starts), None, dtype=object)
    asked = np.flatnonzero(ends - starts >= _LEAST_BESIDE_NS)
    frames = trace.frames[array_of(trace.frames, "thread") != thread].reset_index(drop=True)
    if not len(asked) or frames.empty:
        return answer
    begins, until, threads = arrays_of(frames, "start_ns", "end_ns", "thread")
    runs = np.append(~rows_named_so(frames, _OF_THREADS.match), False)
    long = np.flatnonzero((until - begins >= SHARE * _LEAST_BESIDE_NS) & runs[:-1])
    every, of_thread = np.unique(threads, return_inverse=True)
    times = np.linspace(starts[asked], ends[asked], _SAMPLES + 2)[1:-1]
    nested = Nesting.of(frames)
    inside = [nested.innermost_at(times.ravel(), np.full(times.size, other)) for other in every]
    running = 2 * runs[np.array(inside)].reshape(len(every), *times.shape).sum(axis=1) > _SAMPLES
    for number, (place, start, end) in enumerate(zip(asked, starts[asked], ends[asked], strict=True)):
        shared = np.minimum(until[long], end) - np.maximum(begins[long], start)
        covers = long[shared >= SHARE * (end - start)]
        covers = covers[running[of_thread[covers], number]]
        if len(covers):
            answer[place] = frames["name"].iloc[covers[np.argmin(until[covers] - begins[covers])]]
    return answer


# Long stretches in which nothing of the host is recorded: what the program does between calls of PyTorch and CUDA.


LEAST_NS = 1_000_000
"""A stretch from which on it is not what Python takes between two calls: that is some 10 to 100 µs."""


class HostSilences(HostTimes):
    """One row for each rank and what begins after them; longest first."""

    title = "Stretches in which nothing of the host is recorded"
    keys = ("rank", "until")
    columns = {
        "rank": RANK,
        "until": Column.text(
            "What begins first after it: a range, an operator, or the launch of a GPU operation; absent at the end.",
            written=Written.KERNEL,
        ),
        "since": Column.text(
            "What ended last before the longest of which that is recorded; absent at the start.", written=Written.KERNEL
        ),
        "stretches": Column.count(
            "How many of 1 ms or more, in the complete steps; in the whole capture where there are none.",
            is_aside=True,
        ),
        "host_ns": Column.time(
            "Their lengths: no operator, call or Python frame is recorded on the threads that run the steps or launch, "
            "nor a range that launches nothing, nor does the host wait for a collective of its CPU."
        ),
        **TIMES,
    }


def host_silences_per_rank(trace: RankTrace, silent_ns: int = LEAST_NS) -> pd.DataFrame:
    """The rank's stretches of `silent_ns` and more, by what follows."""
    threads, steps = _threads(trace), steps_of_hosts(trace)
    if trace.api_calls.empty if len(trace.gpu_ops) else steps.empty:
        return pd.DataFrame()
    recorded = _recorded(trace, threads)
    looked_at = (recorded.starts[:1], recorded.ends[-1:])
    if len(steps):
        looked_at = (array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns"))
    silent = Intervals.of(*looked_at) - recorded
    starts, ends = (times[silent.ends - silent.starts >= silent_ns] for times in (silent.starts, silent.ends))
    if not len(starts):
        return pd.DataFrame()
    since, until = _around(trace, threads, starts + (ends - starts) // 2)
    # The longest of which it is known what came before stands first.
    order = np.lexsort((starts - ends, pd.isna(since)))
    starts, ends = starts[order], ends[order]
    groups = Groups.of({"until": until[order]}, by_appearance=True, with_absent=True)
    times = times_of(trace, groups, starts, ends, steps)
    return sorted_by(groups.table(since=since[order][groups.first], stretches=groups.counts(), **times), "host_ns")


def _threads(trace: RankTrace) -> np.ndarray:
    """Those that run the steps, autograd's and the CPU's collectives', and all that launch."""
    telling = [thread for thread, role in thread_roles(trace).items() if role in (MAIN, AUTOGRAD, COLLECTIVES)]
    launching = array_of(trace.api_calls, "thread")[array_of(trace.api_calls, "has_gpu_op")]
    return np.union1d(np.array(telling, dtype=np.int64), launching)


def _recorded(trace: RankTrace, threads: np.ndarray) -> Intervals:
    """Time in which one of the threads has something recorded; a range that launches only says where that is.

    So has a host that waits for a collective of its CPU: that is recorded by the thread which carries it out.
    """
    ranges = user_ranges(trace)
    tables = (trace.api_calls, trace.host_ops, trace.frames, picked(ranges, launches_inside(trace, ranges) == 0))
    starts, ends, is_own = _columns(tables, threads)
    return Intervals.of(starts[is_own], ends[is_own]) | waiting(trace)


def _columns(tables: Sequence[pd.DataFrame], threads: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts and ends of the tables' rows under each other, and which are of these threads."""
    starts, ends, thread = (
        np.concatenate([array_of(table, name) for table in tables]) for name in ("start_ns", "end_ns", "thread")
    )
    return starts, ends, np.isin(thread, threads)


def _around(trace: RankTrace, threads: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What ended last before each time, and what begins first after it; the outermost of those that do at once."""
    launches = np.flatnonzero(array_of(trace.api_calls, "has_gpu_op"))
    tables = (user_ranges(trace), trace.host_ops, picked(trace.api_calls, launches))
    starts, ends, is_own = _columns(tables, threads)
    names = joined([tables[0]["name"].array, tables[1]["name"].array, _launched(trace, launches)])
    rows = np.flatnonzero(is_own)
    starts, ends = starts[rows], ends[rows]
    # Of several at one time the outermost comes last of those that end, first of those that begin.
    by_end, by_start = np.lexsort((-rows, -starts, ends)), np.lexsort((rows, -ends, starts))
    last = np.searchsorted(ends[by_end], times, side="right") - 1
    first = np.searchsorted(starts[by_start], times)
    return names_at(names, np.append(rows[by_end], NONE)[last]), names_at(names, np.append(rows[by_start], NONE)[first])


def _launched(trace: RankTrace, launches: np.ndarray) -> Any:
    """Names of what these API calls started on the GPU."""
    launch = trace.launch
    rows = nowhere(len(trace.api_calls) + 1)
    rows[launch] = np.arange(len(launch))
    return column_of(trace.gpu_ops, "name").take(rows[launches])


# How long hosts compile, or capture graphs, in what was recorded, and how long their GPUs idle meanwhile.


DYNAMO, XLA, CAPTURE = "torch.compile", "XLA", "graph capture"

MARKS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        # PyTorch marks each phase of it so: tracing, lowering, code generation, loading, choosing among kernels.
        DYNAMO: re.compile(r" \(dynamo_timed\)$"),
        # PJRT's and the compiler's own, as the JAX profiler and as NVTX ranges have them.
        XLA: re.compile(r"^(PJRT_Client_Compile|PjRt\w*Client::Compile|XlaCompile(Backend)?(:|$))"),
    }
)
"""Names of ranges and operators in which a host compiles, by compiler."""


@lru_cache(maxsize=4096)
def compiler_of(name: str) -> str | None:
    """The compiler that marks what it does by such a name."""
    return next((compiler for compiler, mark in MARKS.items() if mark.search(name)), None)


class Compilations(HostTimes):
    """One row for each rank and compiler; longest first."""

    title = "Compiling in what was recorded"
    keys = ("rank", "compiler")
    columns = declared(
        rank=RANK,
        compiler="torch.compile, or XLA; or the capture of CUDA graphs, in which what is launched does not run.",
        stretches="How many, of marks that overlap one; compiling a function takes several.",
        host_ns="In which one of the rank's threads says that it compiles or captures.",
        **TIMES,
    )


def compilations_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's compilers, in the complete steps; in the whole capture where there are none."""
    steps = steps_of_hosts(trace)
    found = {compiler: _marked(trace, mark) for compiler, mark in MARKS.items()} | {CAPTURE: _captured(trace)}
    if len(steps):
        inside = Intervals.of(array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns"))
        found = {compiler: own & inside for compiler, own in found.items()}
    starts, ends = (np.concatenate([getattr(own, name) for own in found.values()]) for name in ("starts", "ends"))
    if not len(starts):
        return pd.DataFrame()
    compilers = np.repeat(np.array([*found], dtype=object), [*map(len, found.values())])
    groups = Groups.of({"compiler": compilers}, by_appearance=True)
    return sorted_by(groups.table(stretches=groups.counts(), **times_of(trace, groups, starts, ends, steps)), "host_ns")


def _marked(trace: RankTrace, mark: re.Pattern[str]) -> Intervals:
    """When one of the host's threads is in a range or operator of such a name."""
    return Intervals.of_all([of_rows(own, rows_named_so(own, mark.search)) for own in (trace.host_ops, trace.ranges)])


def _captured(trace: RankTrace) -> Intervals:
    """When one of the host's threads captures a graph: from the call that begins it to the last one that ends it."""
    calls = trace.api_calls[rows_named_so(trace.api_calls, is_graph_capture)]
    if calls.empty:
        return EMPTY
    number = calls["name"].astype("str").str.contains("BeginCapture").groupby(calls["thread"]).cumsum()
    spans = calls[number > 0].groupby(["thread", number[number > 0]])
    return Intervals.of(spans["start_ns"].first().to_numpy(), spans["end_ns"].last().to_numpy())
