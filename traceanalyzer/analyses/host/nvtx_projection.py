"""Where each range on the host lies on the GPU: from the first start to the last end of what it launched."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups, by_letters
from traceanalyzer.analyses.names import NvtxProjectionColumn
from traceanalyzer.analyses.spread import columns_of, spread, with_mean
from traceanalyzer.analyses.trace.launch_moments import launch_moments
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import known_of, lengths_of, sorted_table, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, table_of


class NvtxProjection(Result[NvtxProjectionColumn]):
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
    found = {name: np.zeros(len(ranges), dtype=np.int64) for name in ("operations", "first_ns", "last_ns")}
    engine = _engine_threads(trace)
    starts, ends, threads = (array_of(ranges, name) for name in ("start_ns", "end_ns", "thread"))
    for thread in np.unique(threads):
        rows = np.flatnonzero(threads == thread)
        lane = picked(launched, np.isin(array_of(launched, "thread"), [thread, *engine]))
        for name, values in _projections(starts[rows], ends[rows], lane).items():
            found[name][rows] = values
    return _by_name(trace, **found)


def across(parts: Mapping[int, pd.DataFrame]) -> NvtxProjection:
    """The ranks' rows under each other."""
    return NvtxProjection(stack(parts, tuple(NvtxProjection.columns)))


def _launched(trace: RankTrace) -> pd.DataFrame:
    """Counted GPU operations with the time and thread of their launch, in its order."""
    rows = np.flatnonzero(trace.counted & (array_of(trace.gpu_ops, "launch") != NONE))
    moments, threads = launch_moments(trace, rows)
    order = np.argsort(moments, kind="stable")
    times = {name: array_of(trace.gpu_ops, name)[rows[order]] for name in ("start_ns", "end_ns")}
    return table_of({"launch_ns": moments[order], "thread": threads[order], **times})


def _engine_threads(trace: RankTrace) -> set[int]:
    """Threads on which autograd runs operators and no forward operator runs."""
    threads = array_of(trace.host_ops, "thread")
    is_autograd = whole_of(trace.host_ops, "forward_thread", 0) != 0
    has_sequence = known_of(trace.host_ops, "sequence")
    return set(np.setdiff1d(threads[is_autograd], threads[~is_autograd & has_sequence]).tolist())


def _projections(starts: np.ndarray, ends: np.ndarray, lane: pd.DataFrame) -> dict[str, np.ndarray]:
    """First start, last end and number of the operations launched in each range."""
    launch = array_of(lane, "launch_ns")
    low, high = (np.searchsorted(launch, times, side="left") for times in (starts, ends))
    return {
        "operations": high - low,
        "first_ns": _reduced(np.minimum, array_of(lane, "start_ns"), low, high),
        "last_ns": _reduced(np.maximum, array_of(lane, "end_ns"), low, high),
    }


def _reduced(function: np.ufunc, values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """`function` over values[low:high] of each pair; meaningless where low = high."""
    padded = np.append(values, 0)  # reduceat takes no position past the end
    reduced: np.ndarray = function.reduceat(padded, np.column_stack([low, high]).ravel())[::2]
    return reduced


def _by_name(trace: RankTrace, operations: np.ndarray, first_ns: np.ndarray, last_ns: np.ndarray) -> pd.DataFrame:
    held = operations > 0
    if not held.any():
        return pd.DataFrame()
    columns = {name: by_letters(column_of(trace.ranges, name)) for name in ("domain", "name")}
    groups = Groups.of(columns, ["domain", "name"], with_absent=True)
    lengths = spread((last_ns - first_ns)[held], {"group": groups.of_row[held]}, "ns")
    group = lengths.pop("group")
    host_ns = groups.sums(lengths_of(trace.ranges))
    sums = {"operations": groups.sums(operations), "host_ns": host_ns, "ranges": groups.counts()}
    names = {name: values[group].astype(object) for name, values in groups.keys.items()}
    return sorted_table({**names, **lengths, **{name: own[group] for name, own in sums.items()}}, "total_ns")
