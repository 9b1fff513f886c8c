"""The kernels and operators that take most time: rows of all ranks as one, longest first."""

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.base import percent, ratio


def kernels(result: Result, count: int) -> pd.DataFrame:
    """`name`, `kind`, `calls` and `total_ns` of a mean rank, `mean_ns` of a call, `share_pct` of all of them."""
    return _longest(result, ["name", "kind"], "total_ns", count)


def operators(result: Result, count: int) -> pd.DataFrame:
    """The same of operators (`operator`, `autograd`), by the time of the GPU operations that they launch themselves."""
    return _longest(result, ["operator", "autograd"], "gpu_own_ns", count)


def _longest(result: Result, keys: list[str], time: str, count: int) -> pd.DataFrame:
    frame = result.to_frame()
    if frame.empty:
        return frame
    ranks = frame["rank"].nunique()
    sums = frame.groupby(keys, dropna=False, observed=True)[["calls", time]].sum().reset_index()
    whole = pd.Series(int(sums[time].sum()), index=sums.index)
    made = sums.assign(
        total_ns=sums[time] / ranks,
        mean_ns=ratio(sums[time], sums["calls"]),
        share_pct=percent(sums[time], whole),
        calls=sums["calls"] / ranks,
    )
    held = made[made["total_ns"] > 0]
    return held.sort_values("total_ns", ascending=False, kind="stable").head(count).reset_index(drop=True)
