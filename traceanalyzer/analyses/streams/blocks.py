"""The repeated blocks of a rank's work: what each one uploads, computes, exchanges and offloads, and what bounds it."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import extreme_at, sums_at
from traceanalyzer.analyses.host.host_activity import range_around
from traceanalyzer.analyses.names import BlocksColumn
from traceanalyzer.analyses.streams import traffic
from traceanalyzer.analyses.streams.block_chain import with_chain
from traceanalyzer.analyses.streams.repeats import repetitions
from traceanalyzer.analyses.streams.traffic import CLASSES
from traceanalyzer.analyses.time.intervals import busy, new_ns, unions
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import rows_named_so
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, only, picked, table_of, with_columns

PARTS = ("compute", "communication", "upload", "exchange", "download")
"""Classes of work that can bound a block."""

_NS = tuple(f"{name}_ns" for name in PARTS)
_BYTES = ("upload_bytes", "exchange_bytes", "download_bytes")

_BLOCK_RANGE = re.compile(
    r"^[#\s]*(?:[\w ]*[ _.])?(?:block|layer|segment|chunk|slice)s?[ ._#:\[-]*\d+[\]#\s]*$", re.IGNORECASE
)


class Blocks(Result[BlocksColumn]):
    """One row for each block: a numbered range (`block_3`), else a repetition of the same sequence of kernels."""

    title: ClassVar[str] = "Repeated blocks"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "block")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "block": Column.ident("Position among the rank's blocks."),
        "name": Column.text("The range; absent when the block was found by its kernels.", written=Written.KERNEL),
        "source": Column.text("`range` or `kernel sequence`."),
        "start_ns": Column.moment("Start of its first compute kernel."),
        "pitch_ns": Column.time("From there to the next block's; absent for the last one of a row of blocks."),
        "compute_ns": Column.time("Time in which a compute kernel of the block runs.", better=Better.LESS),
        "communication_ns": Column.time("The same for its communication kernels."),
        "upload_ns": Column.time("The same for its copies from host to device."),
        "exchange_ns": Column.time("The same for its copies between GPUs."),
        "download_ns": Column.time("The same for its copies from device to host."),
        "upload_bytes": Column.size("Bytes uploaded for it."),
        "exchange_bytes": Column.size("Bytes exchanged for it."),
        "download_bytes": Column.size("Bytes offloaded by it."),
        "exposed_ns": Column.time("Time in its pitch in which no compute kernel runs, whosever."),
        "idle_ns": Column.time("Time in its pitch in which nothing runs.", is_news_when_zero=True, better=Better.LESS),
        "upload_hidden_ns": Column.time("Time of its uploads in which a compute kernel runs.", better=Better.MORE),
        "download_hidden_ns": Column.time("The same of what it offloads.", better=Better.MORE),
        "upload_queued_ns": Column.time(
            "How long its bytes waited for the upload: from the return of the call that launched its first upload to "
            "its start on the GPU.",
            is_news_when_zero=True,
        ),
        "waited_ns": Column.time(
            "From the end of the compute before it to the start of its own; absent of the first block.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "waited_for": Column.text(
            "What ended in that gap: its `upload`, the `download` of an earlier block, or neither (`other`): there the "
            "chain of upload, compute and offload breaks."
        ),
        "bound": Column.text(
            "What bounds it: the part that takes 80 % or more of the pitch; `serial` when none does, but all "
            "together fill 80 %: they run one after another; else `waiting`."
        ),
    }


def per_rank(trace: RankTrace, block_repeats: int = 4, block_bound_pct: float = 80) -> pd.DataFrame:
    """Blocks of the rank's counted operations; `block_repeats` repetitions make a sequence of kernels a block.

    A copy or exchange belongs to the block range that launched it, and what a range without compute launched
    (`upload block_3`) to the nearest range of that number with compute. Without such ranges, the copies of one
    direction are dealt out in order of launch when their number is a multiple of the blocks' (uploads run ahead of the
    compute that needs them); else each belongs to the last block that had begun to launch.
    """
    ops = _in_launch_order(trace)
    if ops.empty:
        return pd.DataFrame()
    block, names = _by_range(trace, ops, block_repeats)
    source = "range"
    if not names:
        block, names = _by_sequence(ops, block_repeats), []
        source = "kernel sequence"
    if not (block != NONE).any():
        return pd.DataFrame()
    ops = with_columns(ops, block=block)
    table = with_chain(trace, picked(ops, block != NONE), _measured(ops))
    table = with_columns(table, name=np.array(names, dtype=object)[table.index] if names else None)
    table = picked(table, np.argsort(array_of(table, "start_ns")))
    table = _within_pitch(trace, table)
    bound = _bound(table, block_bound_pct)
    return with_columns(table, block=np.arange(len(table)), source=source, bound=bound)


def across(parts: Mapping[int, pd.DataFrame]) -> Blocks:
    """The ranks' blocks under each other."""
    return Blocks(stack(parts, tuple(Blocks.columns)))


def _in_launch_order(trace: RankTrace) -> pd.DataFrame:
    ops = trace.gpu_ops
    launch, starts = array_of(ops, "launch"), array_of(ops, "start_ns")
    rows = np.flatnonzero(trace.counted & (launch != NONE))
    rows = rows[np.lexsort((starts[rows], launch[rows]))]
    table = picked(ops, rows, ("start_ns", "end_ns", "name", "launch", "bytes"))
    return with_columns(table, place=traffic.op_classes(trace)[rows])


def _by_range(trace: RankTrace, ops: pd.DataFrame, least: int) -> tuple[np.ndarray, list[str]]:
    is_block = rows_named_so(trace.ranges, _BLOCK_RANGE.match)
    if is_block.sum() < least:
        return np.full(len(ops), NONE), []
    ranges = picked(trace.ranges, is_block, ("start_ns", "end_ns", "name", "thread"))
    threads, starts = (array_of(trace.api_calls, name)[array_of(ops, "launch")] for name in ("thread", "start_ns"))
    block = range_around(ranges, threads, starts)
    owner = _owners(ranges, block[array_of(ops, "place") == CLASSES.index("compute")])
    return np.append(owner, NONE)[block], list(ranges["name"].astype("str"))


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


def _by_sequence(ops: pd.DataFrame, least: int) -> np.ndarray:
    block = np.full(len(ops), NONE, dtype=np.int64)
    places = array_of(ops, "place")
    compute = np.flatnonzero(places == CLASSES.index("compute"))
    codes = column_of(ops, "name").codes[compute].astype(np.int64)
    durations = (array_of(ops, "end_ns") - array_of(ops, "start_ns"))[compute]
    starts, period = repetitions(codes, durations, least)
    if not period:
        return block
    members = starts[:, None] + np.arange(period)
    block[compute[members]] = np.arange(len(starts))[:, None]
    for place in set(places.tolist()) - {CLASSES.index("compute")}:
        own = np.flatnonzero(places == place)
        if len(own) % len(starts) == 0:
            block[own] = np.arange(len(own)) // (len(own) // len(starts))
        else:
            block[own] = np.searchsorted(compute[starts], own, side="right") - 1
    return block


def _measured(ops: pd.DataFrame) -> pd.DataFrame:
    """Start, times and bytes of each block by class; blocks without compute are left out."""
    starts, ends, block, place = (array_of(ops, name) for name in ("start_ns", "end_ns", "block", "place"))
    count, of_compute = int(block.max()) + 1, CLASSES.index("compute")
    is_held, is_compute = block != NONE, (block != NONE) & (place == of_compute)
    blocks = np.unique(block[is_compute])
    cell = block * len(CLASSES) + place
    rows = np.flatnonzero(is_held)
    busy = new_ns(starts[rows], ends[rows], cell[rows])
    times = sums_at(cell[rows], busy, count * len(CLASSES)).reshape(count, len(CLASSES))[blocks]
    size, is_absent = ops["bytes"].to_numpy(dtype=np.int64, na_value=0), column_of(ops, "bytes").isna()
    moved = sums_at(cell[rows], size[rows], count * len(CLASSES)).reshape(count, len(CLASSES))[blocks]
    told = np.bincount(cell[is_held & ~is_absent], minlength=count * len(CLASSES)).reshape(count, -1)[blocks] > 0
    columns: dict[str, Any] = {"start_ns": extreme_at(np.minimum, block[is_compute], starts[is_compute], count)[blocks]}
    for name in PARTS:
        at = CLASSES.index(name)
        columns[f"{name}_ns"] = times[:, at]
        if f"{name}_bytes" in _BYTES:
            columns[f"{name}_bytes"] = pd.arrays.IntegerArray(moved[:, at], ~told[:, at])
    return table_of(columns, pd.Index(blocks))


def _within_pitch(trace: RankTrace, table: pd.DataFrame) -> pd.DataFrame:
    """Pitch, and what happens in it; a pitch of more than ten times the median is a pause between rows of blocks."""
    starts = array_of(table, "start_ns")
    ends = np.append(starts[1:], starts[-1:])
    pitch = ends - starts
    typical = np.median(pitch[:-1]) if len(pitch) > 1 else 0
    is_known = (pitch > 0) & (pitch <= 10 * typical)
    compute, every = unions(trace)["compute"], busy(trace)
    return with_columns(
        table,
        pitch_ns=pd.arrays.IntegerArray(pitch, ~is_known),
        exposed_ns=pd.arrays.IntegerArray(pitch - compute.covered_ns(starts, ends), ~is_known),
        idle_ns=pd.arrays.IntegerArray(pitch - every.covered_ns(starts, ends), ~is_known),
    )


def _bound(table: pd.DataFrame, least_pct: float) -> np.ndarray:
    times = only(table, list(_NS)).to_numpy()
    needed = table["pitch_ns"].to_numpy(dtype=np.float64, na_value=np.nan) * least_pct / 100
    largest = np.array(PARTS, dtype=object)[times.argmax(axis=1)]
    together = np.where(times.sum(axis=1) >= needed, "serial", "waiting")
    bound: np.ndarray = np.where(times.max(axis=1) >= needed, largest, together).astype("object")
    bound[np.isnan(needed)] = None
    return bound
