"""How much longer ranks compute by more or larger operators than their peers run in the same step."""

from collections.abc import Collection

import pandas as pd

from traceanalyzer.analyses.blame.sizes import SIZES
from traceanalyzer.analyses.blame.what_ran import KERNEL, MOST_NAMES, OPERATOR

_COUNTS = ("calls", "work")


def more_work_ns(work: pd.DataFrame, rank: int, others: Collection[int], steps: Collection[int]) -> pd.Series:
    """For each step the rank's time beyond the others' median in operators of which it runs another number, or size.

    Without recorded shapes kernels stand for operators. The same work, however long it takes, counts as none.
    """
    held = work[(work["part"] == "compute_ns") & work["step"].isin(steps) & work["rank"].isin([rank, *others])]
    has_shapes = (held["what"] == OPERATOR) & held["name"].str.contains(SIZES, regex=False)
    held = held[held["what"] == (OPERATOR if has_shapes.any() else KERNEL)]
    more = pd.Series(0.0, index=pd.Index(sorted(steps)))
    for step, own in held.groupby("step"):
        wide = {name: own.pivot_table(index="name", columns="rank", values=name) for name in (*_COUNTS, "total_ns")}
        wide = {name: table.reindex(columns=[rank, *others]) for name, table in wide.items()}
        wide["total_ns"] = _with_unkept(wide["total_ns"])
        wide = {name: table.fillna(0.0) for name, table in wide.items()}
        beside = {name: table[[*others]].median(axis=1) for name, table in wide.items()}
        is_other = pd.Series(data=False, index=wide["calls"].index)
        for name in _COUNTS:
            is_other |= wide[name][rank] != beside[name]
        more[int(step)] = float((wide["total_ns"][rank] - beside["total_ns"])[is_other].sum())
    return more


def _with_unkept(total_ns: pd.DataFrame) -> pd.DataFrame:
    """With what a rank has too many names to keep: at most as long as its shortest, and as others run it."""
    is_full = total_ns.notna().sum() >= MOST_NAMES
    if not is_full.any():
        return total_ns
    most = pd.DataFrame(
        {rank: total_ns.max(axis=1).clip(upper=total_ns[rank].min()) for rank in total_ns.loc[:, is_full]}
    )
    return total_ns.fillna(most)
