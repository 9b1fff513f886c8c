"""Counters below a rank's lanes: the launch queue, memory, the GPU's own counters.

For each counter of each rank come, as columns: start after the previous start, length of the bin, and the value in
thousandths of the largest.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.communication.common_clock import Clock
from traceanalyzer.report.timeline.columns import steps_of, varints
from traceanalyzer.report.timeline.host_lanes import MOST_RANKS

QUEUE = "launch queue"


def counter_lanes(
    results: Mapping[str, Result], order: Sequence[int], clock: Clock
) -> tuple[list[dict[str, Any]], bytes]:
    """What each counter is, and the columns, of the first ranks of `order`."""
    entries, columns = [], []
    for rank in order[:MOST_RANKS]:
        for name, unit, own in _of_rank(results, rank):
            starts = own["start_ns"].to_numpy(dtype=np.int64)
            values = own["value"].to_numpy(dtype=np.float64)
            most = float(values.max())
            if most <= 0:
                continue
            entries.append({"rank": rank, "name": name, "unit": unit, "most": most, "count": len(own),
                            "first": clock.place(rank, int(starts[0]))})  # fmt: skip
            columns += [steps_of(starts), own["length_ns"].to_numpy(dtype=np.int64), np.rint(1000 * values / most)]
    return entries, b"".join(map(varints, columns))


def _of_rank(results: Mapping[str, Result], rank: int) -> Iterator[tuple[str, str, pd.DataFrame]]:
    if "queue_depth" in results and len(results["queue_depth"]):
        frame = results["queue_depth"].to_frame()
        own = frame[frame["rank"] == rank]
        if len(own):
            yield QUEUE, "", own.assign(value=own["mean_depth"].astype("Float64").fillna(0))
    if "counter_series" in results and len(results["counter_series"]):
        frame = results["counter_series"].to_frame()
        own = frame[frame["rank"] == rank]
        for name, rows in own.groupby("counter", sort=False):
            yield str(name), _unit(str(name), str(rows["source"].iloc[0])), rows


def _unit(name: str, source: str) -> str:
    return "B" if name.startswith("memory") else "%" if "%" in source else ""
