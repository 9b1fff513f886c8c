"""Stretches in which the CPU records nothing, and compilation."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, joined
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.activity import (
    AUTOGRAD,
    COLLECTIVES,
    MAIN,
    names_at,
    range_around,
    thread_roles,
    user_ranges,
)
from traceanalyzer.analyses.host.cpu_collectives import waiting
from traceanalyzer.analyses.host.cpu_time import TIMES, HostTimes, launches_inside, steps_of_hosts, times_of
from traceanalyzer.analyses.host.host_names import is_graph_capture
from traceanalyzer.analyses.time.intervals import EMPTY, Intervals, of_rows
from traceanalyzer.meaning.columns import Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    nowhere,
    picked,
    rows_named_so,
    sorted_by,
)

# Long stretches in which nothing of the host is recorded: what the program does between calls of PyTorch and CUDA.


LEAST_NS = 1_000_000
"""A stretch from which on it is not what Python takes between two calls: that is some 10 to 100 µs."""


class HostSilences(HostTimes):
    """One row for each rank and place in the program; longest first."""

    title = "Stretches in which nothing of the host is recorded"
    keys = ("rank", "range", "until")
    columns = {
        "rank": RANK,
        "range": Column.text("The user's innermost range around it; absent outside of all.", written=Written.KERNEL),
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
    """The rank's stretches of `silent_ns` and more, by place."""
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
    names = {"range": _ranges_around(trace, threads, starts, ends), "until": until[order]}
    groups = Groups.of(names, by_appearance=True, with_absent=True)
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
    told = user_ranges(trace)
    tables = (trace.api_calls, trace.host_ops, trace.frames, picked(told, launches_inside(trace, told) == 0))
    starts, ends, is_own = _columns(tables, threads)
    return Intervals.of(starts[is_own], ends[is_own]) | waiting(trace)


def _columns(tables: Sequence[pd.DataFrame], threads: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts and ends of the tables' rows under each other, and which are of these threads."""
    starts, ends, thread = (
        np.concatenate([array_of(table, name) for table in tables]) for name in ("start_ns", "end_ns", "thread")
    )
    return starts, ends, np.isin(thread, threads)


def _ranges_around(trace: RankTrace, threads: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The user's innermost range around the middle of each stretch, on any of the threads; none as long as a step."""
    ranges = user_ranges(trace)
    steps = trace.steps
    if len(steps):
        shortest_ns = int((steps["host_end_ns"] - steps["host_start_ns"]).min())
        ranges = picked(ranges, (ranges["end_ns"] - ranges["start_ns"]).to_numpy() < shortest_ns)
    middle = starts + (ends - starts) // 2
    around = nowhere(len(middle))
    for thread in threads.tolist():
        own = range_around(ranges, np.full(len(middle), thread), middle)
        around = np.where(around == NONE, own, around)
    return names_at(ranges["name"].array, around)


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
    return picked(trace.gpu_ops, rows[launches])["name"].array


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
        stretches=Column.count("How many, of marks that overlap one; compiling a function takes several."),
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
