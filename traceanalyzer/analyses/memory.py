"""GPU memory of each rank's allocator: levels, peaks, steps, calls, categories; and what a model should need."""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import RANK, Result, stack
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import names_around, range_around
from traceanalyzer.analyses.host.cpu_time import looked_at
from traceanalyzer.analyses.intervals import new_ns
from traceanalyzer.analyses.phases import NAMES, PHASE_NAMES, phases_of_moments
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.job.model_state import SHARDED, Model, Needs, assumptions, choices, needs
from traceanalyzer.meaning.columns import Adds, Better, Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    nullable,
    picked,
    rows_named_so,
    sorted_by,
    table_of,
    under_each_other,
)
from traceanalyzer.selection import step_at

# How much GPU memory each rank's allocator held while it was recorded, and the most that it did.


RECORDED = "run.json or log: whole run"

PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes")

ALLOCATED, RESERVED = "memory_allocated_bytes", "memory_reserved_bytes"
"""The trace's counters."""

_MODULE = "nn.Module: "


class Memory(Result):
    """One row for each rank whose trace has the allocator's events, or whose run.json has its peak."""

    title = "Memory by rank"
    keys = ("rank",)
    derived = {"headroom_bytes": "device_bytes - peak_reserved_bytes", "headroom_pct": "headroom_bytes / device_bytes"}
    columns = declared(
        rank=RANK,
        source=(
            "Where the levels come from: the trace's `[memory]` events, one for each allocation and release; "
            "without them what run.json or a framework's log says of the whole run."
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
        device_bytes="Memory of the GPU; absent where the trace does not say.",
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
    levels = counters[(counters["name"] == name) & counters["value"].notna()]
    level = levels["value"].to_numpy(np.int64)
    return table_of(
        {
            "time_ns": array_of(levels, "time_ns"),
            "thread": array_of(levels, "thread"),
            "address": levels["address"].array,
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
    )


def memory_calls_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the calls of the whole capture, or of the chosen steps, by step and name."""
    calls = trace.api_calls[rows_named_so(trace.api_calls, host_names.is_memory_call)]
    numbers = np.append(array_of(trace.steps, "step"), NONE)[step_of(trace, array_of(calls, "start_ns"))]
    if trace.window.steps is not None:
        held = np.isin(numbers, trace.window.steps)
        calls, numbers = calls[held], numbers[held]
    if calls.empty:
        return pd.DataFrame()
    starts, ends = looked_at(trace, array_of(calls, "start_ns"), array_of(calls, "end_ns"))
    columns = {"step": numbers, "name": calls["name"].astype("str").to_numpy()}
    by_name = table_of(columns | {"new": new_ns(starts, ends, numbers)}).groupby(["step", "name"])
    grouped = by_name["new"].agg(calls="size", host_ns="sum").reset_index()
    return grouped.assign(step=grouped["step"].where(grouped["step"] >= 0).astype("Int64"))


# What the memory of a rank's GPU is held for, moment by moment, as events and the operator tree tell it.


CATEGORIES = ("gradients", "optimizer state", "activations", "communication", "temporaries", "unknown")
"""What a block may be. Parameters are there before a capture begins: they are part of what is unknown."""

HELD_UNKNOWN = len(CATEGORIES) - 1

_COMMUNICATION = re.compile(
    r"^(c10d|nccl|fsdp)::|record_param_comms|all_?gather|reduce_?scatter|all_?reduce|all_?to_?all|post_backward_reduce",
    re.IGNORECASE,
)

_NEVER = "never"


class Held(Struct, frozen=True):
    """Levels by category.

    Attributes:
        events: as `levels.moments` gives them.
        level_bytes: a row for each event, a column for each of CATEGORIES: what was in use after it; a row adds up to
            the event's level.
    """

    events: pd.DataFrame
    level_bytes: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace) -> "Held":
        """Follow each block from the event that gave it to the one that took it back, by its address."""
        events = moments(trace)
        if events.empty or events["address"].isna().all():
            return cls(events.iloc[:0], np.zeros((0, len(CATEGORIES)), dtype=np.int64))
        lives = _lives(events)
        category, size_bytes = _categories(trace, events, lives), array_of(lives, "size_bytes")
        change = np.zeros((len(events) + 1, len(CATEGORIES)), dtype=np.int64)
        np.add.at(change, (array_of(lives, "born"), category), size_bytes)
        np.subtract.at(change, (array_of(lives, "died"), category), size_bytes)
        level = np.cumsum(change[:-1], axis=0)
        level[:, HELD_UNKNOWN] = array_of(events, "level_bytes") - level[:, :HELD_UNKNOWN].sum(axis=1)
        return cls(events, level)


def _lives(events: pd.DataFrame) -> pd.DataFrame:
    """Blocks given in the capture: `born` and `died` (rows of events, their number for never), `size_bytes`."""
    row = np.flatnonzero((events["address"].notna() & (events["change_bytes"] != 0)).to_numpy())
    address = events["address"].to_numpy(dtype=np.int64, na_value=-1)[row]
    change = array_of(events, "change_bytes")[row]
    order = np.lexsort((row, address))
    row, address, change = row[order], address[order], change[order]
    follows = np.append(address[1:] == address[:-1], False)
    is_ended = follows & np.append(change[1:] < 0, False)
    died = np.where(is_ended, np.append(row[1:], 0), len(events))
    is_birth = change > 0
    return table_of({"born": row[is_birth], "died": died[is_birth], "size_bytes": change[is_birth]})


def _categories(trace: RankTrace, events: pd.DataFrame, lives: pd.DataFrame) -> np.ndarray:
    """Position in CATEGORIES of each block, by what the host did when it was given and when it was taken back."""
    threads, times = array_of(events, "thread"), array_of(events, "time_ns")
    names = np.array([*NAMES, _NEVER], dtype=object)
    phase = np.append(phases_of_moments(trace, threads, times), len(NAMES))
    born, died = names[phase[lives["born"]]], names[phase[lives["died"]]]
    is_comm = _in_communication(trace, threads, times)[lives["born"]]
    is_back, is_forward, is_optimizer = (born == name for name in ("backward", "forward", "optimizer"))
    within = born == died
    answers = (
        (is_comm, "communication"),
        ((is_back | is_forward | is_optimizer) & within, "temporaries"),
        (is_back, "gradients"),
        (is_forward, "activations"),
        (is_optimizer & (died == _NEVER), "optimizer state"),
    )
    found: np.ndarray = np.select(
        [mask for mask, _ in answers], [CATEGORIES.index(name) for _, name in answers], default=HELD_UNKNOWN
    )
    return found


def _in_communication(trace: RankTrace, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Moments inside an operator or range of communication on their thread."""
    columns = ["start_ns", "end_ns", "thread"]
    frames = [
        frame.loc[rows_named_so(frame, lambda name: bool(_COMMUNICATION.search(name))), columns]
        for frame in (trace.host_ops, trace.ranges)
    ]
    return range_around(under_each_other(frames), threads, times) >= 0


# What the peak of each rank's memory is held for: gradients, activations, optimizer state, communication.


class MemoryCategories(Result):
    """One row for each rank and category, where the trace has the allocator's events with their addresses.

    A block is `temporaries` when it is taken back in the phase that it was given in; else `activations` when it was
    given in the forward pass, `gradients` in the backward pass, `optimizer state` in the optimizer and kept to the
    capture's end; `communication` when it was given inside a collective's operator. All else is `unknown`: above all
    what was there before the capture, such as parameters.
    """

    title = "Memory at the peak by category"
    keys = ("rank", "category")
    is_of_a_moment = True
    derived = {"share_pct": "peak_bytes / rank"}
    columns = declared(
        rank=RANK,
        category="What the memory is used for, from events and operators.",
        peak_bytes=Column.size(
            "Bytes at the rank's peak; over categories they add up to `peak_allocated_bytes`.", better=Better.LESS
        ),
        share_pct="100 · bytes / the rank's peak.",
        most_bytes="The most that the category held at any moment.",
    )


def memory_categories_per_rank(_trace: RankTrace, held: Held) -> pd.DataFrame:
    """The categories at the first event of the highest level; of the whole capture, as the peak."""
    if held.events.empty:
        return pd.DataFrame()
    top = int(array_of(held.events, "level_bytes").argmax())
    return table_of(
        {
            "category": np.array(CATEGORIES, dtype=object),
            "peak_bytes": held.level_bytes[top],
            "most_bytes": held.level_bytes.max(axis=0),
        }
    )


# The memory of each rank's GPU over time by category, thinned to what a picture shows.


COLUMN = {name: f"{name.replace(' ', '_')}_bytes" for name in CATEGORIES}
"""Category → column."""


class MemoryLevels(Result):
    """One row for each rank and moment: of each of several hundred equal stretches its highest moment, and its last.

    What lies between is lower than the one or follows from the next; the categories add up to `allocated_bytes`.
    """

    title = "Memory over time by category"
    is_detail = True
    is_of_one_run = True
    keys = ("rank", "time_ns")
    columns = {
        "rank": RANK,
        "time_ns": Column.moment("Of the event."),
        "allocated_bytes": Column.size("What tensors held after it.", adds=Adds.EXTREME),
        **{
            column: Column.size(f"Of that {name}, as `memory_categories` has it.", adds=Adds.EXTREME)
            for name, column in COLUMN.items()
        },
        "is_peak": Column.flag("The rank's peak."),
    }


def memory_levels_per_rank(_trace: RankTrace, held: Held, memory_points: int = 600) -> pd.DataFrame:
    """At most `memory_points` stretches of the whole capture."""
    if held.events.empty:
        return pd.DataFrame()
    times, level = array_of(held.events, "time_ns"), array_of(held.events, "level_bytes")
    span = max(int(times[-1] - times[0]), 1)
    stretch = np.minimum((times - times[0]) * memory_points // span, memory_points - 1)
    by_stretch = pd.Series(level).groupby(stretch)
    kept = np.union1d(by_stretch.idxmax().to_numpy(), np.append(np.flatnonzero(np.diff(stretch)), len(level) - 1))
    table = table_of(
        {
            "time_ns": times[kept],
            "allocated_bytes": level[kept],
            **{COLUMN[name]: held.level_bytes[kept, place] for place, name in enumerate(CATEGORIES)},
            "is_peak": kept == int(level.argmax()),
        }
    )
    # Of events of one moment the last one speaks, but for the peak.
    table = table.iloc[np.lexsort((table["is_peak"], table["time_ns"]))]
    return table.drop_duplicates("time_ns", keep="last", ignore_index=True)


# Which operators allocate memory, in which phase, and how much of it stays.


MEMORY_SOURCES_UNKNOWN = "unknown"


class MemorySources(Result):
    """One row for each rank, phase and operator; what stays adds up to the change over the capture."""

    title = "Memory by phase and operator"
    keys = ("rank", "phase", "operator")
    derived = {"stays_bytes": "allocated_bytes - freed_bytes"}
    columns = declared(
        rank=RANK,
        phase="Phase that the host was in; unattributed when neither ranges nor autograd tell.",
        operator=Column.text(
            "Innermost operator on the thread at the event; unknown outside any, as when Python frees a tensor.",
            written=Written.KERNEL,
        ),
        events=Column.count("Allocations and releases."),
        allocated_bytes="Sum of its allocations.",
        freed_bytes="Sum of its releases.",
        stays_bytes=Column.size(
            "allocated − freed. Over all rows of a rank: the level after the last event less that after the first.",
            adds=Adds.DERIVED,
        ),
    )


def memory_sources_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Add up the changes of the level by phase and innermost operator, largest allocations first."""
    held = moments(trace)
    if held.empty:
        return pd.DataFrame()
    threads, times = array_of(held, "thread"), array_of(held, "time_ns")
    operators = names_around(trace.host_ops, threads, times)
    change = array_of(held, "change_bytes")
    table = table_of(
        {
            "phase": PHASE_NAMES[phases_of_moments(trace, threads, times)],
            "operator": np.where(pd.isna(operators), MEMORY_SOURCES_UNKNOWN, operators),
            "events": 1,
            "allocated_bytes": np.maximum(change, 0),
            "freed_bytes": np.maximum(-change, 0),
        }
    )
    return sorted_by(table.groupby(["phase", "operator"], as_index=False).sum(), "allocated_bytes")


SAFE_PCT = 90.0
"""Of the GPU's memory that an estimate may take: fragments, libraries and its own error need the rest."""

YES, TIGHT, NO, OPEN = "yes", "tight", "no", "state does, activations are not known"

_FIT_SIZES = (
    "parameter_bytes", "gradient_bytes", "optimizer_bytes", "state_bytes", "buffer_bytes", "activation_bytes",
    "total_bytes", "device_bytes", "headroom_bytes", "measured_peak_bytes",
)  # fmt: skip


_MOST_BYTES = np.iinfo(np.int64).max // 2
"""What is more fits into no table, and no run has it."""


class MemoryFit(Result):
    """One row for each strategy, with and without activation checkpointing, and for smaller micro-batches; an estimate.

    Rows are in the order of what they cost: by strategy first. No rows unless run.json or `--model` tells the
    number of parameters.
    """

    title = "Memory expected, by strategy"
    keys = ("strategy", "tp", "pp", "checkpointing", "micro_batch")
    is_of_one_run = True
    columns = declared(
        strategy=(
            f"{', '.join(SHARDED)}: what data-parallel ranks share of the model's state. zero3 is FSDP with full "
            "sharding, offload that with its state on the host."
        ),
        tp=Column.ident("Ranks that share each layer (tensor parallelism)."),
        pp=Column.ident("Stages of the pipeline."),
        checkpointing=Column.flag("Layers are recomputed in the backward pass: only their inputs are kept."),
        micro_batch=Column.number("Samples of a micro-step on a data-parallel rank; absent where not known."),
        is_own="The run's own strategy, as run.json or `--model` says it.",
        parameter_bytes=Column.size("Parameters on one GPU.", adds=Adds.NONE),
        gradient_bytes=Column.size("Gradients on one GPU.", adds=Adds.NONE),
        optimizer_bytes=Column.size("The optimizer's values and master copies on one GPU.", adds=Adds.NONE),
        state_bytes=Column.size("The three together.", adds=Adds.NONE),
        buffer_bytes=Column.size(
            "DDP's buckets, or two gathered layers and one layer's gradients; n/a without the number of layers.",
            adds=Adds.NONE,
        ),
        activation_bytes=Column.size(
            "Activations of a transformer of this shape; n/a where layers, d_model, seq or batch are not known.",
            adds=Adds.NONE,
        ),
        total_bytes=Column.size("State, buffers and activations; n/a where one of them is.", adds=Adds.NONE),
        device_bytes="Memory of the smallest GPU, or as `--model gpu=` says.",
        headroom_bytes=Column.size("Device − total; negative when it does not fit.", adds=Adds.NONE),
        fits=(
            f"`{YES}`: the total is at most {SAFE_PCT:.0f}% of the device; `{TIGHT}`: it is below the device; `{NO}`; "
            f"`{OPEN}`; absent where the device's memory is not known."
        ),
        is_enough="The first row that fits: the least that is needed at this micro-batch.",
        measured_peak_bytes=Column.size(
            "Largest peak of the ranks' allocated memory, as run.json has it, else the trace; of the run's own row.",
            adds=Adds.NONE,
        ),
        assumptions=Column.text("What the estimate supposes.", is_secondary=True),
    )


def memory_fit_across(
    ranks: Ranks,
    memory: Memory,
    trained_model: Model | None = None,
    run_memory: Mapping[int, Mapping[str, int]] | None = None,
) -> MemoryFit:
    """The model's needs under every strategy.

    `trained_model` is what run.json or the user says of it, `run_memory` what the run itself recorded.
    """
    if trained_model is None:
        return MemoryFit.without_rows()
    return estimate(trained_model, _smallest(ranks), _world(ranks), _peak(memory, run_memory))


def estimate(own: Model, device_bytes: int | None, world: int | None, peak_bytes: int | None) -> MemoryFit:
    """The needs of a job's model under every strategy.

    Args:
        own: the model as the job trains it.
        device_bytes: memory of the smallest GPU, where the model does not tell it.
        world: ranks of the job, where the model does not tell how many share its state.
        peak_bytes: largest peak of the ranks' allocated memory, measured.
    """
    model = placed(own, device_bytes, world)
    rows = [_row(one, needed, own) for one, needed in choices(model)]
    rows = [
        {name: None if isinstance(value, int) and abs(value) > _MOST_BYTES else value for name, value in row.items()}
        for row in rows
    ]
    table = pd.DataFrame(rows).astype({"micro_batch": "Int64", **dict.fromkeys(_FIT_SIZES, "Int64")})
    is_own = table["is_own"]
    table.loc[is_own, "measured_peak_bytes"] = peak_bytes
    fits = table["fits"] == YES
    first = fits & ~fits.groupby(table["micro_batch"], dropna=False).cumsum().gt(1)
    return MemoryFit(table.assign(is_enough=first, assumptions=assumptions(model)))


def placed(own: Model, device_bytes: int | None, world: int | None) -> Model:
    """The model with its GPU and the ranks that share its state, where it does not tell them itself."""
    return replace(own, gpu=own.gpu or device_bytes, dp=own.dp or max((world or 1) // (own.tp * own.pp), 1))


def largest_batch(model: Model) -> tuple[int, int] | None:
    """The largest micro-batch, by halves, with which the model fits as it is trained, and what it takes then."""
    batch = model.batch or 0
    while model.gpu and batch:
        total = needs(replace(model, batch=batch)).total_bytes
        if total is None:
            return None
        if 100 * total <= SAFE_PCT * model.gpu:
            return batch, total
        batch //= 2
    return None


def _row(one: Model, needed: Needs, own: Model) -> dict[str, object]:
    total = needed.total_bytes
    return {
        **asdict(needed),
        "strategy": one.strategy,
        "tp": one.tp,
        "pp": one.pp,
        "checkpointing": one.checkpoint,
        "micro_batch": one.batch,
        "is_own": _setting(one) == _setting(own),
        "state_bytes": needed.state_bytes,
        "total_bytes": total,
        "device_bytes": one.gpu,
        "headroom_bytes": None if total is None or one.gpu is None else one.gpu - total,
        "fits": _fits(needed, one.gpu),
        "measured_peak_bytes": None,
    }


def _setting(model: Model) -> tuple[object, ...]:
    return model.strategy, model.tp, model.pp, model.checkpoint, model.batch


def _fits(needed: Needs, device: int | None) -> str | None:
    if device is None:
        return None
    total = needed.total_bytes
    if total is None:
        return OPEN if needed.state_bytes <= device else NO
    return NO if total > device else YES if 100 * total <= SAFE_PCT * device else TIGHT


def _smallest(ranks: Ranks) -> int | None:
    known = ranks.table["device_bytes"].dropna()
    return int(known.min()) if len(known) else None


def _world(ranks: Ranks) -> int:
    sizes = ranks.table["world_size"].dropna()
    return int(sizes.max()) if len(sizes) else len(ranks)


def _peak(memory: Memory, run_memory: Mapping[int, Mapping[str, int]] | None) -> int | None:
    """The run's own record is of all its steps; a capture's is of the recorded ones."""
    recorded = [own["peak_allocated_bytes"] for own in (run_memory or {}).values() if "peak_allocated_bytes" in own]
    peaks = memory.table["peak_allocated_bytes"].dropna() if len(memory) else list[int]()
    return max(recorded) if recorded else int(max(peaks)) if len(peaks) else None
