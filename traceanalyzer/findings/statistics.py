"""Who is unlike the others in one figure, and chance."""

from collections.abc import Collection, Sequence
from statistics import NormalDist

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.rank_sets import Places, set_of
from traceanalyzer.analyses.spread import robust_deviation
from traceanalyzer.meaning.vocabulary import numbered

# Who behaves alike in one figure and unlike the others: a rank, a host, a rack, a group, half of the job.


AS_LONG = 0.5
"""Of the longest time of a rank: what is said of that one holds of those that need so much of it."""

_APART = 0.25
"""Between the ranks that are alike and the rest lies at least this part of what the worst has beyond the middle."""

_ALIKE_SIGMAS = 3.0
"""And so many deviations of the rest."""


class Alike(Struct, frozen=True):
    """The ranks that a finding is about.

    Attributes:
        ranks: in order, the worst one among them.
        place: what they are by name, such as `host b07`; `None` without a name.
        others: the median of the rest; `None` where there is none.
    """

    ranks: tuple[int, ...]
    place: str | None
    others: float | None

    @property
    def is_one(self) -> bool:
        """Whether it is a single rank."""
        return len(self.ranks) == 1

    @property
    def who(self) -> str:
        """`rank 5`, `rank 5 (host b07)`, `ranks 8 to 15 (host b07)`."""
        of = f" ({self.place})" if self.place else ""
        return f"{numbered('rank', self.ranks)}{of}"

    @property
    def opening(self) -> str:
        """The same at the beginning of a sentence."""
        return f"R{self.who[1:]}"

    @property
    def whose_gpus(self) -> str:
        """`rank 5's GPU`, `rank 5's GPU (host b07)`, `the GPUs of ranks 8 to 15 (host b07)`."""
        if self.is_one:
            return f"rank {self.ranks[0]}'s GPU{f' ({self.place})' if self.place else ''}"
        return f"the GPUs of {self.who}"


def alike(cost: pd.Series, places: Places) -> Alike:
    """The ranks that cost most alike, of a figure by rank: those above the widest gap in its upper half.

    The gap has to be a quarter of what the worst rank has beyond the rest's median, and three deviations of the rest;
    otherwise the worst rank stands alone, without a name. A place is named where chance would hardly make it so
    (`rank_sets.set_of`).
    """
    known = cost.dropna().astype("float64").sort_values(ascending=False, kind="stable")
    count = _above_gap(known.to_numpy())
    chosen = sorted(int(rank) for rank in known.index[: count or 1])
    rest = known.iloc[len(chosen) :]
    every = sorted(int(rank) for rank in known.index)
    place = set_of(chosen, every, places.places(), places.whole(len(every))).name if count else None
    return Alike(tuple(chosen), place, float(rest.median()) if len(rest) else None)


def named(ranks: Collection[int], every: Collection[int], places: Places) -> str:
    """Some ranks of a job in words: `rank 5`, `ranks 8 to 15 (host b07)`, `both ranks`, `all 8 ranks`."""
    chosen = one_by_one(ranks, every)
    if not chosen:
        return "both ranks" if len(set(ranks)) == 2 else f"all {len(set(ranks)):,} ranks"
    return Alike(chosen, set_of(chosen, sorted(every), places.places(), places.whole(len(every))).name, None).who


def one_by_one(ranks: Collection[int], every: Collection[int]) -> tuple[int, ...]:
    """Those that `named` names: none where it says that they are all."""
    chosen = sorted({int(rank) for rank in ranks})
    return () if len(chosen) > 1 and set(every) <= set(chosen) else tuple(chosen)


def also_on(ranks: Collection[int], every: Collection[int], places: Places) -> str:
    """Behind a sentence about one of them: `; the same on ranks 8 to 15 (host b07)`; nothing where it is alone."""
    return f"; the same on {named(ranks, every, places)}" if len(ranks) > 1 else ""


def with_others(rank: int, ranks: Collection[int], every: Collection[int]) -> tuple[int, ...]:
    """The one that such a sentence is of, and those that `also_on` names behind it."""
    return (rank, *(other for other in one_by_one(ranks, every) if other != rank))


def the_others(ranks: Collection[int]) -> str:
    """Whom a rank is held against: the only other one by its number."""
    return f"rank {next(iter(ranks))}" if len(ranks) == 1 else "the others"


def of_the_others(ranks: Collection[int]) -> str:
    """What is theirs: `rank 0's`, `the others'`."""
    return f"{the_others(ranks)}'s" if len(ranks) == 1 else "the others'"


def of_them(count: int, ranks: int) -> str:
    """How many of a job's ranks, for the beginning of a sentence: `Both`, `All 8`, `3 of 8`."""
    if count < ranks:
        return f"{count} of {ranks}"
    return "Both" if ranks == 2 else f"All {ranks:,}"


def _above_gap(ordered: np.ndarray) -> int:
    """How many of the values, largest first, lie above the widest gap; 0 where none is wide enough."""
    most = len(ordered) // 2
    if most < 1:
        return 0
    gaps = ordered[:most] - ordered[1 : most + 1]
    count = int(gaps.argmax()) + 1
    rest = ordered[count:]
    middle = float(np.median(rest))
    spread = robust_deviation(pd.Series(rest))
    least = max(_APART * (ordered[0] - middle), _ALIKE_SIGMAS * spread)
    return count if gaps[count - 1] >= least and gaps[count - 1] > 0 else 0


# Whether ranks' means over few steps lie further apart than chance puts them.


_CHANCE_SIGMAS = 3.0

_CHANCE = NormalDist().cdf(-_CHANCE_SIGMAS)
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
