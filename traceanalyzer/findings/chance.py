"""Whether ranks' means over few steps lie further apart than chance puts them."""

from collections.abc import Collection, Sequence
from statistics import NormalDist

import pandas as pd

_SIGMAS = 3.0

_CHANCE = NormalDist().cdf(-_SIGMAS)
"""How often a mean is as far off by chance."""


def is_beyond_chance(wide: pd.DataFrame, ranks: Collection[int], variance: float | None = None, asked: int = 1) -> bool:
    """Whether these ranks' mean is further from the others' than means of so few steps are by chance: three deviations.

    Of one rank its mean is held against the others' together, of a set its least against the others' most. How far a
    rank's steps lie apart (`variance`) is what is left of them without each rank's and each step's mean; one step tells
    nothing. Where it is asked of many, one of which is far off sooner, as many more deviations are wanted.
    """
    steps, count = wide.shape
    if steps < 2 or count < 2:
        return True
    mean = wide.mean()
    variance = variance_within([wide]) if variance is None else variance
    own, others = mean[list(ranks)], mean.drop(list(ranks))
    if len(own) == 1:
        gap, error = float(own.iloc[0] - others.mean()), variance / steps * (1 + 1 / len(others))
    else:
        gap, error = float(own.min() - others.max()), 2 * variance / steps
    return gap >= NormalDist().inv_cdf(1 - _CHANCE / asked) * error**0.5


def variance_within(tables: Sequence[pd.DataFrame]) -> float:
    """How far the ranks' steps lie apart in tables of one kind, by what is left without each rank's and step's mean."""
    squares, free = 0.0, 0
    for wide in tables:
        steps, count = wide.shape
        mean = wide.mean()
        left = wide.sub(mean).sub(wide.mean(axis=1), axis=0) + mean.mean()
        squares += float((left**2).sum().sum())
        free += max(count - 1, 0) * max(steps - 1, 0)
    return squares / max(free, 1)
