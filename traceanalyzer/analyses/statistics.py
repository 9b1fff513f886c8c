"""The four numbers by which two things differ, and the one test of whether ranks, hosts or steps do.

No conclusion has limits of its own: what is "most of", "worth a word", "beyond chance" or "longer" means the same in
all of them.
"""

import math
from statistics import NormalDist

import numpy as np
import pandas as pd

SHARE = 0.5
"""Of a whole: what holds this part of it is most of it, and two that have this part in common are alike."""

PERCENT = 3.0
"""Of a step: less is not worth a word, and a replay that is off by more is a bound."""

LEAST_PCT = 1.0
"""Of a step: what saves less is no finding."""

SIGMAS = 3.0
"""Deviations: what is further off than the others are from each other is off by more than chance."""

RATIO = 1.2
"""Times as long: two of one kind, or two runs of the same work, differ by less."""

FALSE_ALARMS = math.erfc(SIGMAS / math.sqrt(2))
"""How often chance puts a normal value so many deviations off, to either side: 0.27%."""

_TO_DEVIATION = 1 / NormalDist().inv_cdf(0.75)
"""Of a median distance from the median, of normal values."""


def deviation(values: np.ndarray) -> float:
    """The standard deviation of values, in spite of the half of them that are off: by the median distance.

    Of an even number the lower of the two in the middle counts: where half of the values are off, the rest tell.
    """
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return 0.0
    return _TO_DEVIATION * low_median(np.abs(known - low_median(known)))


def jitter(wide: np.ndarray) -> float:
    """How far the ranks' (columns) steps (rows) differ from each other where nothing is wrong, as a deviation.

    What is left of each without its rank's and its step's median: what is always slow is no jitter.
    """
    if len(wide) < 2:
        return deviation(wide)
    left = wide - np.nanmedian(wide, axis=0)
    left -= np.nanmedian(left, axis=1)[:, None]
    # Few ranks and steps are near their own medians.
    free = np.sqrt(left.size / max((left.shape[0] - 1) * (left.shape[1] - 1), 1))
    return float(deviation(left) * free)


def few_longer(values: pd.Series) -> pd.Index:
    """The keys of the values that take longer than usual by more than chance; none where they are half of all."""
    own = values.to_numpy(dtype=np.float64)
    usual = float(np.median(own)) if len(own) else 0.0
    is_longer = (own > RATIO * usual) & (own - usual > SIGMAS * deviation(own))
    return values.index[is_longer & (is_longer.sum() < SHARE * len(own))]


def low_median(values: np.ndarray | pd.Series) -> float:
    """The median; of an even number the lower of the two in the middle."""
    return float(np.sort(values)[(len(values) - 1) // 2])


def median_of_others(values: np.ndarray) -> np.ndarray:
    """Medians of each column without one row, for every row, by the two places next to the middle; of one its own."""
    count = len(values)
    if count < 2:
        return values
    order = np.argsort(values, axis=0, kind="stable")
    ranked = np.take_along_axis(values, order, axis=0)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(count)[:, None] + np.zeros_like(order), axis=0)
    low, high = (count - 2) // 2, (count - 1) // 2
    picked = [
        np.take_along_axis(ranked, np.where(place <= middle, middle + 1, middle), axis=0) for middle in (low, high)
    ]
    return (picked[0] + picked[1]) / 2


def medians(values: np.ndarray) -> np.ndarray:
    """The median of each column's known values, for every row; NaN where none is known."""
    return np.broadcast_to(pd.DataFrame(values).median().to_numpy(), values.shape)
