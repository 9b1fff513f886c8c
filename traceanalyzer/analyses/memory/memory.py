"""GPU memory of each rank's allocator: levels, peaks, steps, calls."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, stack
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import names_around
from traceanalyzer.analyses.host.cpu_time import looked_at
from traceanalyzer.analyses.phases.phases import NAMES, phases_of_moments
from traceanalyzer.analyses.time.intervals import new_ns
from traceanalyzer.analyses.time.steps import complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    lengths_of,
    nullable,
    picked,
    rows_named_so,
    table_of,
    under_each_other,
)
from traceanalyzer.selection import step_at

# How much GPU memory each rank's allocator held while it was recorded, and the most that it did.


RECORDED = "run.json: whole run"

PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes")

ALLOCATED, RESERVED = "memory_allocated_bytes", "memory_reserved_bytes"
"""The trace's counters."""

_MODULE = "nn.Module: "


class Memory(Result):
    """One row for each rank whose trace has the allocator's events, or whose run.json has its peak."""

    title = "Memory"
    keys = ("rank",)
    derived = {"headroom_bytes": "device_bytes - peak_reserved_bytes", "headroom_pct": "headroom_bytes / device_bytes"}
    columns = declared(
        rank=RANK,
        source=(
            "Where the levels come from: the trace's `[memory]` events, one for each allocation and release; "
            "without them what run.json recorded of the whole run."
        ),
        events="Events that tell a level on the rank's GPU.",
        allocated_bytes=Column.size("What tensors held after the last event of the capture.", adds=Adds.EXTREME),
        peak_allocated_bytes=Column.size(
            "The most that tensors held after any event of the capture.", adds=Adds.EXTREME, better=Better.LESS
        ),
        reserved_bytes=Column.size(
            "What PyTorch's caching allocator had taken from the GPU after the last event.", adds=Adds.EXTREME
        ),
        peak_reserved_bytes=Column.size(
            "The most that it had taken after any event of the capture.", adds=Adds.EXTREME, better=Better.LESS
        ),
        device_bytes=Column.size("Memory of the GPU; absent where the trace does not say.", adds=Adds.NONE),
        headroom_bytes=Column.size(
            "Device − peak reserved: what was left beside the allocator, for it and for libraries.",
            adds=Adds.EXTREME,
            better=Better.MORE,
        ),
        headroom_pct=Column.share("100 · headroom / device.", better=Better.MORE),
        peak_ns=Column.moment(
            "The first event after which tensors held most; absent without events, as the next columns.",
            is_compared=False,
            is_secondary=True,
        ),
        step=Column.ident("Step that the host was in at that moment; absent outside any.", is_secondary=True),
        phase=Column.text("Phase that the host was in.", is_secondary=True),
        operator=Column.text(
            "Innermost operator on the thread; absent outside any.", written=Written.KERNEL, is_secondary=True
        ),
        module=Column.text("Innermost nn.Module on the thread, where Python frames were recorded.", is_secondary=True),
    )


def memory_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Last and highest levels of the whole capture, and what the host did at the peak: earlier steps may need more."""
    levels = {name.removeprefix("memory_"): moments(trace, name) for name in (ALLOCATED, RESERVED)}
    if all(held.empty for held in levels.values()):
        return pd.DataFrame()
    row: dict[str, object] = {"source": "[memory] events", "events": max(map(len, levels.values()))}
    for name, held in levels.items():
        own = held["level_bytes"]
        row |= {name: own.iloc[-1], f"peak_{name}": own.max()} if len(own) else {}
    row |= _at_peak(trace, levels["allocated_bytes"])
    return pd.DataFrame([row]).reindex(columns=[*_TYPES][1:]).astype(dict([*_TYPES.items()][1:]))


def _at_peak(trace: RankTrace, held: pd.DataFrame) -> dict[str, object]:
    """When tensors held most, and what is around that event on its thread."""
    if held.empty:
        return {}
    top = held.iloc[[int(array_of(held, "level_bytes").argmax())]]
    thread, time = array_of(top, "thread"), array_of(top, "time_ns")
    row = int(step_of(trace, time)[0])
    is_module = rows_named_so(trace.frames, lambda name: name.startswith(_MODULE))
    module = names_around(picked(trace.frames, is_module), thread, time)[0]
    return {
        "peak_ns": time[0],
        "step": pd.NA if row == NONE else trace.steps["step"].iloc[row],
        "phase": NAMES[phases_of_moments(trace, thread, time)[0]],
        "operator": names_around(trace.host_ops, thread, time)[0],
        "module": module and module.removeprefix(_MODULE),
    }


_TYPES = {
    "rank": "int64", "source": "str",
    **dict.fromkeys(("events", "allocated_bytes", "reserved_bytes", *PEAKS, "peak_ns", "step"), "Int64"),
    **dict.fromkeys(("phase", "operator", "module"), "str"),
}  # fmt: skip


def memory_across(
    parts: Mapping[int, pd.DataFrame], ranks: Ranks, run_memory: Mapping[int, Mapping[str, int]] | None = None
) -> Memory:
    """The ranks' rows under each other; `run_memory` is what the run itself recorded: rank → figure → bytes."""
    table = stack(parts, tuple(_TYPES))
    known = ranks.table.set_index("rank")["device_bytes"]
    recorded = [
        {"rank": rank, "source": RECORDED, **{name: own.get(name) for name in PEAKS}}
        for rank, own in sorted((run_memory or {}).items())
        if rank in known.index and rank not in set(table["rank"]) and own
    ]
    if recorded:
        more = pd.DataFrame(recorded).reindex(columns=[*_TYPES]).astype(_TYPES)
        table = under_each_other([table, more]) if len(table) else more
        table = table.sort_values("rank", ignore_index=True)
    return Memory(table.assign(device_bytes=table["rank"].map(known).astype("Int64")))


# The allocator's levels on a rank's GPU, moment by moment, as the trace's `[memory]` events tell them.


def moments(trace: RankTrace, name: str = ALLOCATED) -> pd.DataFrame:
    """One row for each event in order of time: `time_ns`, `thread`, `address`, `level_bytes`, `change_bytes`.

    The change is since the event before; `address` is that of the block that was given or taken back, NA where
    unknown. The first event's change is 0: what was in use before it is unknown. So they add up to last less first.
    """
    counters = trace.counters
    told = counters[(counters["name"] == name) & counters["value"].notna()]
    level = told["value"].to_numpy(np.int64)
    return table_of(
        {
            "time_ns": array_of(told, "time_ns"),
            "thread": array_of(told, "thread"),
            "address": told["address"].array,
            "level_bytes": level,
            "change_bytes": np.diff(level, prepend=level[:1]),
        }
    )


def step_of(trace: RankTrace, times: np.ndarray) -> np.ndarray:
    """Row in `trace.steps` of the step that the host was in, -1 for none: from its start to the next one's."""
    starts = array_of(trace.steps, "host_start_ns")
    return step_at(starts, np.append(starts[1:], array_of(trace.steps, "host_end_ns")[-1:]), times)


# How much memory each step needs at most, and whether it leaves more than it found.


_SIZES = ("start_bytes", "peak_allocated_bytes", "end_bytes", "peak_reserved_bytes")


class MemorySteps(Result):
    """One row for each rank and step in which its allocator was at work."""

    title = "Memory by step"
    keys = ("rank", "step")
    is_of_one_run = True
    derived = {"growth_bytes": "end_bytes - start_bytes"}
    columns = declared(
        rank=RANK,
        step="Number in the step's name, else its position.",
        events="Allocations and releases while the host was in the step.",
        start_bytes=Column.size(
            "What tensors held when the host began the step; absent when no event before it tells.", adds=Adds.EXTREME
        ),
        peak_allocated_bytes=Column.size("The most that tensors held in it.", adds=Adds.EXTREME, better=Better.LESS),
        end_bytes=Column.size("What tensors held after its last event.", adds=Adds.EXTREME),
        growth_bytes=Column.size("end − start: what the step left behind.", adds=Adds.DERIVED),
        peak_reserved_bytes=Column.size(
            "The most that the caching allocator had taken from the GPU in it.", adds=Adds.EXTREME, better=Better.LESS
        ),
    )


def memory_steps_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Levels by the step that the host was in: its range's start to the next one's."""
    held = moments(trace)
    row = step_of(trace, array_of(held, "time_ns"))
    if held.empty or (row < 0).all():
        return pd.DataFrame()
    levels = held["level_bytes"][row >= 0].groupby(row[row >= 0])
    table = levels.agg(events="size", peak_allocated_bytes="max", end_bytes="last")
    steps, taken = trace.steps.iloc[table.index], moments(trace, RESERVED)
    before = np.searchsorted(array_of(held, "time_ns"), array_of(steps, "host_start_ns")) - 1
    start = array_of(held, "level_bytes")[before]
    reserved = taken["level_bytes"].groupby(step_of(trace, array_of(taken, "time_ns"))).max().reindex(table.index)
    peak = np.maximum(array_of(table, "peak_allocated_bytes"), np.where(before < 0, 0, start))
    table = table.assign(
        step=array_of(steps, "step"),
        start_bytes=nullable(start, before < 0),
        peak_allocated_bytes=peak,
        peak_reserved_bytes=reserved,
    )
    return table.reset_index(drop=True).astype(dict.fromkeys(("step", *_SIZES), "Int64"))


# Calls by which the caching allocator takes memory from the GPU and gives it back, by step, with the host's time.


class MemoryCalls(Result):
    """One row for each rank, step and function; `step` is absent for calls outside any."""

    title = "Calls for GPU memory"
    keys = ("rank", "step", "name")
    is_of_one_run = True
    columns = declared(
        rank=RANK,
        step="Step that the host was in; absent outside any.",
        name="Function.",
        calls=Column.count("Its calls."),
        host_ns=Column.time(
            "Time of the host in them, once where threads are in several; cudaFree waits for the GPU too.", leads=True
        ),
        longest_ns="The longest of them.",
        is_complete="The step counts in means.",
    )


def memory_calls_per_rank(trace: RankTrace, steps: pd.DataFrame) -> pd.DataFrame:
    """Group the calls of the whole capture, or of the chosen steps, by step and name."""
    calls = trace.api_calls[rows_named_so(trace.api_calls, host_names.is_memory_call)]
    numbers = np.append(array_of(trace.steps, "step"), NONE)[step_of(trace, array_of(calls, "start_ns"))]
    if trace.window.steps is not None:
        held = np.isin(numbers, trace.window.steps)
        calls, numbers = calls[held], numbers[held]
    if calls.empty:
        return pd.DataFrame()
    complete = set(complete_steps(steps)["step"]) if len(steps) else set()
    starts, ends = looked_at(trace, array_of(calls, "start_ns"), array_of(calls, "end_ns"))
    columns = {"step": numbers, "name": calls["name"].astype("str").to_numpy(), "length": lengths_of(calls)}
    by_name = table_of(columns | {"new": new_ns(starts, ends, numbers)}).groupby(["step", "name"])
    grouped = by_name.agg(calls=("new", "size"), host_ns=("new", "sum"), longest_ns=("length", "max")).reset_index()
    is_complete, step = grouped["step"].isin(complete), grouped["step"].where(grouped["step"] >= 0).astype("Int64")
    return grouped.assign(step=step, is_complete=is_complete)
