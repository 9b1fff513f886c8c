"""A snapshot's history by the steps of the trace that was recorded beside it: both have the host's clock."""

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, slots=True)
class TraceSteps:
    """What the history tells of a trace's steps.

    Attributes:
        table: one row for each step that the history reaches into: `step`, `peak_bytes` and `end_bytes` (requested).
        peak_step: in which the peak of the history lies; `None` outside all.
        before_ns: how long before the trace's first step the history ends; `None` where it reaches into one or ends
            after them all.
    """

    table: pd.DataFrame
    peak_step: int | None
    before_ns: int | None


def by_steps(levels: pd.DataFrame, peak_at: int, steps: pd.DataFrame) -> TraceSteps | None:
    """The levels by step.

    Args:
        levels: as `traceanalyzer.snapshots.levels.levels` gives them.
        peak_at: row of their peak.
        steps: of the snapshot's rank: `step`, `host_start_ns`, `host_end_ns`.

    Returns:
        `None` without a history, or without steps.
    """
    known = steps.dropna(subset=["step", "host_start_ns", "host_end_ns"]).sort_values("host_start_ns")
    if levels.empty or known.empty:
        return None
    starts, ends = (known[name].to_numpy(dtype=np.int64) for name in ("host_start_ns", "host_end_ns"))
    times = levels["time_ns"].to_numpy()
    row = np.searchsorted(starts, times, side="right") - 1
    row = np.where((row >= 0) & (times < ends[row]), row, -1)
    grouped = levels["requested_bytes"][row >= 0].groupby(row[row >= 0])
    numbers = known["step"].to_numpy(dtype=np.int64)
    table = pd.DataFrame({"peak_bytes": grouped.max(), "end_bytes": grouped.last()})
    table.insert(0, "step", numbers[table.index])
    peak = int(row[peak_at])
    before = int(starts[0] - times[-1])
    return TraceSteps(
        table.reset_index(drop=True), None if peak < 0 else int(numbers[peak]), before if before > 0 else None
    )
