"""How busy each rank's GPU is over time, as a strip of stacked columns: one path for each kind keeps pages small."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import text
from traceanalyzer.meaning.vocabulary import IDLE, PARTS

KINDS = tuple((part.column, part.kind) for part in PARTS if part is not IDLE)
"""From the bottom: column and colour; what is left of a stretch is idle."""

HEIGHT = 100
"""Of a column that is busy throughout."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One rank: paths by kind in a box of `bins` by `HEIGHT`, and its window and what of it is idle in words."""

    rank: int
    bins: int
    paths: tuple[tuple[str, str], ...]
    window: str
    idle: str


def strips(result: Result, breakdown: Result, ranks: Collection[int]) -> list[Strip]:
    """A strip for each of the ranks that has any time; each spans its rank's own window, of which is `breakdown`."""
    # The parts that add up, also where what is unknown makes the others too small.
    frame = result.to_frame().assign(**{column: result.table[column].to_numpy() for column, _ in KINDS})
    whole = breakdown.to_frame().set_index("rank")[["window_ns", "idle_ns"]].to_dict("index")
    known = frame[frame["rank"].isin({*ranks} & {*whole})]  # `breakdown` may have failed
    return [_strip(int(rank), own, whole[rank]) for rank, own in known.groupby("rank")]


def _strip(rank: int, own: pd.DataFrame, whole: Mapping[str, Any]) -> Strip:
    shares = own[[column for column, _ in KINDS]].div(own["bin_ns"], axis=0).astype("float64") * HEIGHT
    tops = HEIGHT - shares.cumsum(axis=1)
    paths = tuple((kind, _path(own["bin"], tops[column], shares[column])) for column, kind in KINDS)
    return Strip(rank, len(own), paths, text(whole["window_ns"], Unit.NS), text(whole["idle_ns"], Unit.NS))


def _path(bins: pd.Series, tops: pd.Series, heights: pd.Series) -> str:
    columns = zip(bins, tops, heights, strict=True)
    return "".join(f"M{place} {top:.1f}h1v{height:.1f}h-1z" for place, top, height in columns if height >= 0.05)
