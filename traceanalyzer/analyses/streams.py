"""CUDA streams: what each carries, what runs at the same time, repeated blocks; copies and memsets."""

import re
from itertools import combinations

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import RANK, Result, percent
from traceanalyzer.analyses.breakdown import known_only
from traceanalyzer.analyses.grouping import Groups, memoized_by_trace, rows_of_each
from traceanalyzer.analyses.host.activity import range_around
from traceanalyzer.analyses.intervals import Intervals, new_ns, unions
from traceanalyzer.meaning.columns import Adds, Better, Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    columns_of,
    lengths_of,
    picked,
    rows_named,
    rows_named_so,
    sorted_by,
    table_of,
    texts_of,
    with_columns,
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
    is_kernel = rows_named(trace.gpu_ops, "activity", "kernel", "graph")
    classes = np.where(is_kernel, CLASSES.index("compute"), CLASSES.index("device memory"))
    for column, known, held in (("kind", _OF_KIND, is_kernel), ("direction", _OF_DIRECTION, ~is_kernel)):
        for name, own in known.items():
            classes[held & rows_named(trace.gpu_ops, column, name)] = CLASSES.index(own)
    return classes


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
        compute_ns="Time in which it runs compute kernels.",
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
    inside = {name: own.inside(trace.window) for name, own in unions.items() if len(own)}
    rows = [(a, b, (inside[a] & inside[b]).total_ns, inside[a].total_ns, inside[b].total_ns)
            for a, b in combinations(inside, 2)]  # fmt: skip
    return pd.DataFrame(rows, columns=["first", "second", "both_ns", "first_ns", "second_ns"])


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
    if not len(first):
        return pd.DataFrame()
    medians = times.reindex(index=first.index, columns=list(_BLOCK_PARTS), fill_value=0).median().add_suffix("_ns")
    made = {"pitch_ns": np.median(pitch) if len(pitch) else np.nan, **medians}
    return pd.DataFrame([{"blocks": len(first), **made}]).round().astype("Int64")


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


# How fast copies run, from what memory, and how much of them is hidden.


def is_copy(ops: pd.DataFrame) -> np.ndarray:
    """Mask of copies and memsets."""
    return rows_named(ops, "activity", "memcpy", "memset")


def operations(ops: pd.DataFrame) -> np.ndarray:
    """Direction of each copy, `memset` for a memset; absent for a copy that does not say."""
    names = texts_of(ops["direction"].array)
    names[rows_named(ops, "activity", "memset")] = "memset"
    return names


_COPY_KEYS = ("direction", "source_memory", "target_memory", "peer_device")


class Copies(Result):
    """One row for each rank, direction, pair of memories and peer; most time first within a rank."""

    title = "Copies"
    keys = ("rank", *_COPY_KEYS)
    derived = {"rate_gbps": "size_bytes / total_ns"}
    columns = declared(
        rank=RANK,
        direction="HtoD, DtoH, DtoD, PtoP (between GPUs), HtoH; memset; absent when the trace does not say.",
        source_memory="pinned, pageable, device, managed.",
        target_memory="The same for the target.",
        peer_device=Column.ident("The other GPU of a PtoP copy.", is_of_all_runs=True),
        copies=Column.count("Number."),
        size_bytes="Bytes; absent when one does not say.",
        total_ns=Column.time("Sum of their durations.", leads=True),
        busy_ns="Time in which at least one runs.",
        rate_gbps="Bytes / sum of durations, in decimal GB/s: what one copy gets.",
        exposed_ns=(
            "Time in which one runs but no compute (and, for copies that are no communication, no communication)."
        ),
        with_other_copies_ns="Time in which one and a copy of another direction (memsets left out) both run.",
    )


def copies_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted copies and memsets; durations are not clipped to the window."""
    rows = np.flatnonzero(is_copy(trace.gpu_ops) & trace.counted)
    if not len(rows):
        return pd.DataFrame()
    ops, of_kind = columns_of(trace.gpu_ops), unions(trace)
    direction, copied = operations(trace.gpu_ops), np.flatnonzero(rows_named(trace.gpu_ops, "activity", "memcpy"))
    described = {name: ops[name][rows] for name in _COPY_KEYS} | {"direction": pd.Categorical(direction[rows])}
    groups = Groups.of(described, _COPY_KEYS, by_appearance=True, with_absent=True)
    sums = []
    for own in (rows[each] for each in rows_of_each(groups.of_row)):
        starts, ends, size = ops["start_ns"][own], ops["end_ns"][own], ops["bytes"][own]
        busy, others = Intervals.of(starts, ends), copied[direction[copied] != direction[own[0]]]
        is_comm = rows_named(trace.gpu_ops, "kind", "comm")[own].all()
        hidden_by = of_kind["compute"] if is_comm else of_kind["compute"] | of_kind["comm"]
        sums.append(
            {
                "copies": len(own),
                "size_bytes": None if size.isna().any() else int(size.sum()),
                "total_ns": int((ends - starts).sum()),
                "busy_ns": busy.total_ns,
                "exposed_ns": (busy - hidden_by).total_ns,
                "with_other_copies_ns": (busy & Intervals.of(ops["start_ns"][others], ops["end_ns"][others])).total_ns,
            }
        )
    keys = {name: own if name == "peer_device" else texts_of(own) for name, own in groups.keys.items()}
    table = with_columns(table_of(keys), **pd.DataFrame(sums).astype({"size_bytes": "Int64"}))
    return sorted_by(table, "total_ns")


# Which copies and memsets make the host wait: synchronous calls, and asynchronous ones of pageable memory.


_SYNC_COPIES_KEYS = ["problem", "api_call", "operation", "source_memory", "target_memory"]


class SyncCopies(Result):
    """One row for each rank, problem, API call and kind of copy, longest host time first within a rank."""

    title = "Copies that block the host"
    keys = ("rank", *_SYNC_COPIES_KEYS)
    columns = declared(
        rank=RANK,
        problem=(
            "`synchronous`: the call returns when the copy is done. `pageable`: an asynchronous copy from or to "
            "pageable memory, which CUDA stages through a buffer and may make the host wait for."
        ),
        api_call=Column.text("Function that launched them."),
        operation=Column.text("Direction of the copies, or memset.", written=Written.KERNEL),
        source_memory="pinned, pageable, device or managed.",
        target_memory="The same of the other end.",
        calls="Operations.",
        total_bytes="Sum of their sizes.",
        gpu_ns="Sum of their durations on the GPU.",
        host_ns="Sum of the durations of the API calls that launched them.",
    )


def sync_copies_per_rank(trace: RankTrace) -> pd.DataFrame:
    """The rank's counted copies and memsets whose launch is known to block, or may."""
    launch = trace.launch
    held = np.flatnonzero(trace.counted & (launch != NONE) & is_copy(trace.gpu_ops))
    problem = _problems(trace, held)
    held, problem = held[problem != ""], problem[problem != ""]
    if not len(held):
        return pd.DataFrame()
    ops, calls = trace.gpu_ops, launch[held]
    keys = {
        "problem": problem,
        "api_call": trace.api_calls["name"].array[calls].astype("object"),
        "operation": pd.Series(operations(ops)[held]).fillna("unknown").array,
        "source_memory": ops["source_memory"].array[held].astype("object"),
        "target_memory": ops["target_memory"].array[held].astype("object"),
    }
    groups = Groups.of(keys, _SYNC_COPIES_KEYS, with_absent=True)
    sums = {
        "gpu_ns": groups.sums(lengths_of(ops)[held]),
        "host_ns": groups.sums(lengths_of(trace.api_calls)[calls]),
        "calls": groups.counts(),
        "total_bytes": groups.total(ops["bytes"].array[held]),
    }
    return sorted_by(table_of({**groups.keys, **sums}), "host_ns")


def _problems(trace: RankTrace, rows: np.ndarray) -> np.ndarray:
    """`synchronous` for a memcpy or memset function without Async, else `pageable` where an end is; else empty."""
    calls = trace.launch[rows]
    # A graph's copies are launched by neither.
    searches = re.compile("Memcpy|Memset").search, re.compile("Async").search
    is_own, is_async = (rows_named_so(trace.api_calls, search)[calls] for search in searches)
    ends = (rows_named(trace.gpu_ops, end, "pageable")[rows] for end in ("source_memory", "target_memory"))
    cases = [is_own & ~is_async, is_own & np.logical_or(*ends)]
    return np.select(cases, ["synchronous", "pageable"], default="").astype(object)
