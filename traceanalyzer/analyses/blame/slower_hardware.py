"""Slower GPUs and CPUs: the same work that takes longer on one of them."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.longer_work import named
from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.meaning.vocabulary import DATA, HOST
from traceanalyzer.model.tables import column_of, only

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
