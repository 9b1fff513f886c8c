"""Whether ranks run operators of other sizes than their peers in the same step, where shapes were recorded."""

from collections.abc import Collection

import pandas as pd

from traceanalyzer.analyses.blame.what_ran import OPERATOR

_WITH_SHAPES = " of ["


def other_sizes_pct(work: pd.DataFrame, rank: int, others: Collection[int], steps: Collection[int]) -> float | None:
    """Percent of the rank's compute in operators of shapes that no other rank runs in the same step, but other sizes of.

    Operators that the others do not run in any size are extra work, and count as none. `None` without shapes.
    """
    held = work[(work["what"] == OPERATOR) & work["step"].isin(steps)] if len(work) else work
    held = held[held["name"].str.contains(_WITH_SHAPES, regex=False)] if len(held) else held
    own, beside = held[held["rank"] == rank], held[held["rank"].isin(list(others))]
    if own.empty or beside.empty or not own["total_ns"].sum():
        return None
    plain = own["name"].str.split(_WITH_SHAPES, regex=False).str[0]
    known = set(beside["name"].str.split(_WITH_SHAPES, regex=False).str[0])
    same = pd.MultiIndex.from_frame(own[["step", "name"]]).isin(pd.MultiIndex.from_frame(beside[["step", "name"]]))
    is_other = ~same & plain.isin(known).to_numpy()
    return 100 * float(own.loc[is_other, "total_ns"].sum()) / float(own["total_ns"].sum())
