"""What GPU memory is used for, over time and at the peak, and which operators allocate it."""

import re

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import RANK, Result
from traceanalyzer.analyses.host.activity import names_around, range_around
from traceanalyzer.analyses.memory.memory import moments
from traceanalyzer.analyses.phases.phases import NAMES, phases_of_moments
from traceanalyzer.meaning.columns import Adds, Better, Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, rows_named_so, sorted_by, table_of, under_each_other

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
        blocks: blocks in use after each event, by category; of `unknown` those that the events know.
    """

    events: pd.DataFrame
    level_bytes: np.ndarray
    blocks: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace) -> "Held":
        """Follow each block from the event that gave it to the one that took it back, by its address."""
        events = moments(trace)
        count = len(CATEGORIES)
        if events.empty or events["address"].isna().all():
            return cls(events.iloc[:0], np.zeros((0, count), dtype=np.int64), np.zeros((0, count), dtype=np.int64))
        lives = _lives(events)
        category = _categories(trace, events, lives)
        level = _summed(len(events), lives, category, array_of(lives, "size_bytes"))
        blocks = _summed(len(events), lives, category, np.ones(len(lives), dtype=np.int64))
        level[:, HELD_UNKNOWN] = array_of(events, "level_bytes") - level[:, :HELD_UNKNOWN].sum(axis=1)
        return cls(events, level, blocks)


def _lives(events: pd.DataFrame) -> pd.DataFrame:
    """Blocks given in the capture: `born` and `died` (rows of events, their number for never), `size_bytes`."""
    told = np.flatnonzero((events["address"].notna() & (events["change_bytes"] != 0)).to_numpy())
    address = events["address"].to_numpy(dtype=np.int64, na_value=-1)[told]
    change = array_of(events, "change_bytes")[told]
    order = np.lexsort((told, address))
    told, address, change = told[order], address[order], change[order]
    follows = np.append(address[1:] == address[:-1], False)
    is_ended = follows & np.append(change[1:] < 0, False)
    died = np.where(is_ended, np.append(told[1:], 0), len(events))
    is_birth = change > 0
    return table_of({"born": told[is_birth], "died": died[is_birth], "size_bytes": change[is_birth]})


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


def _summed(events: int, lives: pd.DataFrame, category: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sum of the weights of the blocks that live after each event, by category."""
    change = np.zeros((events + 1, len(CATEGORIES)), dtype=np.int64)
    np.add.at(change, (array_of(lives, "born"), category), weights)
    np.subtract.at(change, (array_of(lives, "died"), category), weights)
    return np.cumsum(change[:events], axis=0)


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
        blocks=Column.count("Blocks in use at the peak; of unknown those that were given in the capture."),
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
            "blocks": held.blocks[top],
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
            "phase": np.array(NAMES, dtype=object)[phases_of_moments(trace, threads, times)],
            "operator": np.where(pd.isna(operators), MEMORY_SOURCES_UNKNOWN, operators),
            "events": 1,
            "allocated_bytes": np.maximum(change, 0),
            "freed_bytes": np.maximum(-change, 0),
        }
    )
    return sorted_by(table.groupby(["phase", "operator"], as_index=False).sum(), "allocated_bytes")
