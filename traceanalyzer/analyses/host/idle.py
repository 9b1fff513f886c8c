"""Why each rank's GPU is idle, in the whole window and in each step: causes that add up to idle exactly."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack, typed
from traceanalyzer.analyses.host import idle_causes
from traceanalyzer.analyses.host.idle_causes import LAUNCH_NS, PARTS, SHORT_NS, Gaps
from traceanalyzer.analyses.names import IdleColumn
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES
from traceanalyzer.model import RankTrace, Window


class Idle(Result[IdleColumn]):
    """One row for each rank's window (`step` absent) and for each step's GPU window; the parts add up to idle."""

    title: ClassVar[str] = "Why the GPU is idle"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step; absent for the whole window."),
        "window_ns": Column.time("Length of the window.", better=Better.LESS),
        "idle_ns": Column.time("Time in which nothing runs on the GPU.", is_news_when_zero=True, better=Better.LESS),
        **{cause.column: Column.time(cause.definition) for cause in IDLE_CAUSES},
        "gaps": Column.count("Gaps of 5 µs and more that begin in the window.", is_compared=False),
        "longest_ns": Column.time(
            "The longest part of a gap inside the window; absent without gaps.", adds=Adds.EXTREME
        ),
        "idle_pct": Column.share("100 · idle / window.", better=Better.LESS),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(idle_pct=percent(table["idle_ns"], table["window_ns"]))


def per_rank(
    trace: RankTrace,
    breakdown: pd.DataFrame,
    steps: pd.DataFrame,
    idle_short_ns: int = SHORT_NS,
    idle_launch_ns: int = LAUNCH_NS,
) -> pd.DataFrame:
    """The gaps of each window, clipped to it and cut by cause; checked against the breakdown's idle time."""
    if trace.gpu_ops.empty:
        return pd.DataFrame()
    windows = _windows(trace, breakdown, steps)
    gaps = idle_causes.find(trace)
    window, gap = _pairs(windows, gaps)
    pieces = gaps.take(gap)
    start_ns, end_ns = windows["start_ns"].to_numpy()[window], windows["end_ns"].to_numpy()[window]
    causes = idle_causes.parts(trace, pieces, start_ns, end_ns, short_ns=idle_short_ns, launch_ns=idle_launch_ns)
    facts = causes.assign(
        length=np.minimum(pieces.ends, end_ns) - np.maximum(pieces.starts, start_ns),
        gaps=(pieces.lengths >= idle_short_ns) & (pieces.starts >= start_ns),
    )
    rows = windows.drop_duplicates("row").set_index("row")
    grouped = facts.groupby(windows["row"].to_numpy()[window])
    sums = grouped[[*PARTS, "gaps"]].sum().reindex(rows.index, fill_value=0).astype("int64")
    table = rows[["step", "window_ns"]].join(sums)
    table["idle_ns"] = table[list(PARTS)].sum(axis=1)
    table["longest_ns"] = grouped["length"].max().reindex(rows.index).astype("Int64")
    assert (table["idle_ns"] == rows["idle_ns"]).all(), "the causes must add up to the breakdown's idle time"
    return table.reset_index(drop=True)


def across(parts: Mapping[int, pd.DataFrame]) -> Idle:
    """The ranks' rows under each other."""
    return Idle(stack(parts, tuple(Idle.columns)))


def _windows(trace: RankTrace, breakdown: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """The stretches of the whole window (`row` 0) and every step's window, with the row's length and idle time."""
    whole = breakdown[["window_ns", "idle_ns"]].assign(step=pd.NA).merge(_limits(trace.window), how="cross")
    own = steps.loc[steps["start_ns"].notna(), ["step", "start_ns", "window_ns", "idle_ns"]] if len(steps) else None
    if own is None:
        return typed(whole, {"step": "Int64", **dict.fromkeys(_WINDOW, "int64")})
    own = own.assign(end_ns=own["start_ns"] + own["window_ns"], row=np.arange(1, len(own) + 1))
    table = pd.concat([typed(frame, dict.fromkeys(whole, "Int64")) for frame in (whole, own)], ignore_index=True)
    return typed(table, dict.fromkeys(_WINDOW, "int64"))


_WINDOW = ("row", "start_ns", "end_ns", "window_ns", "idle_ns")


def _limits(window: Window) -> pd.DataFrame:
    return pd.DataFrame({"start_ns": window.starts, "end_ns": window.ends, "row": 0})


def _pairs(windows: pd.DataFrame, gaps: Gaps) -> tuple[np.ndarray, np.ndarray]:
    """Positions of every window and gap that overlap."""
    first = np.searchsorted(gaps.ends, windows["start_ns"].to_numpy(), side="right")
    past = np.searchsorted(gaps.starts, windows["end_ns"].to_numpy(), side="left")
    count = np.maximum(past - first, 0)
    window = np.repeat(np.arange(len(windows)), count)
    return window, np.arange(len(window)) - np.repeat(np.cumsum(count) - count - first, count)
