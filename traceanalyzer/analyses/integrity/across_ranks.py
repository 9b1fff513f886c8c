"""What a rank's own file does not show, and the other ranks' do: times in another unit, and a file that is a copy."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.integrity.integrity_checks import EVENTS, OTHER_UNIT, Defect
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.severities import HIGH
from traceanalyzer.model.tables import rows_where
from traceanalyzer.selection.gpu_clock import A_SAMPLE

_UNITS = 1_000
"""Between ms, µs and ns."""


def other_units(kernels: pd.DataFrame) -> dict[int, list[Defect]]:
    """Of ranks whose kernels take nearer to 1,000 times as long (or short) as the same ones of most than equally long.

    The table is the Result's.
    """
    computing = rows_where(kernels, ((kernels["kind"] == "compute") & (kernels["median_ns"] > 0)).to_numpy())
    lengths = computing.pivot_table(index="name", columns="rank", values="median_ns", observed=True)
    lengths = lengths[lengths.notna().sum(axis="columns") > 1]
    if lengths.empty:
        return {}
    usual = lengths.quantile(axis="columns", interpolation="lower")
    times = lengths.div(usual, axis="index").median().dropna()
    return {int(rank): [_other_unit(ratio)] for rank, ratio in times.items() if _powers(ratio)}


def _powers(ratio: float) -> int:
    return round(np.log(ratio) / np.log(_UNITS))


def _other_unit(ratio: float) -> Defect:
    how = f"{ratio:,.0f} times as long as" if ratio > 1 else f"1/{1 / ratio:,.0f} of the time of the same kernels"
    text = (
        f"Its kernels take {how} on other ranks: the times are in another unit than the file says (µs taken for ns, or "
        "ns for µs), and so are all that are shown."
    )
    return Defect(OTHER_UNIT, HIGH, 1, None, text, (EVENTS,))


def copies(ranks: pd.DataFrame, kernels: pd.DataFrame) -> list[Defect]:
    """Ranks whose operations are those of another rank, to the nanosecond. The tables are the Results'."""
    whole = ["window_start_ns", "window_end_ns", "operations"]
    alike = rows_where(ranks, (ranks.duplicated(whole, keep=False) & (ranks["operations"] >= A_SAMPLE)).to_numpy())
    same: dict[object, list[int]] = {}
    for rank, own in kernels[kernels["rank"].isin(alike["rank"])].groupby("rank"):
        told = own[["name", "calls", "total_ns", "min_ns", "max_ns"]].astype({"name": "str"}).sort_values("name")
        same.setdefault((*told.itertuples(index=False, name=None),), []).append(int(rank))
    found = []
    for those in same.values():
        if len(those) > 1:
            text = (
                f"{numbered('Rank', those)} have the same operations at the same times, to the nanosecond: one file is "
                "there under several ranks' numbers, and ranks are missing."
            )
            found.append(Defect("copies_of_a_rank", HIGH, len(those), len(ranks), text, (EVENTS,)))
    return found
