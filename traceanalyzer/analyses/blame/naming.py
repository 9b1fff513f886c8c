"""What takes longer on a late rank than on its peers, by name; and whether it is the same work, only slower."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.transfers import COLLECTIVE
from traceanalyzer.analyses.blame.what_ran import DOING, KERNEL, OPERATOR, RANGE
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.host_activity import NOTHING
from traceanalyzer.schema import NONE

_NAMED = 0.5
"""A name is said when it explains this much of an excess; so is that the same kernels take longer."""

_WHOLE_PHASES = ("forward", "backward")

_KINDS = (OPERATOR, KERNEL, "copy", COLLECTIVE, DOING, RANGE)
"""The most telling first."""

_SUMS = ("total_ns", "calls", "blocks")


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
    peers = dict(zip(late["rank"], late["peers"], strict=True))
    rows = held.groupby(["step", "part"]).indices
    every = _Names.of(held)
    found = [
        _told(every, rows.get((step, part)), rank, excess_ns, _others(ranks[step], rank, peers, late_ranks[step]))
        for rank, step, part, excess_ns in cells[["rank", "step", "part", "excess_ns"]].itertuples(index=False)
    ]
    return cells.assign(**{name: [row[place] for row in found] for place, name in enumerate(columns)})


def _others(ranks: np.ndarray, rank: int, peers: Mapping[int, object], late: np.ndarray) -> np.ndarray:
    """The ranks that do the same and are not late, as far as there are any."""
    alike = np.array([other for other in ranks if other != rank and peers[other] == peers[rank]])
    others: np.ndarray = alike if len(alike) else ranks[ranks != rank]
    in_time = others[~np.isin(others, late)]
    return in_time if len(in_time) else others


@dataclass(frozen=True, slots=True)
class _Names:
    """What ran, column by column, on arrays: there are many cells, and few names in each."""

    rank: np.ndarray
    what: np.ndarray
    name: np.ndarray
    sums: Mapping[str, np.ndarray]
    """Times, calls and blocks as floats; 0 where they are not known."""

    @classmethod
    def of(cls, work: pd.DataFrame) -> "_Names":
        sums = {name: np.nan_to_num(work[name].to_numpy(dtype=np.float64, na_value=np.nan)) for name in _SUMS}
        what, name = (work[column].to_numpy(dtype=object) for column in ("what", "name"))
        return cls(work["rank"].to_numpy(), what, name, sums)

    def at(self, rows: np.ndarray) -> "_Names":
        """These rows."""
        sums = {name: values[rows] for name, values in self.sums.items()}
        return _Names(self.rank[rows], self.what[rows], self.name[rows], sums)

    def peers(self, names: np.ndarray, others: np.ndarray, column: str) -> np.ndarray:
        """By name the median over the others, of whom who has none of it has 0; NaN where nobody has."""
        place = {name: number for number, name in enumerate(names)}
        column_of = np.array([place.get(name, NONE) for name in self.name], dtype=np.int64)
        held = column_of != NONE
        row_of = np.searchsorted(np.sort(others), self.rank[held])
        sums = np.zeros((len(others), len(names)))
        np.add.at(sums, (row_of, column_of[held]), self.sums[column][held])
        is_known = np.isin(np.arange(len(names)), column_of)
        return np.where(is_known, np.median(sums, axis=0), np.nan) if len(others) else np.full(len(names), np.nan)


def _told(every: _Names, rows: np.ndarray | None, rank: int, excess_ns: int, others: np.ndarray) -> tuple[Any, ...]:
    if rows is None:
        return None, None, np.nan, np.nan
    ranks = every.rank[rows]
    own, beside = every.at(rows[ranks == rank]), every.at(rows[np.isin(ranks, others)])
    same = _same_work(own, beside, excess_ns, others)
    if not np.isnan(same[0]):  # no one of them is to be named
        return None, None, *same
    return *_longest(own, beside, excess_ns, others), *same


def _longest(own: _Names, beside: _Names, excess_ns: int, others: np.ndarray) -> tuple[str | None, str | None]:
    for what in _KINDS:
        named = own.at(np.flatnonzero(own.what == what))
        if what == RANGE:  # a phase holds all that a host does
            named = named.at(np.flatnonzero([host_names.phase(name) not in _WHOLE_PHASES for name in named.name]))
        if what == DOING:  # neither is what a host is to do less of
            is_work = [not host_names.is_launch(name) and name != NOTHING for name in named.name]
            named = named.at(np.flatnonzero(is_work))
        if not len(named.name):
            continue
        typical = beside.at(np.flatnonzero(beside.what == what)).peers(named.name, others, "total_ns")
        held = named.sums["total_ns"]
        extra = held - np.nan_to_num(typical)
        longest = int(extra.argmax())
        # A host that is slow at everything is not slow by what it does most.
        is_own = what not in (DOING, RANGE) or extra[longest] >= _NAMED * held[longest]
        if is_own and extra[longest] >= _NAMED * excess_ns:
            return what, str(named.name[longest])
    return None, None


def _same_work(own: _Names, beside: _Names, excess_ns: int, others: np.ndarray) -> tuple[float, float]:
    """Time of the rank and of its peers in the kernels of which both run as many, of as many blocks and shapes."""
    kernels = _alike(own, beside, KERNEL, others)
    if any(" of [" in name for name in own.name[own.what == OPERATOR]):
        by_shape = _alike(own, beside, OPERATOR, others)
        if (by_shape[0] - by_shape[1]).sum() < _NAMED * excess_ns:
            return np.nan, np.nan
    if (kernels[0] - kernels[1]).sum() < _NAMED * excess_ns:
        return np.nan, np.nan
    return float(kernels[0].sum()), float(kernels[1].sum())


def _alike(own: _Names, beside: _Names, what: str, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times of the names of which the rank has as many calls and blocks as its peers: its own, and theirs."""
    held, theirs = (names.at(np.flatnonzero(names.what == what)) for names in (own, beside))
    same = np.ones(len(held.name), dtype=bool)
    for count in ("calls", "blocks"):
        same &= held.sums[count] == theirs.peers(held.name, others, count)
    return held.sums["total_ns"][same], theirs.peers(held.name, others, "total_ns")[same]
