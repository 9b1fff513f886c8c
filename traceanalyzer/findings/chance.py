"""Whether ranks' means over few steps lie further apart than chance puts them."""

from collections.abc import Collection

import pandas as pd

_SIGMAS = 3.0


def is_beyond_chance(wide: pd.DataFrame, ranks: Collection[int]) -> bool:
    """Whether these ranks' mean is further from the others' than means of so few steps are by chance: three deviations.

    Of one rank its mean is held against the others' together, of a set its least against the others' most. How far a
    rank's steps lie apart is what is left of them without each rank's and each step's mean; one step tells nothing.
    """
    steps, count = wide.shape
    if steps < 2 or count < 2:
        return True
    mean = wide.mean()
    left = wide.sub(mean).sub(wide.mean(axis=1), axis=0) + mean.mean()
    variance = float((left**2).sum().sum()) / ((count - 1) * (steps - 1))
    own, others = mean[list(ranks)], mean.drop(list(ranks))
    if len(own) == 1:
        gap, error = float(own.iloc[0] - others.mean()), variance / steps * (1 + 1 / len(others))
    else:
        gap, error = float(own.min() - others.max()), 2 * variance / steps
    return gap >= _SIGMAS * error**0.5
