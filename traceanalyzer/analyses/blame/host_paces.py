"""Hosts that are slower at everything: by how much, and what is then no name for why they are late."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.what_ran import RANGE
from traceanalyzer.analyses.host.host_activity import NOTHING
from traceanalyzer.analyses.host.host_names import is_framework_range
from traceanalyzer.analyses.operators.same_calls import SameCalls, same_calls
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.model.tables import array_of, only

_COVERED = 0.5
"""Of a host's time in operators: calls that all make tell of its pace where they take this part."""

_OF_PACE = 0.5
"""Of an excess: where a host's pace alone accounts for this part, the pace is why it is late; an operator too."""

_MOSTLY = 0.75
"""Of the steps: in so many a host is late that is slower throughout."""

_BY_ITSELF = 2.0
"""Times what an operator would take at the host's pace: it is longer by itself."""


def without_names_of_pace(cells: pd.DataFrame, late: pd.DataFrame, operators: pd.DataFrame) -> pd.DataFrame:
    """The cells; of hosts that are late by their pace without names of what every host does.

    Those are PyTorch's own ranges, operators that all call as often, and time in which nothing is recorded: a GPU idles
    in them for a host that is slow throughout, while GPUs that wait for it do not idle there, whose hosts do the same.
    An operator that takes this host hardly longer than the others is no name either, whatever its pace. Where most of
    its late steps have such names, a range that is one in another step holds slow calls if it needs no more there. So
    does what is the pace of other hosts in a step, on one that is as slow and mostly hidden behind them.
    """
    of_hosts = cells["part"] == HOST.column
    is_named = of_hosts & cells["name"].notna()
    if not is_named.any() or operators.empty:
        return cells
    needed = late.set_index(["rank", "step"])["needed_host_ns"].astype("float64")
    # A pace is there in all steps; stalls now and then make the same calls longer, too.
    is_most = cells["rank"].map(cells[of_hosts].groupby("rank")["step"].nunique()) >= _MOSTLY * late["step"].nunique()
    is_alone = len({*cells.loc[of_hosts, "rank"]}) == 1
    is_of_pace = pd.Series(data=False, index=cells.index)
    is_explained = is_of_pace.copy()
    for rank, rows in cells[is_named].groupby("rank"):
        same = same_calls(operators, int(rank), late["rank"].unique())
        if same is None or same.covered < _COVERED:
            continue
        if is_most[rows.index].any() or is_alone:  # of hosts that stall in turn, sums over all steps tell nothing
            is_of_pace[rows.index] = rows["name"].isin(_hardly_longer(rows, same)).to_numpy()
        if not same.pace:
            continue
        own = needed.reindex(pd.MultiIndex.from_frame(rows[["rank", "step"]])).to_numpy()
        explained = own * (1 - 1 / same.pace) >= _OF_PACE * array_of(rows, "excess_ns")
        is_explained[rows.index] = explained
        if not is_most[rows.index].any():
            continue
        of_pace = explained & np.array([_all_do(name, same, same.pace) for name in rows["name"]])
        of_pace |= explained & _hold_slow_calls(rows, of_pace, own)
        is_of_pace[rows.index] |= of_pace
    is_of_pace |= is_explained & _is_one_of(cells, cells[is_of_pace & is_explained])
    return cells.assign(**{name: cells[name].mask(is_of_pace, None) for name in ("what", "name")})


def _is_one_of(cells: pd.DataFrame, known: pd.DataFrame) -> pd.Series:
    """Whether another cell of that step, part and name is among these."""
    keys = ["step", "part", "name"]
    of_both = [pd.MultiIndex.from_frame(only(each, keys)) for each in (cells, known)]
    return pd.Series(of_both[0].isin(of_both[1]), index=cells.index)


def _hold_slow_calls(rows: pd.DataFrame, of_pace: np.ndarray, own_ns: np.ndarray) -> np.ndarray:
    """Rows named by a range on a host that is mostly late by its pace, where it hardly needs longer than in those."""
    is_range = (rows["what"] == RANGE).to_numpy()
    if 2 * of_pace.sum() <= len(rows):
        return np.zeros_like(is_range)
    held: np.ndarray = is_range & (own_ns - np.median(own_ns[of_pace]) < _OF_PACE * array_of(rows, "excess_ns"))
    return held


def _hardly_longer(rows: pd.DataFrame, same: SameCalls) -> set[str]:
    """Operators that all call as often and that take this host longer by less than half of what it is late in them."""
    excess_ns = rows.groupby("name")["excess_ns"].sum()
    names = same.own_ns.index.intersection(excess_ns.index)
    longer_ns = same.own_ns[names] - same.others_ns.loc[names].median(axis=1)
    return set(names[longer_ns < _OF_PACE * excess_ns[names]])


def _all_do(name: str, same: SameCalls, pace: float) -> bool:
    """Whether every host does it, and this one only at its pace."""
    if name not in same.own_ns:
        return name.startswith(NOTHING) or is_framework_range(name)
    return bool(same.own_ns[name] < _BY_ITSELF * pace * same.others_ns.loc[name].median())
