"""The kernels and operators that take most time: rows of all ranks as one, longest first."""

import pandas as pd

from traceanalyzer.analyses.base import percent, ratio
from traceanalyzer.analyses.kernels.kernels_over_ranks import KernelsOverRanks
from traceanalyzer.analyses.operators.operators import Operators


def kernels(result: KernelsOverRanks, count: int) -> pd.DataFrame:
    """`name`, `kind`, `calls` and `total_ns` of a mean rank, `mean_ns` of a call, `share_pct` of all of them."""
    frame: pd.DataFrame = result.to_frame()
    return frame[frame["total_ns"] > 0].head(count)


def operators(result: Operators, count: int) -> pd.DataFrame:
    """The same of operators (`operator`, `autograd`), by the time of the GPU operations that they launch themselves."""
    frame: pd.DataFrame = result.to_frame()
    if frame.empty:
        return frame
    ranks, time = frame["rank"].nunique(), "gpu_own_ns"
    sums = frame.groupby(["operator", "autograd"], dropna=False, observed=True)[["calls", time]].sum().reset_index()
    whole = pd.Series(int(sums[time].sum()), index=sums.index)
    made = sums.assign(
        total_ns=sums[time] / ranks,
        mean_ns=ratio(sums[time], sums["calls"]),
        share_pct=percent(sums[time], whole),
        calls=sums["calls"] / ranks,
    )
    held = made[made["total_ns"] > 0]
    return held.sort_values("total_ns", ascending=False, kind="stable").head(count).reset_index(drop=True)
