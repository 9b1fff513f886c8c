"""How long hosts compile in what was recorded, and how long their GPUs idle meanwhile."""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.host_names import matches
from traceanalyzer.analyses.host.host_time import TIMES, steps_of_hosts, times_of, with_steps
from traceanalyzer.analyses.names import CompilationsColumn
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, sorted_by, table_of

DYNAMO, XLA = "torch.compile", "XLA"

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
        "compiler": Column.text("torch.compile, or XLA."),
        "stretches": Column.count("How many, of marks that overlap one; compiling a function takes several."),
        "host_ns": Column.time("In which one of the rank's threads says that it compiles."),
        **TIMES,
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return with_steps(table)


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's compilers, in the complete steps; in the whole capture where there are none."""
    steps = steps_of_hosts(trace)
    looked_at = Intervals.of(array_of(steps, "host_start_ns"), array_of(steps, "host_end_ns")) if len(steps) else None
    parts = [_in(looked_at, _marked(trace, mark)) for mark in MARKS.values()]
    of_mark = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    if not len(of_mark):
        return pd.DataFrame()
    starts, ends = (np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "ends"))
    compilers = table_of({"compiler": np.array([*MARKS], dtype=object)[of_mark]})
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


def _in(looked_at: Intervals | None, marked: Intervals) -> Intervals:
    return marked if looked_at is None else marked & looked_at
