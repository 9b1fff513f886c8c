"""Times of events that cannot be: such events are left out, or count as taking no time, and are counted."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.model.schema import NONE

LATEST_NS = 5 * 10**18
"""The year 2128. A time of any int64 and a clock's start of at most 4·10¹⁸, added, lie beyond where they overflow."""

UNKNOWN_NS = np.iinfo(np.int64).min
"""Stands for a time that is not there: with a clock's start added it is one that cannot be."""

LONGEST_NS = 10**15
"""No event lasts longer than twelve days."""


@dataclass(frozen=True, slots=True)
class Possible:
    """Tables of events that can be.

    Attributes:
        frames: the tables; `comm_args.gpu_op` refers to the operations that are left.
        left_out: events whose time or length cannot be.
        backwards: events that ended before they started: they are kept, and take no time.
    """

    frames: dict[str, pd.DataFrame]
    left_out: int
    backwards: int


def possible(frames: Mapping[str, pd.DataFrame]) -> Possible:
    """The tables without what cannot be. Almost always nothing is to be done."""
    kept, left_out, backwards = dict(frames), 0, 0
    for name, frame in frames.items():
        if "start_ns" not in frame or frame.empty:
            continue
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
        is_backwards = end < start
        if is_backwards.any():
            end = np.maximum(start, end)
            frame = frame.assign(end_ns=end)  # noqa: PLW2901 - the table as it goes on
            backwards += int(is_backwards.sum())
        is_possible = (start >= -LATEST_NS) & (end <= LATEST_NS) & (start <= end)
        is_possible &= end - np.where(is_possible, start, end) <= LONGEST_NS
        if not is_possible.all():
            left_out += int((~is_possible).sum())
            if name == "gpu_ops" and "comm_args" in kept:
                kept["comm_args"] = _of_kept_ops(kept["comm_args"], is_possible)
            frame = frame[is_possible].reset_index(drop=True)  # noqa: PLW2901 - the same
        kept[name] = frame
    return Possible(kept, left_out, backwards)


def _of_kept_ops(comm_args: pd.DataFrame, is_kept: np.ndarray) -> pd.DataFrame:
    """Arguments of the host and of the operations that are left, at their new positions."""
    position = np.append(np.where(is_kept, np.cumsum(is_kept) - 1, NONE), NONE)
    row = comm_args["gpu_op"].to_numpy()
    is_own = (row == NONE) | (position[row] != NONE)
    return comm_args.assign(gpu_op=position[row])[is_own].reset_index(drop=True)
