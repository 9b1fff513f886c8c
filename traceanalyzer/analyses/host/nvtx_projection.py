"""Where each range on the host lies on the GPU: from the first start to the last end of what it launched."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.spread import columns_of, spread, with_mean
from traceanalyzer.analyses.trace.launch_moments import launch_moments
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE


class NvtxProjection(Result):
    """One row for each rank, domain and name of a range, longest total projection first within a rank."""

    title: ClassVar[str] = "Ranges on the GPU"
    keys: ClassVar[tuple[str, ...]] = ("rank", "domain", "name")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "domain": Column.text("NVTX domain; absent for the default one and for PyTorch's record_function."),
        "name": Column.text("Name of the range.", written=Written.KERNEL),
        "ranges": Column.count("Ranges of that name.", is_compared=False),
        "calls": Column.count(
            "Those that launched a GPU operation which the capture has: the figures are of these.", is_aside=True
        ),
        "operations": Column.count("GPU operations launched inside them; inside nested ranges they count in each."),
        "host_ns": Column.time("Sum of the ranges' durations on the host."),
        **columns_of("ns", "the projections, each from the first start to the last end of its operations"),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return with_mean(table, "ns")


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Project the ranges that launched a counted GPU operation.

    An operation belongs to a range when the call that launched it began inside the range on its thread, or on a
    thread of autograd's engine, which works for the thread that waits in backward.
    """
    ranges = trace.ranges
    launched = _launched(trace)
    if ranges.empty or launched.empty:
        return pd.DataFrame()
    projected = ranges.assign(operations=0, first_ns=np.int64(0), last_ns=np.int64(0))
    engine = _engine_threads(trace)
    for thread in ranges["thread"].unique():
        rows = np.flatnonzero((ranges["thread"] == thread).to_numpy())
        lane = launched[launched["thread"].isin({thread, *engine})]
        found = _projections(ranges.iloc[rows], lane)
        for name, values in found.items():
            projected.iloc[rows, projected.columns.get_loc(name)] = values
    return _by_name(projected)


def across(parts: Mapping[int, pd.DataFrame]) -> NvtxProjection:
    """The ranks' rows under each other."""
    return NvtxProjection(stack(parts, tuple(NvtxProjection.columns)))


def _launched(trace: RankTrace) -> pd.DataFrame:
    """Counted GPU operations with the time and thread of their launch, in its order."""
    rows = np.flatnonzero(trace.counted & (trace.gpu_ops["launch"] != NONE).to_numpy())
    ops = trace.gpu_ops.iloc[rows]
    moments, threads = launch_moments(trace, rows)
    table = pd.DataFrame(
        {
            "launch_ns": moments,
            "thread": threads,
            "start_ns": ops["start_ns"].to_numpy(),
            "end_ns": ops["end_ns"].to_numpy(),
        }
    )
    return table.sort_values("launch_ns", kind="stable", ignore_index=True)


def _engine_threads(trace: RankTrace) -> set[int]:
    """Threads on which autograd runs operators and no forward operator runs."""
    ops = trace.host_ops
    is_autograd = ops["forward_thread"].fillna(0) != 0
    has_sequence = ops["sequence"].notna()
    return set(ops.loc[is_autograd, "thread"]) - set(ops.loc[~is_autograd & has_sequence, "thread"])


def _projections(ranges: pd.DataFrame, lane: pd.DataFrame) -> dict[str, np.ndarray]:
    """First start, last end and number of the operations launched in each range."""
    launch = lane["launch_ns"].to_numpy()
    low = np.searchsorted(launch, ranges["start_ns"].to_numpy(), side="left")
    high = np.searchsorted(launch, ranges["end_ns"].to_numpy(), side="left")
    return {
        "operations": high - low,
        "first_ns": _reduced(np.minimum, lane["start_ns"].to_numpy(), low, high),
        "last_ns": _reduced(np.maximum, lane["end_ns"].to_numpy(), low, high),
    }


def _reduced(function: np.ufunc, values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """`function` over values[low:high] of each pair; meaningless where low = high."""
    padded = np.append(values, 0)  # reduceat takes no position past the end
    reduced: np.ndarray = function.reduceat(padded, np.column_stack([low, high]).ravel())[::2]
    return reduced


def _by_name(projected: pd.DataFrame) -> pd.DataFrame:
    domain, name = projected["domain"].astype("object"), projected["name"].astype("object")
    keys = [domain.rename("domain"), name.rename("name")]
    held = (projected["operations"] > 0).to_numpy()
    if not held.any():
        return pd.DataFrame()
    lengths = (projected["last_ns"] - projected["first_ns"])[held]
    table = spread(lengths, [key[held] for key in keys], "ns")
    groups = projected.assign(host_ns=projected["end_ns"] - projected["start_ns"]).groupby(keys, dropna=False)
    sums = groups[["operations", "host_ns"]].sum().assign(ranges=groups.size())
    return table.join(sums).sort_values("total_ns", ascending=False, kind="stable").reset_index()
