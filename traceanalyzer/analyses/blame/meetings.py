"""In which steps others meet a rank, and how long they wait there."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.model.tables import columns_of, floats

_WAITING = ("exposed_wait_ns", "exposed_unmatched_ns")


def awaited_in(late: pd.DataFrame) -> pd.Series:
    """For each step the next one in which any rank communicates: there the others meet a rank that is late by then.

    That is the following one, but where steps are parts of a step of the optimizer, or local ones of which only some
    average. Absent for the last ones.
    """
    columns = columns_of(late)
    numbers, of_step = np.unique(columns["step"], return_inverse=True)
    place = _next_met(columns, of_step)
    met = np.where(place < len(numbers), numbers[np.minimum(place, len(numbers) - 1)], 0)
    return pd.Series(pd.arrays.IntegerArray(met, place >= len(numbers)), index=numbers)


def _next_met(columns: Mapping[str, Any], of_step: np.ndarray) -> np.ndarray:
    """For each step, by its place, that of the next one in which any rank communicates; their number for none."""
    count = of_step.max(initial=-1) + 1
    meets = np.zeros(count, dtype=bool)
    for name in ("transfer_ns", *_WAITING):
        meets[of_step[floats(columns[name]) > 0]] = True
    own = np.where(meets, np.arange(count), count)
    return np.append(np.minimum.accumulate(own[::-1])[::-1][1:], count)


def waited(columns: Mapping[str, Any], of: Sequence[str] = _WAITING) -> np.ndarray:
    """What another rank waits in the step, or the next that meets, at most: no one is late for whom nobody waits."""
    of_step = np.unique(columns["step"], return_inverse=True)[1]
    most = np.zeros(of_step.max(initial=-1) + 2)
    np.maximum.at(most, of_step, sum(floats(columns[name]) for name in of))
    return np.maximum(most[:-1], most[_next_met(columns, of_step)])[of_step]
