"""What takes longer on a late rank than on its peers, by name; and whether it is the same work, only slower."""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.transfers import COLLECTIVE
from traceanalyzer.analyses.blame.what_ran import DOING, KERNEL, OPERATOR, RANGE
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.host_activity import NOTHING

_NAMED = 0.5
"""A name is said when it explains this much of an excess; so is that the same kernels take longer."""

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
    by_key = dict(iter(held.groupby(["step", "part"])))
    found = [
        _told(by_key.get((step, part)), rank, excess_ns, _others(ranks[step], rank, peers, late_ranks[step]))
        for rank, step, part, excess_ns in cells[["rank", "step", "part", "excess_ns"]].itertuples(index=False)
    ]
    return cells.assign(**{name: [row[place] for row in found] for place, name in enumerate(columns)})


def _others(ranks: np.ndarray, rank: int, peers: pd.Series, late: np.ndarray) -> np.ndarray:
    """The ranks that do the same and are not late, as far as there are any."""
    alike = np.array([other for other in ranks if other != rank and peers[other] == peers[rank]])
    others: np.ndarray = alike if len(alike) else ranks[ranks != rank]
    in_time = others[~np.isin(others, late)]
    return in_time if len(in_time) else others


def _told(rows: pd.DataFrame | None, rank: int, excess_ns: int, others: np.ndarray) -> tuple[Any, ...]:
    if rows is None:
        return None, None, np.nan, np.nan
    own = rows[rows["rank"] == rank]
    beside = rows[rows["rank"].isin(others)]
    same = _same_work(own, beside, excess_ns, others)
    if not np.isnan(same[0]):  # no one of them is to be named
        return None, None, *same
    return *_longest(own, beside, excess_ns, others), *same


def _longest(
    own: pd.DataFrame, beside: pd.DataFrame, excess_ns: int, others: np.ndarray
) -> tuple[str | None, str | None]:
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
        extra = held - _medians(beside, what, others, "total_ns").reindex(held.index).fillna(0)
        longest = extra.idxmax()
        # A host that is slow at everything is not slow by what it does most.
        is_own = what not in (DOING, RANGE) or extra[longest] >= _NAMED * held[longest]
        if is_own and extra[longest] >= _NAMED * excess_ns:
            return what, str(longest)
    return None, None


def _medians(beside: pd.DataFrame, what: str, others: np.ndarray, column: str) -> pd.Series:
    """By name, over the others; who has none of it has 0."""
    sums = beside[beside["what"] == what].groupby(["name", "rank"])[column].sum()
    return sums.unstack("rank").reindex(columns=others).fillna(0).median(axis=1)  # noqa: PD010 - keys are unique


def _same_work(own: pd.DataFrame, beside: pd.DataFrame, excess_ns: int, others: np.ndarray) -> tuple[float, float]:
    """Time of the rank and of its peers in the kernels of which both run as many, of as many blocks and shapes."""
    kernels = _alike(own, beside, KERNEL, others)
    operators = own[own["what"] == OPERATOR]
    if operators["name"].str.contains(" of [", regex=False).any():
        by_shape = _alike(own, beside, OPERATOR, others)
        if (by_shape["own"] - by_shape["peers"]).sum() < _NAMED * excess_ns:
            return np.nan, np.nan
    if (kernels["own"] - kernels["peers"]).sum() < _NAMED * excess_ns:
        return np.nan, np.nan
    return float(kernels["own"].sum()), float(kernels["peers"].sum())


def _alike(own: pd.DataFrame, beside: pd.DataFrame, what: str, others: np.ndarray) -> pd.DataFrame:
    """Times of the names of which the rank has as many calls and blocks as its peers: `own`, `peers`."""
    held = own[own["what"] == what].set_index("name")
    same = pd.Series(data=True, index=held.index)
    for count in ("calls", "blocks"):
        typical = _medians(beside, what, others, count).reindex(held.index)
        same &= held[count].fillna(0).astype("float64") == typical
    peers = _medians(beside, what, others, "total_ns").reindex(held.index)
    return pd.DataFrame({"own": held["total_ns"].astype("float64"), "peers": peers})[same]
