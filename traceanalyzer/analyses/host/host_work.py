"""What the CPU itself does in a step, thread by thread, and how much of that the GPU spends idle."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack, typed
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.thread_roles import thread_roles
from traceanalyzer.analyses.time.intervals import Intervals
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.selection import step_at

RANGE, OPERATOR, COLLECTIVE = "range", "operator", "collective"

_WRAPPER_SHARE = 0.5
"""A range that takes this much of a step and holds other ranges says no more than the step does."""


class HostWork(Result):
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
        "steps": Column.count("Complete steps that it is of; absent for the whole capture.", adds=Adds.NONE),
        "host_per_step_ns": Column.time("Time in it / steps.", adds=Adds.DERIVED),
        "idle_per_step_ns": Column.time("GPU idle time in it / steps.", adds=Adds.DERIVED),
        "idle_pct": Column.share("100 · GPU idle time in it / time in it.", better=Better.LESS),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(
            host_per_step_ns=_whole(ratio(table["host_ns"], table["steps"])),
            idle_per_step_ns=_whole(ratio(table["idle_ns"], table["steps"])),
            idle_pct=percent(table["idle_ns"], table["host_ns"]),
        )


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's top-level ranges, collectives and operators of its complete steps, else of the whole capture."""
    if trace.ranges.empty and trace.host_ops.empty:
        return pd.DataFrame()
    steps = _steps(trace)
    events = _inside(_top_level(trace), steps)
    if events.empty:
        return pd.DataFrame()
    roles = thread_roles(trace)
    starts, ends = events["start_ns"].to_numpy(), events["end_ns"].to_numpy()
    table = pd.DataFrame(
        {
            "role": events["thread"].map(roles).astype("str"),
            "what": events["what"],
            "name": events["name"].astype("str"),
            "thread": events["thread"],
            "launches": _launches(trace, events),
            "input_bytes": events["size_bytes"].astype("Int64"),
            "host_ns": ends - starts,
            "idle_ns": _idle_ns(trace, starts, ends),
        }
    )
    groups = table.groupby(["role", "what", "name"], sort=False)
    total = groups[["launches", "host_ns", "idle_ns"]].sum().astype("int64")
    total["input_bytes"] = groups["input_bytes"].agg(lambda sizes: sizes.sum(skipna=False))
    total.insert(0, "calls", groups.size())
    total.insert(0, "threads", groups["thread"].nunique())
    if trace.gpu_ops.empty:
        total["idle_ns"] = pd.array([pd.NA] * len(total), dtype="Int64")
    total = total.sort_values("host_ns", ascending=False, kind="stable").reset_index()
    return typed(
        total.assign(steps=len(steps) or pd.NA), {"idle_ns": "Int64", "steps": "Int64", "input_bytes": "Int64"}
    )


def across(parts: Mapping[int, pd.DataFrame]) -> HostWork:
    """The ranks' rows, longest first."""
    table = stack(parts, tuple(HostWork.columns))
    return HostWork(table.sort_values("host_ns", ascending=False, kind="stable", ignore_index=True))


def _steps(trace: RankTrace) -> pd.DataFrame:
    """Complete steps of those looked at; without GPU work no step has a GPU window, and all that are not cut count.

    Of chosen steps of which none is complete, all of them.
    """
    steps = trace.steps[~trace.steps["is_partial"]]
    steps = steps if trace.gpu_ops.empty else steps[~steps["is_open"] & steps["start_ns"].notna()]
    if trace.window.steps is None:
        return steps
    complete = steps[steps["step"].isin(trace.window.steps)]
    return complete if len(complete) else trace.steps[trace.steps["step"].isin(trace.window.steps)]


def _top_level(trace: RankTrace) -> pd.DataFrame:
    """Ranges and collectives that lie in no other, and operators outside of them, on each thread."""
    ranges = trace.ranges[["start_ns", "end_ns", "name", "thread", "size_bytes"]]
    is_collective = host_names.matches(ranges["name"], host_names.is_cpu_collective)
    is_place = host_names.matches(ranges["name"], host_names.is_user_range)
    is_step = ranges["name"].isin(trace.steps["name"].cat.categories).to_numpy()
    ranges = ranges.assign(what=np.where(is_collective, COLLECTIVE, RANGE))
    ranges = _without_wrappers(ranges[(is_place | is_collective) & ~is_step], trace.steps)
    operators = trace.host_ops[["start_ns", "end_ns", "name", "thread"]].assign(what=OPERATOR, size_bytes=pd.NA)
    parts = [typed(part, {"name": "object", "size_bytes": "Int64"}) for part in (ranges, operators)]
    events = pd.concat(parts, ignore_index=True)
    # Ranges before operators of the same times; the longer first.
    order = np.lexsort((events["what"] == OPERATOR, -events["end_ns"], events["start_ns"], events["thread"]))
    events = events.iloc[order].reset_index(drop=True)
    reach = events.groupby("thread")["end_ns"].cummax().groupby(events["thread"]).shift(fill_value=NONE)
    return events[events["end_ns"] > reach].reset_index(drop=True)


def _without_wrappers(ranges: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Ranges without those that take half of a step and hold another one of their thread."""
    length = (steps["host_end_ns"] - steps["host_start_ns"]).to_numpy(dtype=np.int64)
    row = step_at(steps["host_start_ns"].to_numpy(), steps["host_end_ns"].to_numpy(), ranges["start_ns"].to_numpy())
    of_step = np.append(length, 0)[row]
    is_long = (row != NONE) & ((ranges["end_ns"] - ranges["start_ns"]).to_numpy() >= _WRAPPER_SHARE * of_step)
    ordered = ranges.sort_values(["thread", "start_ns", "end_ns"], ascending=[True, True, False])
    following = ordered.groupby("thread")["start_ns"].shift(-1).reindex(ranges.index)
    holds = (following < ranges["end_ns"]).fillna(value=False).to_numpy(dtype=bool)
    return ranges[~(is_long & holds)]


def _inside(events: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Events that begin in a step, cut at its end; all of them without steps."""
    if steps.empty:
        return events
    ends = steps["host_end_ns"].to_numpy()
    row = step_at(steps["host_start_ns"].to_numpy(), ends, events["start_ns"].to_numpy())
    held = events[row != NONE]
    return held.assign(end_ns=np.minimum(held["end_ns"], ends[row[row != NONE]]))


def _launches(trace: RankTrace, events: pd.DataFrame) -> np.ndarray:
    """API calls with a GPU operation that begin in each event, on its thread."""
    calls = trace.api_calls[trace.api_calls["has_gpu_op"]]
    count = np.zeros(len(events), dtype=np.int64)
    for thread, own in calls.groupby("thread"):
        rows = np.flatnonzero((events["thread"] == thread).to_numpy())
        times = np.sort(own["start_ns"].to_numpy())
        bounds = [np.searchsorted(times, events[name].to_numpy()[rows]) for name in ("start_ns", "end_ns")]
        count[rows] = bounds[1] - bounds[0]
    return count


def _idle_ns(trace: RankTrace, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Time of each event in which nothing ran on the GPU, between its first and last operation."""
    ops = trace.gpu_ops
    if ops.empty:
        return np.zeros(len(starts), dtype=np.int64)
    first, last = int(ops["start_ns"].min()), int(ops["end_ns"].max())
    begin = np.clip(starts, first, last)
    end = np.clip(ends, first, last)
    busy = Intervals.of(ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy())
    idle: np.ndarray = (end - begin) - busy.covered_ns(begin, end)
    return idle


def _whole(values: pd.Series) -> pd.Series:
    return values.round().astype("Int64")
