"""What takes longer on a late rank than on its peers, by name; and whether it is the same work, only slower."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.transfers import COLLECTIVE
from traceanalyzer.analyses.blame.what_ran import DOING, KERNEL, OPERATOR, RANGE
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.host_activity import NOTHING
from traceanalyzer.vocabulary import HOST

_NAMED = 0.5
"""A name is said when it explains this much of an excess; so is that the same kernels take longer."""

_NAMED_OF_SEVERAL = 0.4
"""A little less is enough in a step in which another one is said of the rank's other steps."""

_LIKE_THE_OTHERS = 2.0
"""Times the excess of the steps without a name: one with a name is late by the same."""

Named = tuple[str | None, str | None]

_WHOLE_PHASES = ("forward", "backward")

_KINDS = (OPERATOR, KERNEL, "copy", COLLECTIVE, DOING, RANGE)
"""The most telling first."""


def named(cells: pd.DataFrame, late: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The cells with the name that is longer than on the peers by at least half of the excess: `what`, `name`.

    `same_ns` and `peers_same_ns`: what the rank and its peers take for the kernels that all of them run, where these
    make at least half of the excess; NaN elsewhere.
    """
    columns = ["what", "name", "same_ns", "peers_same_ns"]
    if cells.empty or work.empty:
        return cells.assign(what=None, name=None, same_ns=np.nan, peers_same_ns=np.nan)
    held = work[work["part"].isin(cells["part"]) & work["step"].isin(cells["step"])]
    ranks = late.groupby("step")["rank"].unique()
    late_ranks = cells.groupby("step")["rank"].unique()
    peers = late.drop_duplicates("rank").set_index("rank")["peers"]
    by_key = {key: dict(iter(rows.groupby("rank"))) for key, rows in held.groupby(["step", "part"])}
    beside: dict[tuple[object, ...], _Beside] = {}  # late ranks of a step are mostly held against the same others
    found = []
    for rank, step, part, excess_ns in cells[["rank", "step", "part", "excess_ns"]].itertuples(index=False):
        others = _others(ranks[step], rank, peers, late_ranks[step])
        rows = by_key.get((step, part), {})
        key = (step, part, others.tobytes())
        if key not in beside:
            beside[key] = _Beside([rows[other] for other in others if other in rows], others)
        found.append(_told(rows, rank, excess_ns, beside[key]))
    chosen = _agreed(cells, [row[0] for row in found])
    table = cells.assign(**{name: [pair[place] for pair in chosen] for place, name in enumerate(columns[:2])})
    return table.assign(**{name: [row[place] for row in found] for place, name in enumerate(columns[2:], 1)})


def _agreed(cells: pd.DataFrame, fits: list[dict[Named, float]]) -> list[Named]:
    """Of each cell the name, of those that fit it, that takes most of all its rank's cells of that part.

    None where a host is mostly late by none. Of two copies of one size each may be the longer one now and then, and a
    slow host's longest call is another in each step.
    """
    chosen: list[Named] = [(None, None)] * len(fits)
    for (_, part), rows in cells.reset_index(drop=True).groupby(["rank", "part"]).indices.items():
        totals: dict[Named, float] = {}
        for row in rows:
            for pair, extra_ns in fits[row].items():
                totals[pair] = totals.get(pair, 0.0) + extra_ns
        for row in rows:
            chosen[row] = max(fits[row], key=totals.__getitem__, default=(None, None))
        unnamed = [row for row in rows if not fits[row]]
        if part == HOST.column and 2 * len(unnamed) > len(rows):
            excess = cells["excess_ns"].to_numpy()
            for row in rows:
                if excess[row] <= _LIKE_THE_OTHERS * np.median(excess[unnamed]):
                    chosen[row] = (None, None)
    return chosen


def _others(ranks: np.ndarray, rank: int, peers: pd.Series, late: np.ndarray) -> np.ndarray:
    """The ranks that do the same and are not late, as far as there are any."""
    alike = ranks[(ranks != rank) & (peers[ranks] == peers[rank]).to_numpy()]
    others: np.ndarray = alike if len(alike) else ranks[ranks != rank]
    in_time = others[~np.isin(others, late)]
    return in_time if len(in_time) else others


class _Beside:
    """What some ranks ran in one step and part: medians over them by name; who has none of it has 0."""

    def __init__(self, rows: list[pd.DataFrame], others: np.ndarray) -> None:
        self.rows = pd.concat(rows, ignore_index=True) if rows else None
        self.others = others
        self._known: dict[tuple[str, str], pd.Series] = {}

    def medians(self, what: str, column: str) -> pd.Series:
        """Of the column, by name."""
        if self.rows is None:
            return pd.Series(dtype="float64")
        if (what, column) not in self._known:
            own = self.rows[self.rows["what"] == what]
            sums = own.groupby(["name", "rank"])[column].sum()
            table = sums.unstack("rank").reindex(columns=self.others)  # noqa: PD010 - keys are unique
            self._known[what, column] = table.fillna(0).median(axis=1)
        return self._known[what, column]


def _told(rows: dict[int, pd.DataFrame], rank: int, excess_ns: int, beside: _Beside) -> tuple[Any, ...]:
    if not rows:
        return {}, np.nan, np.nan
    own = rows[rank] if rank in rows else next(iter(rows.values())).iloc[:0]
    same = _same_work(own, beside, excess_ns)
    if not np.isnan(same[0]):  # no one of them is to be named
        return {}, *same
    return _longest(own, beside, excess_ns), *same


def _longest(own: pd.DataFrame, beside: _Beside, excess_ns: int) -> dict[Named, float]:
    """All names of the most telling kind that explain about half of the excess, and how much."""
    for what in _KINDS:
        named = own[own["what"] == what]
        if what == RANGE:  # a phase holds all that a host does
            named = named[~named["name"].map(host_names.phase).isin(_WHOLE_PHASES)]
        if what == DOING:  # neither is what a host is to do less of
            is_launch = named["name"].map(host_names.is_launch).astype(bool)
            named = named[~is_launch & (named["name"] != NOTHING)]
        if named.empty:
            continue
        held = named.set_index("name")["total_ns"]
        extra = held - beside.medians(what, "total_ns").reindex(held.index).fillna(0)
        is_long = extra >= _NAMED_OF_SEVERAL * excess_ns
        if what in (DOING, RANGE):  # a host that is slow at everything is not slow by what it does most
            is_long &= extra >= _NAMED * held
        if extra[is_long].max() >= _NAMED * excess_ns:
            return {(what, str(name)): float(ns) for name, ns in extra[is_long].items()}
    return {}


def _same_work(own: pd.DataFrame, beside: _Beside, excess_ns: int) -> tuple[float, float]:
    """Time of the rank and of its peers in the kernels of which both run as many, of as many blocks and shapes."""
    kernels = _alike(own, beside, KERNEL)
    operators = own[own["what"] == OPERATOR]
    if operators["name"].str.contains(" of [", regex=False).any():
        by_shape = _alike(own, beside, OPERATOR)
        if (by_shape["own"] - by_shape["peers"]).sum() < _NAMED * excess_ns:
            return np.nan, np.nan
    if (kernels["own"] - kernels["peers"]).sum() < _NAMED * excess_ns:
        return np.nan, np.nan
    return float(kernels["own"].sum()), float(kernels["peers"].sum())


def _alike(own: pd.DataFrame, beside: _Beside, what: str) -> pd.DataFrame:
    """Times of the names of which the rank has as many calls and blocks as its peers: `own`, `peers`."""
    held = own[own["what"] == what].set_index("name")
    same = pd.Series(data=True, index=held.index)
    for count in ("calls", "blocks"):
        typical = beside.medians(what, count).reindex(held.index)
        same &= held[count].fillna(0).astype("float64") == typical
    peers = beside.medians(what, "total_ns").reindex(held.index)
    return pd.DataFrame({"own": held["total_ns"].astype("float64"), "peers": peers})[same]
