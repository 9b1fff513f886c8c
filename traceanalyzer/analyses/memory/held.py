"""What the memory of a rank's GPU is held for, moment by moment, as events and the operator tree tell it."""

import re

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.host.host_activity import range_around
from traceanalyzer.analyses.memory.levels import moments
from traceanalyzer.analyses.phases.op_phases import NAMES, phases_of_moments
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named_so
from traceanalyzer.model.tables import array_of, table_of, under_each_other

CATEGORIES = ("gradients", "optimizer state", "activations", "communication", "temporaries", "unknown")
"""What a block may be. Parameters are there before a capture begins: they are part of what is unknown."""

UNKNOWN = len(CATEGORIES) - 1

_COMMUNICATION = re.compile(
    r"^(c10d|nccl|fsdp)::|record_param_comms|all_?gather|reduce_?scatter|all_?reduce|all_?to_?all|post_backward_reduce",
    re.IGNORECASE,
)

_NEVER = "never"


class Held(Struct, frozen=True):
    """Levels by category.

    Attributes:
        events: as `levels.moments` gives them.
        level_bytes: a row for each event, a column for each of CATEGORIES: what was held after it; a row adds up to
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
        level[:, UNKNOWN] = array_of(events, "level_bytes") - level[:, :UNKNOWN].sum(axis=1)
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
        [mask for mask, _ in answers], [CATEGORIES.index(name) for _, name in answers], default=UNKNOWN
    )
    return found


def _in_communication(trace: RankTrace, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Moments inside an operator or range of communication on their thread."""
    columns = ["start_ns", "end_ns", "thread"]
    frames = [
        frame.loc[rows_named_so(frame, lambda name: bool(_COMMUNICATION.search(name))), columns]
        for frame in (trace.host_ops, trace.ranges)
    ]
    inside: np.ndarray = range_around(under_each_other(frames), threads, times) >= 0
    return inside


def _summed(events: int, lives: pd.DataFrame, category: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sum of the weights of the blocks that live after each event, by category."""
    change = np.zeros((events + 1, len(CATEGORIES)), dtype=np.int64)
    np.add.at(change, (array_of(lives, "born"), category), weights)
    np.subtract.at(change, (array_of(lives, "died"), category), weights)
    summed: np.ndarray = np.cumsum(change[:events], axis=0)
    return summed
