"""How far ranks' steps differ from each other where nothing is wrong."""

import numpy as np
import pandas as pd

_WITHIN_A_DEVIATION = 0.68
"""Share of normal values that are no further than one deviation."""

_DISTANCES_IN_A_DEVIATION = 2.7
"""Of n normal values the median distance to the next is about 2.7 deviations / n."""

_LEAST_RANKS = 4

_LEAST_LEVELLED = 4
"""Steps of which two levels can be told."""

_LEVELS_APART = 12.0
"""Times the spread of the usual steps that lies between them and the others; four normal values do once in twenty."""

_FEW = 3


def jitter_of(late: pd.DataFrame) -> float:
    """How far a rank's steps differ from each other where nothing is wrong, as a deviation.

    What is left of the excess without each rank's and each step's median: what is always slow is no jitter; of what is
    slow now and then, in less than a third of the cells, the quantile knows nothing. One step alone tells it by the
    median distance from one rank to the next, from four ranks on.
    """
    wide = late.assign(excess_ns=_mirrored(late)).pivot_table(index="step", columns="rank", values="excess_ns")
    if len(wide) < 2:
        # Of two peers one needs as much less as the other needs more: that is told once.
        ordered = np.sort(
            late["excess_ns"].clip(lower=0).where(_is_of_pair(late), late["excess_ns"]).dropna().to_numpy()
        )
        if len(ordered) < _LEAST_RANKS:
            return 0.0
        return float(np.median(np.diff(ordered))) * len(ordered) / _DISTANCES_IN_A_DEVIATION
    left = wide.apply(_from_usual, raw=True)
    left = left.sub(left.median(axis=1), axis=0)
    # Few ranks and steps are near their own medians.
    free = np.sqrt(left.size / max((left.shape[0] - 1) * (left.shape[1] - 1), 1))
    return float(np.nanquantile(left.abs().to_numpy(), _WITHIN_A_DEVIATION) * free)


def of_others(late: pd.DataFrame, jitter: float) -> pd.Series:
    """For each row the jitter that its step is held against: `jitter` of all, of two or three steps that of the others.

    One of so few is too large a part to be left out by a quantile; of more a single one does not move it. One step's
    jitter is what its ranks have beyond their peers.
    """
    steps = late["step"].unique()
    if len(steps) not in (_FEW - 1, _FEW):
        return pd.Series(jitter, index=late.index)
    own = _mirrored(late).abs().groupby(late["step"]).quantile(_WITHIN_A_DEVIATION)
    others = {
        step: jitter_of(late[late["step"] != step]) if len(steps) == _FEW else own.drop(step).max() for step in steps
    }
    return late["step"].map({step: min(jitter, float(of_others)) for step, of_others in others.items()})


def _is_of_pair(late: pd.DataFrame) -> pd.Series:
    """Rows of a step in which two ranks are held against each other."""
    return late.groupby(["peers", "step"])["rank"].transform("size") == 2


def _mirrored(late: pd.DataFrame) -> pd.Series:
    """The excess; of two peers the one needs as much less as the other needs more.

    What a rank's GPU idles less for its host than the other's is no measure of that: it may wait for the other.
    """
    more = late["excess_ns"].clip(lower=0)
    others = more.groupby([late["peers"], late["step"]]).transform("sum") - more
    return (more - others).where(_is_of_pair(late), late["excess_ns"])


def _from_usual(values: np.ndarray) -> np.ndarray:
    """How far each of a rank's steps is from their median; where they stand on two levels, those on the usual one.

    The usual level is the nearer to its peers' need. What comes in every second step is no jitter.
    """
    ordered = np.sort(values[~np.isnan(values)])
    if len(ordered) < _LEAST_LEVELLED:
        return values - np.nanmedian(values)
    gaps = np.diff(ordered)
    cut = int(np.argmax(gaps)) + 1
    usual = min(ordered[:cut], ordered[cut:], key=lambda level: abs(float(np.median(level))))
    if len(usual) < 2 or gaps[cut - 1] < _LEVELS_APART * np.ptp(usual):
        return values - np.nanmedian(values)
    is_usual = (values >= usual[0]) & (values <= usual[-1])
    return np.where(is_usual, values - np.median(usual), np.nan)
