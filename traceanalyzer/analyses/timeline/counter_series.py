"""The rank's sampled quantities over time, in bins: memory in use, and what the GPU's own counters say."""

import re
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.names import CounterSeriesColumn
from traceanalyzer.analyses.time.intervals import bins_of
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, table_of, under_each_other

LEVELS = {"memory_allocated_bytes": "memory allocated", "memory_reserved_bytes": "memory reserved"}
"""Counters that keep their value until the next one, as Kineto's memory events; others are samples."""

METRICS = (
    ("SMs active", re.compile(r"SMs? Active|^sm__cycles_active\.avg\.pct", re.IGNORECASE)),
    ("tensor cores active", re.compile(r"Tensor Active|^sm__(?:inst_executed_)?pipe_tensor\S*\.pct", re.IGNORECASE)),
    ("DRAM read", re.compile(r"DRAM Read|^dram__(?:bytes_read|read_throughput)\.", re.IGNORECASE)),
    ("DRAM write", re.compile(r"DRAM Write|^dram__(?:bytes_write|write_throughput)\.", re.IGNORECASE)),
    (
        "NVLink received",
        re.compile(r"NVLink.* RX .*(?:Throughput|Band|Bytes|User)|NVLink RX|^nvlrx__bytes\.", re.IGNORECASE),
    ),
    (
        "NVLink sent",
        re.compile(r"NVLink.* TX .*(?:Throughput|Band|Bytes|User)|NVLink TX|^nvltx__bytes\.", re.IGNORECASE),
    ),
    ("PCIe received", re.compile(r"PCIe RX", re.IGNORECASE)),
    ("PCIe sent", re.compile(r"PCIe TX", re.IGNORECASE)),
)
"""GPU metrics that are drawn, by Nsight's names or CUPTI's, in this order: of several that fit the first by name."""


class CounterSeries(Result[CounterSeriesColumn]):
    """One row for each rank, counter and bin of its window in which the counter has a value."""

    title: ClassVar[str] = "Counters over time"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "counter", "bin")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "counter": Column.text("What is counted."),
        "source": Column.text("Name as the profiler has it."),
        "bin": Column.ident("Position of the bin in the window."),
        "start_ns": Column.moment("Its start."),
        "length_ns": Column.time("Its length."),
        "value": Column.number("Mean of the samples in the bin; of memory the highest level in it."),
    }


def per_rank(trace: RankTrace, counter_bins: int = 300) -> pd.DataFrame:
    """The window in `counter_bins` equal bins; none without counters."""
    window, counters = trace.window, trace.counters
    if not window.length_ns or counters.empty:
        return pd.DataFrame()
    starts, ends = bins_of(window, counter_bins)
    parts = [
        _binned(counters[(counters["name"] == source).to_numpy()], starts, ends, is_level=source in LEVELS).assign(
            counter=counter, source=source
        )
        for counter, source in _chosen(counters)
    ]
    return under_each_other(parts) if parts else pd.DataFrame()


def across(parts: Mapping[int, pd.DataFrame]) -> CounterSeries:
    """The ranks' bins under each other."""
    return CounterSeries(stack(parts, tuple(CounterSeries.columns)))


def _chosen(counters: pd.DataFrame) -> list[tuple[str, str]]:
    names = sorted(counters["name"].dropna().unique().astype(str))
    found = [(label, name) for name, label in LEVELS.items() if name in names]
    for label, pattern in METRICS:
        found += [(label, name) for name in names if pattern.search(name)][:1]
    return found


def _binned(own: pd.DataFrame, starts: np.ndarray, ends: np.ndarray, *, is_level: bool) -> pd.DataFrame:
    """One row for each bin with a value: the mean of its samples, or the highest level that held in it."""
    own = own[own["value"].notna()].sort_values("time_ns", kind="stable")
    place = np.searchsorted(starts, array_of(own, "time_ns"), side="right") - 1
    inside = (place >= 0) & (array_of(own, "time_ns") < ends[np.maximum(place, 0)])
    values = own["value"].to_numpy(dtype=np.float64)
    groups = pd.Series(values[inside]).groupby(place[inside])
    binned = (groups.max() if is_level else groups.mean()).reindex(range(len(starts)))
    if is_level:
        before = np.searchsorted(array_of(own, "time_ns"), starts, side="right") - 1
        held = np.where(before >= 0, np.append(values, np.nan)[before], np.nan)
        binned = pd.Series(np.fmax(binned.to_numpy(), held))
    table = table_of({"bin": np.arange(len(starts)), "start_ns": starts, "length_ns": ends - starts,
                          "value": binned.to_numpy()})  # fmt: skip
    return table[table["value"].notna()]
