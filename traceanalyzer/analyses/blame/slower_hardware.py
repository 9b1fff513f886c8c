"""Slower GPUs and CPUs: the same work that takes longer on one of them."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.excess import named
from traceanalyzer.analyses.blame.step_budget import RANGE
from traceanalyzer.analyses.host.activity import NOTHING
from traceanalyzer.analyses.host.host_names import is_framework_range
from traceanalyzer.analyses.operators.operators import SameCalls, same_calls
from traceanalyzer.analyses.statistics import PERCENT, RATIO, SHARE
from traceanalyzer.meaning.vocabulary import DATA, HOST
from traceanalyzer.model.tables import array_of, column_of, only

# A GPU that is slower and a host that is late are two causes: neither is a small part of the other.


_COMPUTE = "compute_ns"
_OF_HOSTS = (HOST.column, DATA.column)


def told_apart(found: pd.DataFrame, late: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The cells, as `named` gives them, without what a slower GPU and a late host hold of each other.

    What a rank needs more beside a cell's part is counted with it (`beside`). But that the same kernels take longer is
    no part of what a host does: such compute becomes a cell of its own, and what the host of a slower GPU needs more is
    left out of that GPU's cell.
    """
    if found.empty:
        return found
    excess = late.set_index(["rank", "step"])
    has_compute = np.array([_COMPUTE in parts for parts in found["beside"]], dtype=bool)
    hidden = found.loc[has_compute, ["rank", "step"]].drop_duplicates()
    hidden = hidden.assign(part=_COMPUTE, beside=[()] * len(hidden))
    hidden["excess_ns"] = _of_part(excess, hidden, _COMPUTE)
    length = (late["end_ns"] - late["begin_ns"]).groupby(late["step"]).median()
    hidden = hidden[hidden["excess_ns"] >= PERCENT / 100 * hidden["step"].map(length)]
    slower = named(hidden, late, work) if len(hidden) else hidden.assign(same_ns=np.nan)
    slower = slower[slower["same_ns"].notna()]
    cells, own = (pd.MultiIndex.from_frame(only(table, ["rank", "step"])) for table in (found, slower))
    is_slower = cells.isin(own)
    left = _without(found, has_compute & is_slower, (_COMPUTE,), excess)
    left = _without(left, ~column_of(left, "same_ns").isna(), _OF_HOSTS, excess)
    return pd.concat([left, slower], ignore_index=True) if len(slower) else left


def with_steps_before(found: pd.DataFrame, late: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The cells, and those of slower GPUs' steps before anybody waits: the same kernels take longer there, too.

    Ranks that run ahead wait for a slower one once their lead is used up. Only of ranks that are late so in most steps.
    """
    slow = found[(found["part"] == _COMPUTE) & found["same_ns"].notna()]
    if slow.empty:
        return found
    of_rank = slow.groupby("rank").agg(first=("step", "min"), count=("step", "size"), excess_ns=("excess_ns", "median"))
    of_rank = of_rank[2 * of_rank["count"] > late.groupby("rank").size().reindex(of_rank.index)]
    rows = late.loc[late["rank"].isin(of_rank.index), ["rank", "step"]]
    rows = rows[(rows["step"] < rows["rank"].map(of_rank["first"])).to_numpy()]
    known = pd.MultiIndex.from_frame(found.loc[found["part"] == _COMPUTE, ["rank", "step"]])
    rows = rows[~pd.MultiIndex.from_frame(rows).isin(known)]
    if rows.empty:
        return found
    asked = rows.assign(part=_COMPUTE, beside=[()] * len(rows), excess_ns=rows["rank"].map(of_rank["excess_ns"]))
    before = named(asked, late, work)
    before = before[before["same_ns"].notna()]
    own_ns = (before["same_ns"] - before["peers_same_ns"]).round().astype("int64")
    return pd.concat([found, before.assign(excess_ns=own_ns)], ignore_index=True) if len(before) else found


def _without(found: pd.DataFrame, is_chosen: np.ndarray, parts: tuple[str, ...], excess: pd.DataFrame) -> pd.DataFrame:
    """The chosen cells without these parts beside them, shorter by their share of what the rank needs more of these."""
    if not is_chosen.any():
        return found
    share = found["excess_ns"] / found.groupby(["rank", "step"])["excess_ns"].transform("sum")
    less = np.zeros(len(found))
    for part in parts:
        has = is_chosen & np.array([part in own for own in found["beside"]], dtype=bool)
        less[has] += (_of_part(excess, found[has], part) * share[has]).to_numpy()
    beside = [
        tuple(part for part in own if not (chosen and part in parts))
        for own, chosen in zip(found["beside"], is_chosen, strict=True)
    ]
    rest = (found["excess_ns"] - np.round(less)).clip(lower=1).astype("int64")
    return found.assign(excess_ns=rest, beside=beside)


def _of_part(excess: pd.DataFrame, cells: pd.DataFrame, part: str) -> pd.Series:
    """What each cell's rank needs more of the part in the step."""
    values = excess[f"{part}_excess"].reindex(pd.MultiIndex.from_frame(only(cells, ["rank", "step"])))
    return pd.Series(values.clip(lower=0).round().astype("int64").to_numpy(), index=cells.index)


# Hosts that are slower at everything: by how much, and what is then no name for why they are late.


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
    is_most = cells["rank"].map(cells[of_hosts].groupby("rank")["step"].nunique()) >= SHARE * late["step"].nunique()
    is_alone = len({*cells.loc[of_hosts, "rank"]}) == 1
    is_of_pace = pd.Series(data=False, index=cells.index)
    is_explained = is_of_pace.copy()
    for rank, rows in cells[is_named].groupby("rank"):
        same = same_calls(operators, int(rank), late["rank"].unique())
        if same is None or same.covered < SHARE:
            continue
        if is_most[rows.index].any() or is_alone:  # of hosts that stall in turn, sums over all steps tell nothing
            is_of_pace[rows.index] = rows["name"].isin(_hardly_longer(rows, same)).to_numpy()
        if not same.pace:
            continue
        own = needed.reindex(pd.MultiIndex.from_frame(rows[["rank", "step"]])).to_numpy()
        explained = own * (1 - 1 / same.pace) >= SHARE * array_of(rows, "excess_ns")
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
    held: np.ndarray = is_range & (own_ns - np.median(own_ns[of_pace]) < SHARE * array_of(rows, "excess_ns"))
    return held


def _hardly_longer(rows: pd.DataFrame, same: SameCalls) -> set[str]:
    """Operators that all call as often and that take this host longer by less than half of what it is late in them."""
    excess_ns = rows.groupby("name")["excess_ns"].sum()
    names = same.own_ns.index.intersection(excess_ns.index)
    longer_ns = same.own_ns[names] - same.others_ns.loc[names].median(axis=1)
    return set(names[longer_ns < SHARE * excess_ns[names]])


def _all_do(name: str, same: SameCalls, pace: float) -> bool:
    """Whether every host does it, and this one only at its pace."""
    if name not in same.own_ns:
        return name.startswith(NOTHING) or is_framework_range(name)
    return bool(same.own_ns[name] < RATIO * pace * same.others_ns.loc[name].median())
