"""Why each rank's GPU is idle, in the whole window and in each step: causes that add up to idle exactly."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack
from traceanalyzer.analyses.blocks import row_blocks
from traceanalyzer.analyses.host import idle_causes
from traceanalyzer.analyses.host.idle_causes import PARTS
from traceanalyzer.analyses.names import IdleColumn
from traceanalyzer.analyses.time.intervals import Intervals, overlapping
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES, LAUNCH_NS, SHORT_NS
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, table_of


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
        return self._with(table, {"idle_pct": percent(table["idle_ns"], table["window_ns"])})


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
    facts, row, begin, end = _windows(trace, breakdown, steps)
    gaps = idle_causes.find(trace)
    window, gap = overlapping(begin, end, Intervals(gaps.starts, gaps.ends))
    of_row = row[window]
    sums = {name: np.zeros(len(facts), dtype=np.int64) for name in (*PARTS, "gaps", "pieces")}
    longest = np.zeros(len(facts), dtype=np.int64)
    for rows in row_blocks(len(gap)):
        pieces, own = gaps.take(gap[rows]), of_row[rows]
        start_ns, end_ns = begin[window[rows]], end[window[rows]]
        causes = idle_causes.parts(trace, pieces, start_ns, end_ns, short_ns=idle_short_ns, launch_ns=idle_launch_ns)
        for name in PARTS:
            np.add.at(sums[name], own, array_of(causes, name))
        np.add.at(sums["gaps"], own, (pieces.lengths >= idle_short_ns) & (pieces.starts >= start_ns))
        np.add.at(sums["pieces"], own, 1)
        np.maximum.at(longest, own, np.minimum(pieces.ends, end_ns) - np.maximum(pieces.starts, start_ns))
    idle_ns = np.sum([sums[name] for name in PARTS], axis=0)
    assert (idle_ns == array_of(facts, "idle_ns")).all(), "the causes must add up to the breakdown's idle time"
    longest_ns = pd.arrays.IntegerArray(longest, sums.pop("pieces") == 0)
    known = {name: column_of(facts, name) for name in ("step", "window_ns")}
    return table_of({**known, **sums, "idle_ns": idle_ns, "longest_ns": longest_ns})


def across(parts: Mapping[int, pd.DataFrame]) -> Idle:
    """The ranks' rows under each other."""
    return Idle(stack(parts, tuple(Idle.columns)))


def _windows(
    trace: RankTrace, breakdown: pd.DataFrame, steps: pd.DataFrame
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """The rows' `step`, `window_ns` and `idle_ns`, the whole window's first; and stretches: of which row, from, to."""
    whole = trace.window
    has_window = ~column_of(steps, "start_ns").isna() if len(steps) else np.empty(0, dtype=bool)
    of_steps = {name: steps[name].to_numpy(dtype=np.int64, na_value=NONE)[has_window] if len(steps) else _NO_TIMES
                for name in ("step", "start_ns", "window_ns", "idle_ns")}  # fmt: skip
    is_absent = np.append(True, column_of(steps, "step").isna()[has_window] if len(steps) else has_window)
    facts = {name: np.append(array_of(breakdown, name)[0], of_steps[name]) for name in ("window_ns", "idle_ns")}
    step = pd.arrays.IntegerArray(np.append(1, of_steps["step"]), is_absent)
    row = np.append(np.zeros(len(whole.starts), dtype=np.int64), np.arange(1, len(step)))
    begin = np.append(whole.starts, of_steps["start_ns"])
    end = np.append(whole.ends, of_steps["start_ns"] + of_steps["window_ns"])
    return table_of({"step": step, **facts}), row, begin, end


_NO_TIMES = np.empty(0, dtype=np.int64)
