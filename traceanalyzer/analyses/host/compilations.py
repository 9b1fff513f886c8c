"""How long hosts compile, or capture graphs, in what was recorded, and how long their GPUs idle meanwhile."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.host_names import is_graph_capture, matches
from traceanalyzer.analyses.host.host_time import TIMES, steps_of_hosts, times_of, with_steps
from traceanalyzer.analyses.names import CompilationsColumn
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, sorted_by, table_of

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


class Compilations(Result[CompilationsColumn]):
    """One row for each rank and compiler; longest first."""

    title: ClassVar[str] = "Compiling in what was recorded"
    keys: ClassVar[tuple[str, ...]] = ("rank", "compiler")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "compiler": Column.text(
            "torch.compile, or XLA; or the capture of CUDA graphs, in which what is launched does not run."
        ),
        "stretches": Column.count("How many, of marks that overlap one; compiling a function takes several."),
        "host_ns": Column.time("In which one of the rank's threads says that it compiles or captures."),
        **TIMES,
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return with_steps(table)


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's compilers, in the complete steps; in the whole capture where there are none."""
    steps = steps_of_hosts(trace)
    looked_at = Intervals.of(array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns")) if len(steps) else None
    parts = [_in(looked_at, own) for own in (*(_marked(trace, mark) for mark in MARKS.values()), _captured(trace))]
    of_mark = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    if not len(of_mark):
        return pd.DataFrame()
    starts, ends = (np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "ends"))
    compilers = table_of({"compiler": np.array([*MARKS, CAPTURE], dtype=object)[of_mark]})
    groups = Groups.of(compilers, ["compiler"], by_appearance=True)
    held = {"compiler": array_of(compilers, "compiler")[groups.first], "stretches": groups.counts()}
    return sorted_by(table_of({**held, **times_of(trace, groups, starts, ends, steps)}), "host_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> Compilations:
    """The ranks' rows, longest first."""
    return Compilations(sorted_by(stack(parts, tuple(Compilations.columns)), "host_ns"))


def _marked(trace: RankTrace, mark: re.Pattern[str]) -> Intervals:
    """When one of the host's threads is in a range or operator of such a name."""
    starts, ends = [], []
    for table in (trace.host_ops, trace.ranges):
        rows = np.flatnonzero(matches(table["name"], lambda name: bool(mark.search(name))))
        starts.append(array_of(table, "start_ns")[rows])
        ends.append(array_of(table, "end_ns")[rows])
    return Intervals.of(np.concatenate(starts), np.concatenate(ends))


def _captured(trace: RankTrace) -> Intervals:
    """When one of the host's threads captures a graph: from the call that begins it to the last one that ends it."""
    calls = trace.api_calls
    rows = np.flatnonzero(matches(calls["name"], is_graph_capture))
    rows = rows[np.lexsort((array_of(calls, "start_ns")[rows], array_of(calls, "thread")[rows]))]
    names, threads = calls["name"].iloc[rows].astype("str"), array_of(calls, "thread")[rows]
    is_first = names.str.contains("BeginCapture").to_numpy(dtype=bool)
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(rows)) - 1
    same = threads[first] == threads[last] if len(first) else np.zeros(0, dtype=bool)
    first, last = first[same], last[same]
    return Intervals.of(array_of(calls, "start_ns")[rows[first]], array_of(calls, "end_ns")[rows[last]])


def _in(looked_at: Intervals | None, marked: Intervals) -> Intervals:
    return marked if looked_at is None else marked & looked_at
