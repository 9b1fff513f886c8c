"""What the CPU itself does in a step, thread by thread, and how much of that the GPU spends idle."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, joined, percent, ratio, stack
from traceanalyzer.analyses.grouping import Groups, largest_before
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.thread_roles import OTHER, thread_roles
from traceanalyzer.analyses.names import HostWorkColumn
from traceanalyzer.analyses.time.intervals import busy
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import picked, sorted_by, table_of
from traceanalyzer.selection import step_at

RANGE, OPERATOR, COLLECTIVE = "range", "operator", "collective"

_WRAPPER_SHARE = 0.5
"""A range that takes this much of a step and holds other ranges says no more than the step does."""


class HostWork(Result[HostWorkColumn]):
    """One row for each rank, role of a thread, and range or operator at the top of its stack; longest first."""

    title: ClassVar[str] = "Work on the CPU"
    keys: ClassVar[tuple[str, ...]] = ("rank", "role", "what", "name")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "role": Column.text(
            "What the thread is for: main (it runs the steps), autograd, data loader, collectives (gloo's), other."
        ),
        "what": Column.text(
            "range (of the user or the framework), collective (run by the CPU), or operator outside of both."
        ),
        "name": Column.text(
            "Its name. Ranges that span half of a step and hold others count as the step itself, not as a row.",
            written=Written.KERNEL,
        ),
        "threads": Column.count("Threads of this role that did it.", is_compared=False),
        "calls": Column.count(
            "How often, in the complete steps; in the whole capture where there are none.", is_aside=True
        ),
        "launches": Column.count("Calls in it that started GPU work: with none, the work is the CPU's own."),
        "input_bytes": Column.size(
            "Of collectives: bytes of this rank's inputs; absent where the trace has no shapes.", is_aside=True
        ),
        "host_ns": Column.time("Time in it; what lies inside it is part of it."),
        "idle_ns": Column.time(
            "The part of it in which nothing ran on the GPU; absent in a capture without GPU work.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "seen_ns": Column.time(
            "The part of the time in it between the rank's first and last GPU operation: before and after, whether "
            "the GPU idled is not known.",
            is_compared=False,
            is_secondary=True,
        ),
        "steps": Column.count("Complete steps that it is of; absent for the whole capture.", adds=Adds.NONE),
        "host_per_step_ns": Column.time("Time in it / steps.", adds=Adds.DERIVED),
        "idle_per_step_ns": Column.time(
            "Time in it / steps, times the part of it that the GPU was seen to idle; n/a where none of it was seen.",
            adds=Adds.DERIVED,
        ),
        "idle_pct": Column.share(
            "100 · GPU idle time in it / the time in it between the first and last GPU operation.", better=Better.LESS
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        a_step = ratio(table["host_ns"], table["steps"])
        return table.assign(
            host_per_step_ns=_whole(a_step),
            idle_per_step_ns=_whole(a_step * ratio(table["idle_ns"], table["seen_ns"])),
            idle_pct=percent(table["idle_ns"], table["seen_ns"]),
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's top-level ranges, collectives and operators of its complete steps, else of the whole capture."""
    if trace.ranges.empty and trace.host_ops.empty:
        return pd.DataFrame()
    steps = steps_of_hosts(trace)
    events = _inside(_top_level(trace), steps)
    if events.empty:
        return pd.DataFrame()
    starts, ends = events["start_ns"].to_numpy(), events["end_ns"].to_numpy()
    threads, of_thread = np.unique(events["thread"].to_numpy(), return_inverse=True)
    roles = thread_roles(trace)
    role = np.array([roles.get(thread, OTHER) for thread in threads.tolist()], dtype=object)[of_thread]
    table = table_of({"role": role, "what": events["what"], "name": events["name"]})
    groups = Groups.of(table, ["role", "what", "name"], by_appearance=True)
    sizes = events["size_bytes"].array
    size_bytes = groups.sums(sizes.to_numpy(dtype=np.int64, na_value=0))
    idle_ns, seen_ns = (groups.sums(times) for times in idle_inside(trace, starts, ends))
    host_ns = groups.sums(ends - starts)
    order = np.argsort(-host_ns, kind="stable")
    names = {name: pd.array(np.array(own, dtype=object), dtype="str") for name, own in groups.keys.items()}
    total: dict[str, Any] = {
        **names,
        "threads": groups.distinct(of_thread),
        "calls": groups.counts(),
        "launches": groups.sums(launches_inside(trace, events)),
        "host_ns": host_ns,
        "idle_ns": pd.arrays.IntegerArray(idle_ns, np.full(len(groups), trace.gpu_ops.empty)),
        "seen_ns": pd.arrays.IntegerArray(seen_ns, np.full(len(groups), trace.gpu_ops.empty)),
        "input_bytes": pd.arrays.IntegerArray(size_bytes, groups.any(np.asarray(sizes.isna()))),
        "steps": pd.arrays.IntegerArray(np.full(len(groups), len(steps)), np.full(len(groups), not len(steps))),
    }
    return table_of({name: values[order] for name, values in total.items()})


def across(parts: Mapping[int, pd.DataFrame]) -> HostWork:
    """The ranks' rows, longest first."""
    table = stack(parts, tuple(HostWork.columns))
    return HostWork(sorted_by(table, "host_ns"))


def steps_of_hosts(trace: RankTrace) -> pd.DataFrame:
    """Complete steps of those looked at; without GPU work no step has a GPU window, and all that are not cut count.

    Of chosen steps of which none is complete, all of them.
    """
    steps = trace.steps[~trace.steps["is_partial"]]
    steps = steps if trace.gpu_ops.empty else steps[~steps["is_open"] & steps["start_ns"].notna()]
    if trace.window.steps is None:
        return steps
    complete = steps[steps["step"].isin(trace.window.steps)]
    return complete if len(complete) else trace.steps[trace.steps["step"].isin(trace.window.steps)]


_WHATS = pd.CategoricalDtype([RANGE, COLLECTIVE, OPERATOR])


def _top_level(trace: RankTrace) -> pd.DataFrame:
    """Ranges and collectives that lie in no other, and operators outside of them, on each thread."""
    names = trace.ranges["name"]
    is_collective = host_names.matches(names, host_names.is_cpu_collective)
    is_place = host_names.matches(names, host_names.is_user_range)
    is_step = host_names.matches(names, set(trace.steps["name"].cat.categories).__contains__)
    ranges = np.flatnonzero((is_place | is_collective) & ~is_step)
    ranges = ranges[~_wraps(trace, ranges)]
    count = len(trace.host_ops)
    starts, ends, threads = (
        np.concatenate([trace.ranges[name].to_numpy()[ranges], trace.host_ops[name].to_numpy()])
        for name in ("start_ns", "end_ns", "thread")
    )
    # Ranges before operators of the same times; the longer first.
    is_operator = np.arange(len(starts)) >= len(ranges)
    order = np.lexsort((is_operator, -ends, starts, threads))
    order = order[ends[order] > largest_before(ends[order], threads[order])]
    called = joined([names.array[ranges], trace.host_ops["name"].array])
    sizes = trace.ranges["size_bytes"].array[ranges]
    size_bytes, is_absent = sizes.to_numpy(dtype=np.int64, na_value=1), np.asarray(sizes.isna())
    what = np.where(is_operator, 2, np.append(is_collective[ranges], np.zeros(count, dtype=bool)))
    columns = {
        "start_ns": starts[order],
        "end_ns": ends[order],
        "name": called[order],
        "thread": threads[order],
        "size_bytes": pd.arrays.IntegerArray(
            np.append(size_bytes, np.ones(count, dtype=np.int64))[order],
            np.append(is_absent, np.ones(count, dtype=bool))[order],
        ),
        "what": pd.Categorical.from_codes(what[order], dtype=_WHATS),
    }
    return pd.DataFrame(columns, copy=False)


def _wraps(trace: RankTrace, rows: np.ndarray) -> np.ndarray:
    """Which of these ranges take half of a step and hold another one of their thread."""
    begins, until = (trace.steps[name].to_numpy() for name in ("host_start_ns", "host_end_ns"))
    starts, ends, threads = (trace.ranges[name].to_numpy()[rows] for name in ("start_ns", "end_ns", "thread"))
    row = step_at(begins, until, starts)
    is_long = (row != NONE) & (ends - starts >= _WRAPPER_SHARE * np.append(until - begins, 0)[row])
    order = np.lexsort((-ends, starts, threads))
    holds = np.zeros(len(rows), dtype=bool)
    holds[order[:-1]] = (starts[order[1:]] < ends[order[:-1]]) & (threads[order[1:]] == threads[order[:-1]])
    wraps: np.ndarray = is_long & holds
    return wraps


def _inside(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Events that begin in a step, cut at its end; all of them without steps."""
    if steps.empty:
        return events
    ends = steps["host_end_ns"].to_numpy()
    row = step_at(steps["host_start_ns"].to_numpy(), ends, events["start_ns"].to_numpy())
    held = row != NONE
    inside = picked(events, held)
    return inside.assign(end_ns=np.minimum(inside["end_ns"].to_numpy(), ends[row[held]]))


def launches_inside(trace: RankTrace, events: pd.DataFrame) -> np.ndarray:
    """API calls with a GPU operation that begin in each event, on its thread."""
    has_op = trace.api_calls["has_gpu_op"].to_numpy()
    begun, thread_of = (trace.api_calls[name].to_numpy()[has_op] for name in ("start_ns", "thread"))
    starts, ends, threads = (events[name].to_numpy() for name in ("start_ns", "end_ns", "thread"))
    count = np.zeros(len(events), dtype=np.int64)
    for thread in np.unique(thread_of).tolist():
        rows = np.flatnonzero(threads == thread)
        times = np.sort(begun[thread_of == thread])
        count[rows] = np.searchsorted(times, ends[rows]) - np.searchsorted(times, starts[rows])
    return count


def idle_inside(trace: RankTrace, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Time of each event in which nothing ran on the GPU, and all of it, between the GPU's first and last operation."""
    ops = trace.gpu_ops
    if ops.empty:
        return np.zeros(len(starts), dtype=np.int64), np.zeros(len(starts), dtype=np.int64)
    first, last = int(ops["start_ns"].min()), int(ops["end_ns"].max())
    begin = np.clip(starts, first, last)
    end = np.clip(ends, first, last)
    seen = end - begin
    return seen - busy(trace).covered_ns(begin, end), seen


def _whole(values: pd.Series) -> pd.Series:
    return values.round().astype("Int64")
