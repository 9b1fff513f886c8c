"""Counters below a rank's lanes: the launch queue, memory, the GPU's own counters.

For each counter of each rank come, as columns: start after the previous start, length of the bin, and the value in
thousandths of the largest; of memory by category, instead of the value, a column for each category that there is, in
the allocator's units of 512 bytes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.communication.common_clock import Clock
from traceanalyzer.analyses.memory.memory_levels import COLUMN
from traceanalyzer.analyses.timeline.counter_series import LEVELS
from traceanalyzer.analyses.timeline.host_events import MOST_RANKS
from traceanalyzer.report.timeline.columns import steps_of, varints

QUEUE = "launch queue"

ALLOCATED = LEVELS["memory_allocated_bytes"]

UNIT_BYTES = 512
"""What PyTorch's allocator gives is a multiple of this; the page's script has the same."""


def counter_lanes(results: Results, order: Sequence[int], clock: Clock) -> tuple[list[dict[str, Any]], bytes]:
    """What each counter is, and the columns, of the first ranks of `order`."""
    entries, columns = [], []
    for rank in order[:MOST_RANKS]:
        stacked, levels = _by_category(results, rank, clock)
        for name, unit, own in _of_rank(results, rank):
            if stacked and name == ALLOCATED:
                continue
            starts = own["start_ns"].to_numpy(dtype=np.int64)
            values = own["value"].to_numpy(dtype=np.float64)
            most = float(values.max())
            if most <= 0:
                continue
            entries.append({"rank": rank, "name": name, "unit": unit, "most": most, "count": len(own),
                            "first": clock.place(rank, int(starts[0]))})  # fmt: skip
            columns += [steps_of(starts), own["length_ns"].to_numpy(dtype=np.int64), np.rint(1000 * values / most)]
        entries += stacked
        columns += levels
    return entries, b"".join(map(varints, columns))


def _of_rank(results: Results, rank: int) -> Iterator[tuple[str, str, pd.DataFrame]]:
    if "queue_depth" in results and len(results["queue_depth"]):
        depths = results["queue_depth"].to_frame()
        depths = depths[depths["rank"] == rank]
        if len(depths):
            yield QUEUE, "", depths.assign(value=depths["mean_depth"].astype("Float64").fillna(0))
    if "counter_series" in results and len(results["counter_series"]):
        frame = results["counter_series"].to_frame()
        own = frame[frame["rank"] == rank]
        for name, rows in own.groupby("counter", sort=False):
            yield str(name), _unit(str(name), str(rows["source"].iloc[0])), rows


def _by_category(results: Results, rank: int, clock: Clock) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    """The rank's memory over time, stacked; nothing where the trace does not tell."""
    if "memory_levels" not in results or not len(results["memory_levels"]):
        return [], []
    frame = results["memory_levels"].to_frame()
    own = frame[frame["rank"] == rank]
    if own.empty or own["allocated_bytes"].max() <= 0:
        return [], []
    starts = own["time_ns"].to_numpy(dtype=np.int64)
    known = {name: own[column].to_numpy(dtype=np.int64) for name, column in COLUMN.items()}
    held = {name: np.maximum(bytes_, 0) // UNIT_BYTES for name, bytes_ in known.items() if bytes_.max() > 0}
    entry = {"rank": rank, "name": ALLOCATED, "unit": "B", "count": len(own), "parts": list(held),
             "peak": int(own["is_peak"].to_numpy().argmax()), "first": clock.place(rank, int(starts[0]))}  # fmt: skip
    return [entry], [steps_of(starts), np.append(np.diff(starts), 1), *held.values()]


def _unit(name: str, source: str) -> str:
    return "B" if name.startswith("memory") else "%" if "%" in source or ".pct" in source else ""
