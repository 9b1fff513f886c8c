"""Each CUDA stream: busy time, kinds, bytes, role; pairs of streams; blocks of weights that are copied to and fro."""

import re
from itertools import combinations

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import RANK, Result, percent
from traceanalyzer.analyses.grouping import memoized_by_trace, rows_of_each
from traceanalyzer.analyses.host.activity import range_around
from traceanalyzer.analyses.time.breakdown import known_only
from traceanalyzer.analyses.time.intervals import Intervals, new_ns
from traceanalyzer.meaning.columns import Adds, Better, Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    columns_of,
    is_name,
    picked,
    rows_named_so,
    sorted_by,
)

# What a GPU operation does for data movement: compute, communication, upload, download, exchange or on-device.


CLASSES = ("compute", "communication", "upload", "download", "exchange", "device memory", "unknown")
"""Upload is host to device, download device to host, exchange a copy between two GPUs; `device memory` is memset and
copies within the GPU (and within the host); `unknown` a CUDA graph that was recorded as one operation."""

UNKNOWN = CLASSES[-1]

_OF_DIRECTION = {"HtoD": "upload", "DtoH": "download", "PtoP": "exchange"}


_OF_KIND = {"comm": "communication", kinds.UNKNOWN: UNKNOWN}
"""Of kernels and graphs; the others are compute."""


@memoized_by_trace
def op_classes(trace: RankTrace) -> np.ndarray:
    """Position in `CLASSES` of each GPU operation."""
    ops = columns_of(trace.gpu_ops)
    directions, kind = ops["direction"], ops["kind"]
    of_direction = [_OF_DIRECTION.get(name, "device memory") for name in directions.categories.tolist()]
    copies = np.array([CLASSES.index(name) for name in (*of_direction, "device memory")])[directions.codes]
    is_kernel = is_name(ops["activity"], "kernel", "graph")
    of_kind = [_OF_KIND.get(name, "compute") for name in kind.categories.tolist()]
    kernels = np.array([CLASSES.index(name) for name in (*of_kind, "compute")])[kind.codes]
    return np.where(is_kernel, kernels, copies)


def traffic_unions(starts: np.ndarray, ends: np.ndarray, classes: np.ndarray) -> dict[str, Intervals]:
    """Union of the operations of each class."""
    return {name: Intervals.of_rows(starts, ends, classes == code) for code, name in enumerate(CLASSES)}


# What each CUDA stream of a rank carries: busy time, kinds, bytes, and the role that follows from them.


_NS = tuple(f"{name.replace(' ', '_')}_ns" for name in CLASSES)


class Streams(Result):
    """One row for each rank and stream that ran something in the window, busiest first within a rank."""

    title = "Streams"
    keys = ("rank", "stream")
    stored = ("window_ns",)
    derived = {"busy_pct": "busy_ns / window_ns"}
    joined_by = ("role",)
    columns = declared(
        rank=RANK,
        stream="Number in the trace.",
        role=(
            "The class that makes up 90% or more of its operations' time (`mixed` when none does): compute, "
            "communication, upload, download, exchange (copies between GPUs), device memory, unknown (CUDA graphs "
            "that were recorded as one operation each)."
        ),
        operations="GPU operations in the window.",
        busy_ns=Column.time("Time in which the stream runs something.", leads=True),
        busy_pct="100 · busy / window.",
        compute_ns=Column.spent("Time in which it runs compute kernels."),
        communication_ns="Time in which it runs communication kernels.",
        upload_ns="Time in which it copies from host to device.",
        download_ns="Time in which it copies from device to host.",
        exchange_ns="Time in which it copies between two GPUs.",
        device_memory_ns="Time of memsets and of copies within the GPU.",
        unknown_ns=(
            "Time in which it runs CUDA graphs that were recorded as one operation each; with any, the times above "
            "are n/a: the graph may do each of it."
        ),
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return super()._derived(known_only(table, _NS[:-1], table[_NS[-1]]))


def streams_per_rank(trace: RankTrace, stream_role_pct: float = 90) -> pd.DataFrame:
    """The rank's operations by stream, clipped to its window."""
    ops, window = columns_of(trace.gpu_ops), trace.window
    inside = np.flatnonzero(window.touched(ops["start_ns"], ops["end_ns"]) != NONE)
    if not len(inside):
        return pd.DataFrame()
    classes, made = op_classes(trace), []
    for rows in (inside[own] for own in rows_of_each(ops["stream"][inside])):
        starts, ends = ops["start_ns"][rows], ops["end_ns"][rows]
        times = [own.inside(window).total_ns for own in traffic_unions(starts, ends, classes[rows]).values()]
        largest = int(np.argmax(times))
        made.append(
            {
                "stream": int(ops["stream"][rows[0]]),
                "role": CLASSES[largest] if 100 * times[largest] >= stream_role_pct * sum(times) else "mixed",
                "operations": len(rows),
                "busy_ns": Intervals.of(starts, ends).inside(window).total_ns,
                **dict(zip(_NS, times, strict=True)),
                "window_ns": window.length_ns,
            }
        )
    return sorted_by(pd.DataFrame(made), "busy_ns")


# Which classes of work really run at the same time.


class StreamPairs(Result):
    """One row for each rank and pair of classes of work."""

    title = "What runs at the same time"
    keys = ("rank", "first", "second")
    is_of_one_run = True
    columns = declared(
        rank=RANK,
        first=(
            "compute, communication, upload, download, exchange or device memory. No rows of a rank that runs CUDA "
            "graphs which were recorded whole: what runs inside them is not known."
        ),
        second="The other one.",
        both_ns="Time in the window in which both run.",
        first_ns="Time in which the first runs.",
        second_ns="Time in which the second runs.",
        both_pct=Column.share(
            "100 · both / the shorter of the two times: 100 when one always hides under the other.", better=Better.MORE
        ),
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        shorter = table["first_ns"].where(table["first_ns"] < table["second_ns"], table["second_ns"])
        return table.assign(both_pct=percent(table["both_ns"], shorter))


def stream_pairs_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Pairs of classes that run in the rank's window; no rows for a single class."""
    starts, ends = arrays_of(trace.gpu_ops, "start_ns", "end_ns")
    unions = traffic_unions(starts, ends, op_classes(trace))
    if unions.pop(UNKNOWN).inside(trace.window):
        return pd.DataFrame()
    pairs = combinations([(name, own.inside(trace.window)) for name, own in unions.items() if len(own)], 2)
    rows = [
        {
            "first": a,
            "second": b,
            "both_ns": (one & other).total_ns,
            "first_ns": one.total_ns,
            "second_ns": other.total_ns,
        }
        for (a, one), (b, other) in pairs
    ]
    return pd.DataFrame(rows)


_BLOCK_PARTS = ("compute", "upload", "download")

_BLOCK_RANGE = re.compile(
    r"^[#\s]*(?:[\w ]*[ _.])?(?:block|layer|segment|chunk|slice)s?[ ._#:\[-]*\d+[\]#\s]*$", re.IGNORECASE
)


class BlockBounds(Result):
    """One row for each rank that works in numbered ranges (`block_3`): medians over those that compute."""

    title = "Repeated blocks"
    keys = ("rank",)
    columns = {
        "rank": RANK,
        "blocks": Column.count("Number of blocks.", is_compared=False),
        "pitch_ns": Column.time("From the start of a block's first compute kernel to the next's.", adds=Adds.DERIVED),
        "compute_ns": Column.time("Time in which a compute kernel of the block runs.", adds=Adds.DERIVED),
        "upload_ns": Column.time("The same for its copies from host to device.", adds=Adds.DERIVED),
        "download_ns": Column.time("The same for its copies from device to host.", adds=Adds.DERIVED),
    }


def block_bounds_per_rank(trace: RankTrace, block_repeats: int = 4) -> pd.DataFrame:
    """Medians of the rank's blocks; of fewer ranges than `block_repeats` nothing.

    What a range without compute launched (`upload block_3`) belongs to the nearest range of that number with compute.
    """
    is_block = rows_named_so(trace.ranges, _BLOCK_RANGE.match)
    if is_block.sum() < block_repeats:
        return pd.DataFrame()
    ranges = picked(trace.ranges, is_block, ("start_ns", "end_ns", "name", "thread"))
    launch = trace.launch
    rows = np.flatnonzero(trace.counted & (launch != NONE))
    threads, launched = arrays_of(trace.api_calls, "thread", "start_ns", rows=launch[rows])
    block, part = range_around(ranges, threads, launched), op_classes(trace)[rows]
    block = np.append(_owners(ranges, block[part == CLASSES.index("compute")]), NONE)[block]
    starts, ends = arrays_of(trace.gpu_ops, "start_ns", "end_ns", rows=rows)
    ops = pd.DataFrame({"block": block, "part": np.array(CLASSES)[part], "start_ns": starts})
    ops["time_ns"] = new_ns(starts, ends, block * len(CLASSES) + part)
    ops = ops[ops["block"] != NONE]
    times = ops.pivot_table(values="time_ns", index="block", columns="part", aggfunc="sum", fill_value=0)
    first = ops[ops["part"] == "compute"].groupby("block")["start_ns"].min()
    pitch = np.diff(np.sort(first))
    pitch = pitch[(pitch > 0) & (pitch <= 10 * np.median(pitch))] if len(pitch) else pitch  # others are pauses
    medians = times.reindex(index=first.index, columns=list(_BLOCK_PARTS), fill_value=0).median()
    made = {"pitch_ns": np.median(pitch) if len(pitch) else np.nan} | {
        f"{name}_ns": medians[name] for name in _BLOCK_PARTS
    }
    table = pd.DataFrame([{name: np.round(value) for name, value in made.items()}]).astype("Int64")
    return table.assign(blocks=len(first))[list(BlockBounds.columns)[1:]] if len(first) else pd.DataFrame()


def _owners(ranges: pd.DataFrame, computing: np.ndarray) -> np.ndarray:
    """For each range the nearest one of its number that is among the `computing`; itself where it is, or none is."""
    owner = np.arange(len(ranges))
    computes = np.isin(owner, computing)
    starts, number = array_of(ranges, "start_ns"), ranges["name"].astype("str").str.extract(r"(\d+)\D*$")[0]
    for rows in number.groupby(number).indices.values():
        with_compute, others = rows[computes[rows]], rows[~computes[rows]]
        if len(with_compute):
            distance = np.abs(starts[others][:, None] - starts[with_compute])
            owner[others] = with_compute[distance.argmin(axis=1)]
    return owner
