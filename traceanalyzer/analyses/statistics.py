"""The four numbers by which two things differ, and the one test of whether ranks, hosts or steps do.

No conclusion has limits of its own: what is "most of", "worth a word", "beyond chance" or "longer" means the same in
all of them.
"""

import math

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

_TO_DEVIATION = 1.4826
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
