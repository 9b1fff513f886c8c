"""A GPU that is slower and a host that is late are two causes: neither is a small part of the other."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.lateness import LEAST_PCT
from traceanalyzer.analyses.blame.naming import named
from traceanalyzer.meaning.vocabulary import DATA, HOST
from traceanalyzer.model.tables import column_of, only

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
    hidden = hidden[hidden["excess_ns"] >= LEAST_PCT / 100 * hidden["step"].map(length)]
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
