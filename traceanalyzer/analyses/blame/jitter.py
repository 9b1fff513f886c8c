"""How far ranks' steps differ from each other where nothing is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.spread import medians
from traceanalyzer.model.tables import picked

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
_A_LOT = 0.5
"""Of a step: what differs by chance between a few steps is shorter."""


HARDLY = 0.1
"""Of what a rank needs more in most steps."""


@dataclass(frozen=True)
class RankSteps:
    """Ranks' steps beside each other: arrays of one length."""

    rank: np.ndarray
    step: np.ndarray
    peers: np.ndarray
    """Numbers of those that do the same work."""
    length_ns: np.ndarray
    excess_ns: np.ndarray

    @classmethod
    def of(cls, late: Mapping[str, Any]) -> "RankSteps":
        """From columns as `with_excess` gives them."""
        length_ns = (late["end_ns"] - late["begin_ns"]).astype(np.float64)
        peers = Groups.of(late, ["peers"]).of_row
        return cls(late["rank"], late["step"], peers, length_ns, np.asarray(late["excess_ns"], dtype=np.float64))

    def where(self, rows: np.ndarray) -> "RankSteps":
        """These rows alone."""
        return RankSteps(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def mirrored(self) -> np.ndarray:
        """The excess; of two peers the one needs as much less as the other needs more.

        What a rank's GPU idles less for its host than the other's is no measure of that: it may wait for the other.
        """
        more = np.maximum(self.excess_ns, 0.0)
        others = np.bincount(self._beside, more)[self._beside] - more
        return np.where(self.is_of_pair, more - others, self.excess_ns)

    @cached_property
    def is_of_pair(self) -> np.ndarray:
        """Rows of a step in which two ranks are held against each other."""
        is_of_pair: np.ndarray = np.bincount(self._beside)[self._beside] == 2
        return is_of_pair

    @cached_property
    def _beside(self) -> np.ndarray:
        return Groups.of({"peers": self.peers, "step": self.step}, ["peers", "step"]).of_row


def jitter_of(late: RankSteps) -> float:
    """How far a rank's steps differ from each other where nothing is wrong, as a deviation.

    What is left of the excess without each rank's and each step's median: what is always slow is no jitter; of what is
    slow now and then, in less than a third of the cells, the quantile knows nothing. One step alone tells it by the
    median distance from one rank to the next, from four ranks on.
    """
    steps, row = np.unique(late.step, return_inverse=True)
    excess = late.mirrored()
    if len(steps) < 2:
        # Of two peers one needs as much less as the other needs more: that is told once.
        ordered = np.sort(np.where(late.is_of_pair, np.maximum(excess, 0.0), excess))
        if len(ordered) < _LEAST_RANKS:
            return 0.0
        return float(np.median(np.diff(ordered))) * len(ordered) / _DISTANCES_IN_A_DEVIATION
    ranks, column = np.unique(late.rank, return_inverse=True)
    wide = np.full((len(steps), len(ranks)), np.nan)
    wide[row, column] = excess
    left = np.column_stack([_from_usual(own) for own in wide.T])
    left -= medians(left.T)[0][:, None]
    # Few ranks and steps are near their own medians.
    free = np.sqrt(left.size / max((left.shape[0] - 1) * (left.shape[1] - 1), 1))
    return float(np.nanquantile(np.abs(left), _WITHIN_A_DEVIATION) * free)


def of_others(late: RankSteps, jitter: float) -> np.ndarray:
    """For each row the jitter that its step is held against: `jitter` of all, of two or three steps that of the others.

    One of so few is too large a part to be left out by a quantile; of more a single one does not move it. One step's
    jitter is what its ranks have beyond their peers. So few steps tell little of it: only what takes half of a step,
    or more, is held against them.
    """
    every = np.full(len(late.step), jitter)
    steps = np.unique(late.step)
    if len(steps) not in (_FEW - 1, _FEW):
        return every
    excess = np.abs(late.mirrored())
    own = [float(np.quantile(excess[late.step == step], _WITHIN_A_DEVIATION)) for step in steps]
    for place, step in enumerate(steps):
        is_own = late.step == step
        others = jitter_of(late.where(~is_own)) if len(steps) == _FEW else own[1 - place]
        every[is_own] = min(jitter, others)
    return np.where(late.excess_ns >= _A_LOT * np.median(late.length_ns), every, jitter)


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


def without_hardly_any(found: pd.DataFrame) -> pd.DataFrame:
    """The cells (`lateness.cells`) but for those with hardly any of what the rank's late steps hold of that part.

    What stays a little below the limits of lateness in most steps is above them in one that happens to be shorter.
    """
    usual = found.groupby(["rank", "part"])["excess_ns"].transform("median")
    return picked(found, (found["excess_ns"] >= HARDLY * usual).to_numpy())
