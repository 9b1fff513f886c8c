"""Many ranks at a glance: a heat map of ranks by parts, and the ranks that are unlike the others."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.findings.alike import named
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.quantities import text
from traceanalyzer.meaning.vocabulary import Part
from traceanalyzer.report.words.parts import Split

MANY_RANKS = 32
"""From here on the page shows a heat map, and bars only of ranks unlike the others and of one in the middle."""

MOST_BARS = 12

_LEVELS = 20
_APART_POINTS = 2.0
_APART_DEVIATIONS = 5.0
_ALIKE = 0.2
"""A rank that differs by this part less than the next one before it is not of its set."""


@dataclass(frozen=True, slots=True)
class Run:
    """Ranks beside each other of about the same share; places in per cent of the row's width."""

    place: float
    width: float
    opacity: float
    label: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One part over all ranks."""

    part: Part
    runs: tuple[Run, ...]
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Outlier:
    """A rank whose share of a part is far from the median's; times of a mean step, or of the capture."""

    rank: int
    part: Part
    ns: float
    median_ns: float

    @property
    def away_ns(self) -> float:
        """How much longer, or shorter, it takes than the median rank: what it costs."""
        return abs(self.ns - self.median_ns)


@dataclass(frozen=True, slots=True)
class Difference:
    """One part of a set's time, and the median rank's."""

    part: Part
    ns: float
    median_ns: float

    @property
    def times(self) -> tuple[str, str]:
        """Its time, and the median rank's, with their units."""
        return text(self.ns, Unit.NS), text(self.median_ns, Unit.NS)

    @property
    def away_ns(self) -> float:
        """How much longer, or shorter, it is."""
        return abs(self.ns - self.median_ns)


@dataclass(frozen=True, slots=True)
class Unlike:
    """Ranks that differ from the median by about as much as each other, in words, and by what: the largest first."""

    who: str
    differences: tuple[Difference, ...]


def shares(split: Split) -> pd.DataFrame:
    """Per cent of its window that each rank (row) spends in each part (column)."""
    table = split.table.set_index("rank")
    return 100.0 * table[[part.column for part in split.parts]].div(table["window_ns"], axis=0)


def heat_rows(split: Split) -> list[HeatRow]:
    """A row for each part that any rank has; opacity goes from 0 % to the largest share of any part."""
    table = shares(split)
    top = max(float(table.max().max()), 1e-9)
    return [_row(part, table[part.column], top) for part in split.parts if table[part.column].any()]


def outliers(split: Split) -> list[Outlier]:
    """Ranks more than five median deviations and two points from a part's median share, those of most time first."""
    table, times = shares(split), split.table.set_index("rank")
    found = []
    for part in split.parts:
        share = table[part.column]
        away = (share - share.median()).abs()
        limit = max(_APART_POINTS, _APART_DEVIATIONS * float(away.median()))
        own = times[part.column] / split.per
        found += [Outlier(int(rank), part, float(own[rank]), float(own.median())) for rank in share.index[away > limit]]
    return sorted(found, key=lambda item: -item.away_ns)


def unlike(split: Split, places: Places | None) -> list[Unlike]:
    """The outliers, those that differ by about as much as a set: what differs by most time first."""
    sets: list[list[Outlier]] = []
    last: dict[tuple[str, bool], list[Outlier]] = {}
    for item in outliers(split):
        key = (item.part.column, item.ns > item.median_ns)
        if key not in last or item.away_ns < (1 - _ALIKE) * last[key][-1].away_ns:
            last[key] = []
            sets.append(last[key])
        last[key].append(item)
    by_ranks: dict[tuple[int, ...], list[Difference]] = {}
    for items in sets:
        ns = float(np.median([item.ns for item in items]))
        own = by_ranks.setdefault(tuple(sorted(item.rank for item in items)), [])
        own.append(Difference(items[0].part, ns, items[0].median_ns))
    every = split.table["rank"].tolist()
    found = []
    for ranks, own in by_ranks.items():
        who = numbered("rank", ranks) if places is None else named(ranks, every, places)
        found.append(Unlike(who, tuple(sorted(own, key=lambda one: -one.away_ns))))
    return sorted(found, key=lambda item: -item.differences[0].away_ns)


def shown(split: Split) -> pd.DataFrame:
    """The rows of which bars are drawn: all ranks, or of many the outliers beside the rank in the middle."""
    table = split.table
    if len(table) < MANY_RANKS:
        return table
    ranks = list(dict.fromkeys(item.rank for item in outliers(split)))[:MOST_BARS]
    if not ranks:
        ranks = [
            int(table.loc[table["compute_ns"].idxmin(), "rank"]),
            int(table.loc[table["compute_ns"].idxmax(), "rank"]),
        ]
    return table[table["rank"].isin([*ranks, middle(split)])]


def middle(split: Split) -> int:
    """The rank whose share of compute is the median's, or next to it: what the outliers are to be compared with."""
    compute = shares(split)["compute_ns"]
    return int((compute - compute.median()).abs().idxmin())


def _row(part: Part, share: pd.Series, top: float) -> HeatRow:
    """Ranks of equal level beside each other become one rectangle: a page of 1,024 ranks stays small."""
    level = (_LEVELS * share / top).round().astype(int)
    start = level.ne(level.shift()).cumsum()
    count, width = len(share), 100.0 / len(share)
    runs = []
    place = 0
    for _, own in share.groupby(start.to_numpy()):
        ranks = f"rank {own.index[0]}" if len(own) == 1 else f"ranks {own.index[0]} to {own.index[-1]}"
        spread = f"{own.min():.1f} %" if len(own) == 1 else f"{own.min():.1f} to {own.max():.1f} %"
        opacity = int(level.iloc[place]) / _LEVELS
        runs.append(Run(place * width, len(own) * width, opacity, f"{part.label}, {ranks}: {spread}"))
        place += len(own)
    assert place == count, "every rank has its place"
    return HeatRow(part, tuple(runs), float(share.min()), float(share.max()))
