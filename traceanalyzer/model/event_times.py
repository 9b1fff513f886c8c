"""Times of events that cannot be: such events are left out, or count as taking no time, and are counted."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of

LATEST_NS = 5 * 10**18
"""The year 2128. A time of any int64 and a clock's start of at most 4·10¹⁸, added, lie beyond where they overflow."""

UNKNOWN_NS = np.iinfo(np.int64).min
"""Stands for a time that is not there: with a clock's start added it is one that cannot be."""

LONGEST_NS = 10**15
"""No event lasts longer than twelve days."""

LONGEST_CAPTURE_NS = 24 * 3600 * 10**9
"""No recording lasts longer."""

OUTSIDE_NS = 10 * 10**9
"""No operation runs so long before a recording began, or after it ended, however clocks of GPU and host differ."""

Recorded = tuple[int | None, int | None]
"""When a recording began and ended, where its file says so."""

_FEW = 0.1
"""So many events of a kind that lie further from the others are two recordings; fewer are damaged."""


class Possible(Struct, frozen=True):
    """Tables of events that can be.

    Attributes:
        frames: the tables; `comm_args.gpu_op` refers to the operations that are left.
        left_out: events whose time or length cannot be.
        backwards: events that ended before they started: they are kept, and take no time.
    """

    frames: dict[str, pd.DataFrame]
    left_out: int
    backwards: int


def possible(frames: Mapping[str, pd.DataFrame], recorded: Recorded = (None, None)) -> Possible:
    """The tables without what cannot be. Almost always nothing is to be done."""
    kept, left_out, backwards = dict(frames), 0, 0
    middle_ns = _middle_ns(frames)
    for name in frames:
        frame = kept[name]  # of arguments those whose operations are left
        if "start_ns" not in frame or frame.empty:
            continue
        start, end = array_of(frame, "start_ns"), array_of(frame, "end_ns")
        is_backwards = end < start
        if is_backwards.any():
            end = np.maximum(start, end)
            frame = frame.assign(end_ns=end)
            backwards += int(is_backwards.sum())
        is_possible = (start >= -LATEST_NS) & (end <= LATEST_NS) & (start <= end)
        is_possible &= end - np.where(is_possible, start, end) <= LONGEST_NS
        is_possible = _without_few(_is_far(start, middle_ns, is_possible), is_possible)
        if name == "gpu_ops":
            is_possible = _without_few(is_outside(start, recorded), is_possible)
        if not is_possible.all():
            left_out += int((~is_possible).sum())
            if name == "gpu_ops" and "comm_args" in kept:
                kept["comm_args"] = _of_kept_ops(kept["comm_args"], is_possible)
            frame = frame[is_possible].reset_index(drop=True)
        kept[name] = frame
    return Possible(kept, left_out, backwards)


def _middle_ns(frames: Mapping[str, pd.DataFrame]) -> int | None:
    """A time within the recording: the median of what ran on the GPU, else of the host's operators."""
    named = (array_of(frames[name], "start_ns") for name in ("gpu_ops", "host_ops") if name in frames)
    starts = next((each for each in named if len(each)), None)
    return None if starts is None else int(np.partition(starts, len(starts) // 2)[len(starts) // 2])


def _is_far(start: np.ndarray, middle_ns: int | None, is_possible: np.ndarray) -> np.ndarray:
    """Mask of the possible events that lie further from the recording's middle than any recording lasts."""
    if middle_ns is None:
        return np.zeros(len(start), dtype=bool)
    # Those that are impossible lie anywhere: their distance may not fit.
    is_far: np.ndarray = np.abs(np.where(is_possible, start, middle_ns) - middle_ns) > LONGEST_CAPTURE_NS
    return is_far


def is_outside(start: np.ndarray, recorded: Recorded) -> np.ndarray:
    """Mask of the operations that begin over `OUTSIDE_NS` before a recording began, or after it ended."""
    begin, end = recorded
    is_early = start < begin - OUTSIDE_NS if begin is not None else np.zeros(len(start), dtype=bool)
    is_late = start > end + OUTSIDE_NS if end is not None else np.zeros(len(start), dtype=bool)
    return np.asarray(is_early | is_late)


def _without_few(is_odd: np.ndarray, is_possible: np.ndarray) -> np.ndarray:
    """The possible events without the odd ones, where these are few: many are another recording, or another clock."""
    return is_possible & ~is_odd if 0 < is_odd.sum() < _FEW * is_possible.sum() else is_possible


def _of_kept_ops(comm_args: pd.DataFrame, is_kept: np.ndarray) -> pd.DataFrame:
    """Arguments of the host and of the operations that are left, at their new positions."""
    position = np.append(np.where(is_kept, np.cumsum(is_kept) - 1, NONE), NONE)
    row = array_of(comm_args, "gpu_op")
    is_own = (row == NONE) | (position[row] != NONE)
    return comm_args.assign(gpu_op=position[row])[is_own].reset_index(drop=True)
