"""Rows of several ranks as one: mean over ranks, and who is lowest and highest."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd

from traceanalyzer.analyses.base import percent
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.meaning.columns import Adds, Better, Column, Written

if TYPE_CHECKING:
    from traceanalyzer.analyses.names import OperatorsColumn

DEFINITIONS: Mapping[str, Column] = {
    "name": Column.text("Name of the kernel or copy; hover for the full one.", written=Written.KERNEL),
    "operator": Column.text("Name of the operator, of all passes and shapes."),
    "host_self_ns": Column.time(
        "Host time of a rank inside it but in no operator that it called: mean over ranks that ran it."
    ),
    "mean_host_self_ns": Column.time("The same of one call, all ranks together.", adds=Adds.DERIVED),
    "host_share_pct": Column.share("100 · that / that of all operators, all ranks together."),
    "gpu_own_ns": Column.time(
        "Sum of the durations of the GPU operations that it launched itself on one rank: mean likewise.",
        is_secondary=True,
    ),
    "lowest_host_self_ns": Column.time("Least host time of a rank.", adds=Adds.EXTREME),
    "highest_host_self_ns": Column.time("Largest host time of a rank.", adds=Adds.EXTREME),
    "kind": Column.text("compute, comm or copy.", written=Written.KIND, is_aside=True),
    "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
    "calls": Column.count("Calls on one rank: mean over ranks.", is_aside=True),
    "total_ns": Column.time("Sum of the durations on one rank: mean over ranks."),
    "mean_ns": Column.time("Mean duration of a call, all ranks together.", adds=Adds.DERIVED),
    "min_ns": Column.time("Shortest call of all ranks.", adds=Adds.EXTREME),
    "max_ns": Column.time("Longest call of all ranks.", adds=Adds.EXTREME),
    "share_pct": Column.share("100 · sum of durations / that of all GPU operations, all ranks together."),
    "rank": Column.ident("Global rank."),
    "wait_ns": Column.time(
        "Time inside communication calls before their last rank came, hidden or not: sum over calls.",
        is_news_when_zero=True,
        better=Better.LESS,
    ),
    "lowest_total_ns": Column.time("Least total of a rank.", adds=Adds.EXTREME),
    "lowest_rank": Column.ident("Whose that is."),
    "highest_total_ns": Column.time("Largest total of a rank.", adds=Adds.EXTREME),
    "highest_rank": Column.ident("Whose that is."),
}


def kernels(result: Kernels) -> pd.DataFrame:
    """Kernels and copies by name, largest total first, with the ranks of least and largest total.

    A rank that ran none of a name counts as 0: that only one rank runs a kernel is what a reader should see.
    """
    keys = ["name", "kind", "activity"]
    frame = _of_every_rank(result.to_frame(), keys, ["calls", "total_ns"])
    groups = frame.groupby(keys, observed=True, sort=False)
    sums = groups[["calls", "total_ns"]].sum()
    ranks = frame["rank"].nunique()
    table = pd.DataFrame(
        {
            "calls": sums["calls"] / ranks,
            "total_ns": sums["total_ns"] / ranks,
            "share_pct": 100.0 * sums["total_ns"] / sums["total_ns"].sum(),
            "mean_ns": sums["total_ns"] / sums["calls"],
            "min_ns": groups["min_ns"].min(),
            "max_ns": groups["max_ns"].max(),
        }
    )
    table = table.join(_extremes(frame, keys, "total_ns", "total")).reset_index()
    columns = ["name", "kind", "share_pct", "total_ns", "calls", "mean_ns", "min_ns", "max_ns"]
    table = table.sort_values("share_pct", ascending=False, kind="stable", ignore_index=True)
    return table[[*columns, *_spread_columns(frame, "total")]]


def busy_operators(result: Operators) -> pd.DataFrame:
    """Operators by name, most host time of their own first, with the ranks of least and most."""
    called = result.to_frame()
    called = called[called["calls"].notna()].astype({"operator": "str"})
    columns: list[OperatorsColumn] = ["calls", "host_self_ns", "gpu_own_ns"]
    frame = called.groupby(["operator", "rank"], sort=False)[columns].sum().reset_index()
    groups = frame.groupby("operator", sort=False)
    sums, means = groups[columns].sum(), groups[columns].mean()
    table = pd.DataFrame(
        {
            "host_share_pct": percent(sums["host_self_ns"], pd.Series(sums["host_self_ns"].sum(), sums.index)),
            "host_self_ns": means["host_self_ns"],
            "calls": means["calls"],
            "mean_host_self_ns": sums["host_self_ns"] / sums["calls"],
            "gpu_own_ns": means["gpu_own_ns"],
        }
    )
    table = table.join(_extremes(frame, ["operator"], "host_self_ns", "host_self")).reset_index()
    table = table.sort_values("host_self_ns", ascending=False, kind="stable", ignore_index=True)
    shown = ["operator", "host_share_pct", "host_self_ns", "calls", "mean_host_self_ns", "gpu_own_ns"]
    return table[[*shown, *_spread_columns(frame, "host_self")]]


def wait_matrix(result: Collectives) -> pd.DataFrame | None:
    """Time that each rank waits inside each collective, most first; `None` where no wait is known."""
    frame = result.to_frame()
    known = frame[frame["wait_ns"].notna()]
    if known.empty or not known["wait_ns"].any():
        return None
    wide = known.pivot_table(index="rank", columns="collective", values="wait_ns", aggfunc="sum").astype("Int64")
    wide = wide[wide.sum().sort_values(ascending=False).index]
    wide.columns = [f"{str(name).replace('_', '-')}_wait_ns" for name in wide]
    total = wide.sum(axis=1).astype("Int64")
    table = wide.assign(wait_ns=total).reset_index() if len(wide.columns) > 1 else wide.reset_index()
    return table.sort_values(table.columns[-1], ascending=False, kind="stable", ignore_index=True)


def _of_every_rank(frame: pd.DataFrame, keys: list[str], sums: list[str]) -> pd.DataFrame:
    """The rows, and one for each rank that a key lacks, with sums of 0."""
    every = frame[keys].drop_duplicates().merge(frame[["rank"]].drop_duplicates(), how="cross")
    return every.merge(frame, on=[*keys, "rank"], how="left").fillna(dict.fromkeys(sums, 0))


def _spread_columns(frame: pd.DataFrame, what: str) -> list[str]:
    """Columns of the spread; a single rank has none."""
    if frame["rank"].nunique() < 2:
        return []
    return [f"lowest_{what}_ns", "lowest_rank", f"highest_{what}_ns", "highest_rank"]


def _extremes(frame: pd.DataFrame, keys: list[str], column: str, what: str) -> pd.DataFrame:
    """Least and largest value of each group, and whose they are."""
    low = frame.loc[frame.groupby(keys, observed=True, sort=False)[column].idxmin()]
    high = frame.loc[frame.groupby(keys, observed=True, sort=False)[column].idxmax()]
    names = [f"lowest_{what}_ns", "lowest_rank"], [f"highest_{what}_ns", "highest_rank"]
    pieces = [
        part.set_index(keys)[[column, "rank"]].set_axis(columns, axis=1)
        for part, columns in zip((low, high), names, strict=True)
    ]
    return pieces[0].join(pieces[1])
