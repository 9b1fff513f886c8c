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
    of_step, of_rank = (np.unique(columns[name], return_inverse=True)[1] for name in ("step", "rank"))
    waits = np.zeros((of_step.max(initial=-1) + 2, of_rank.max(initial=0) + 2))  # one for what is not there
    waits[of_step, of_rank] = sum(floats(columns[name]) for name in of)
    second, most = np.partition(waits, (-2, -1), axis=1)[:, -2:].T[:, :, None]
    of_others = np.where(waits == most, second, most)
    return np.maximum(of_others[of_step, of_rank], of_others[_next_met(columns, of_step)[of_step], of_rank])
