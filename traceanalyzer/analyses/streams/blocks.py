"""Repeated blocks of an offloaded model: upload, compute, exchange, offload, and what bounds them."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import RANK, Result
from traceanalyzer.analyses.grouping import extreme_at, sums_at
from traceanalyzer.analyses.host.activity import range_around
from traceanalyzer.analyses.streams import streams
from traceanalyzer.analyses.streams.streams import CLASSES
from traceanalyzer.analyses.time.intervals import Intervals, busy, new_ns, unions
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    picked,
    rows_named_so,
    rows_where,
    table_of,
    with_columns,
    without_rows,
)

# Upload of the next block beside compute of this one and offload of the last: how far they hide, where that breaks.


UPLOAD, DOWNLOAD = "upload", "download"

OTHER = "other"
"""No copy ended in the gap before the block: the host launched late, or it waited for something else."""

LEAST_WAIT = 0.05
"""Of the pitch: a gap between two blocks' compute that is shorter breaks nothing."""


def with_chain(trace: RankTrace, ops: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The blocks, in order of time, with how far their copies hide and what each waited for.

    Args:
        trace: the rank.
        ops: launched operations with `block`, `place` (class), times, and `launch`.
        table: one row for each block, its number in `ops` as index.
    """
    compute, upload, download = (_Side.of(ops, name, table.index.to_numpy()) for name in ("compute", UPLOAD, DOWNLOAD))
    returned = np.append(array_of(trace.api_calls, "end_ns"), 0)
    queued = upload.start - upload.smallest(returned[array_of(ops, "launch")])
    busy = unions(trace)["compute"]
    columns = {f"{name}_hidden_ns": side.known(_hidden(busy, side, table[f"{name}_ns"].to_numpy()))
               for name, side in ((UPLOAD, upload), (DOWNLOAD, download))}  # fmt: skip
    queued_ns = upload.known(np.maximum(queued, 0))
    return with_columns(table, **columns, upload_queued_ns=queued_ns, **_waits(compute, upload, download))


class _Side(Struct, frozen=True):
    """A class's operations, with first start and last end of each block's own; 0 where `has` none."""

    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    """Of the operations, and `place` the block's position."""
    place: np.ndarray
    count: int
    has: np.ndarray
    start: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, ops: pd.DataFrame, name: str, blocks: np.ndarray) -> "_Side":
        place = np.searchsorted(blocks, array_of(ops, "block"))
        is_own = np.append(blocks, NONE)[place] == array_of(ops, "block")
        rows = np.flatnonzero((array_of(ops, "place") == CLASSES.index(name)) & is_own)
        starts, ends, place = array_of(ops, "start_ns")[rows], array_of(ops, "end_ns")[rows], place[rows]
        count = len(blocks)
        start, end = extreme_at(np.minimum, place, starts, count), extreme_at(np.maximum, place, ends, count)
        return cls(starts, ends, rows, place, count, np.bincount(place, minlength=count) > 0, start, end)

    def smallest(self, values: np.ndarray) -> np.ndarray:
        """For each block the smallest of its operations' values, one for each of all operations."""
        return extreme_at(np.minimum, self.place, values[self.rows], self.count)

    def known(self, values: np.ndarray) -> pd.arrays.IntegerArray:
        """Values by block, absent for those without such an operation."""
        return pd.arrays.IntegerArray(np.where(self.has, values, 1), ~self.has)


def _hidden(compute: Intervals, side: _Side, taken_ns: np.ndarray) -> np.ndarray:
    """Time of each block's copies in which some compute kernel runs: no longer than they take, where they overlap."""
    return np.minimum(sums_at(side.place, compute.covered_ns(side.starts, side.ends), side.count), taken_ns)


def _waits(compute: _Side, upload: _Side, download: _Side) -> dict[str, object]:
    """`waited_ns`, from the compute before it to the start of its own, and `waited_for`, what ended in between."""
    order = np.argsort(compute.start, kind="stable")
    starts = compute.start[order]
    before = np.append(starts[:1], compute.end[order][:-1])
    waited = np.maximum(starts - before, 0)
    # A block's upload, or the offload of an earlier one that holds its memory, ends in the gap before its compute.
    latest, is_any = _latest(download, starts)
    is_upload = upload.has[order] & (upload.end[order] > before) & (upload.end[order] <= starts)
    is_download = is_any & (latest > before) & (latest <= starts)
    told = np.where(is_upload, UPLOAD, np.where(is_download, DOWNLOAD, OTHER)).astype("object")
    told[waited == 0] = None
    back = np.argsort(order)
    return {"waited_ns": pd.arrays.IntegerArray(waited[back], back == 0), "waited_for": told[back]}


def _latest(download: _Side, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last offload to end before each block's compute starts, and whether there is one."""
    ends = np.sort(download.end[download.has])
    place = np.searchsorted(ends, starts, side="right") - 1
    return np.append(ends, 0)[place], place >= 0


# Sequences that repeat: the period of a list of names, and where each repetition begins.


_LAGS, _NAMES = 8, 6


def repetitions(codes: np.ndarray, weights: np.ndarray, least: int) -> tuple[np.ndarray, int]:
    """First positions of the repetitions of the finest sequence that repeats, and its length.

    Sequences that follow upon themselves `least` times or more are compared by the weight that they cover; of those
    that cover at least half of what the best one does, the shortest is taken. Empty and 0 when nothing repeats.
    """
    covers = {period: _runs(codes, period, least) for period in _candidates(codes, weights, least)}
    total = np.concatenate([[0], np.cumsum(weights)])
    weight = {period: int((total[ends] - total[starts]).sum()) for period, (starts, ends) in covers.items()}
    if not weight or max(weight.values()) == 0:
        return np.empty(0, dtype=np.int64), 0
    period = min(period for period, covered in weight.items() if 2 * covered >= max(weight.values()))
    starts, ends = covers[period]
    heaviest = int(np.argmax(total[ends] - total[starts]))
    pattern = codes[starts[heaviest] : starts[heaviest] + period]
    return _aligned(codes, starts, ends, pattern), period


def _candidates(codes: np.ndarray, weights: np.ndarray, least: int) -> list[int]:
    """The commonest distances between occurrences of the names that weigh most, up to eight occurrences apart."""
    if len(codes) < least:
        return []
    heaviest = np.argsort(-np.bincount(codes, weights=weights), kind="stable")[:_NAMES]
    found = set()
    for code in heaviest:
        places = np.flatnonzero(codes == code)
        for lag in range(1, min(_LAGS, len(places) - 1) + 1):
            distances = places[lag:] - places[:-lag]
            found.add(int(np.bincount(distances).argmax()))
    return sorted(period for period in found if period * least <= len(codes))


def _runs(codes: np.ndarray, period: int, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Stretches, [start, end) positions, in which each name comes again one period later."""
    same = codes[period:] == codes[:-period]
    places = np.flatnonzero(same)
    joined = Intervals.of(places, places + 1)
    held = joined.ends - joined.starts >= period * (least - 1)
    return joined.starts[held], joined.ends[held] + period


def _aligned(codes: np.ndarray, starts: np.ndarray, ends: np.ndarray, pattern: np.ndarray) -> np.ndarray:
    """Where the pattern begins in those runs that hold it, in whatever rotation they start."""
    period, found = len(pattern), []
    for start, end in zip(starts, ends, strict=True):
        for offset in range(start, min(start + period, end - period + 1)):
            if np.array_equal(codes[offset : offset + period], pattern):
                found.append(np.arange(offset, end - period + 1, period))
                break
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


# The repeated blocks of a rank's work: what each one uploads, computes, exchanges and offloads, and what bounds it.


PARTS = ("compute", "communication", "upload", "exchange", "download")
"""Classes of work that can bound a block."""

_NS = tuple(f"{name}_ns" for name in PARTS)
_BYTES = ("upload_bytes", "exchange_bytes", "download_bytes")

_BLOCK_RANGE = re.compile(
    r"^[#\s]*(?:[\w ]*[ _.])?(?:block|layer|segment|chunk|slice)s?[ ._#:\[-]*\d+[\]#\s]*$", re.IGNORECASE
)


class Blocks(Result):
    """One row for each block: a numbered range (`block_3`), else a repetition of the same sequence of kernels."""

    title = "Repeated blocks"
    is_detail = True
    keys = ("rank", "block")
    columns = {
        "rank": RANK,
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


def _in_launch_order(trace: RankTrace) -> pd.DataFrame:
    ops = trace.gpu_ops
    launch, starts = array_of(ops, "launch"), array_of(ops, "start_ns")
    rows = np.flatnonzero(trace.counted & (launch != NONE))
    rows = rows[np.lexsort((starts[rows], launch[rows]))]
    table = picked(ops, rows, ("start_ns", "end_ns", "name", "launch", "bytes"))
    return with_columns(table, place=streams.op_classes(trace)[rows])


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
    codes = ops["name"].array.codes[compute].astype(np.int64)
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
    size, is_absent = ops["bytes"].to_numpy(dtype=np.int64, na_value=0), ops["bytes"].array.isna()
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
    times = table[list(_NS)].to_numpy()
    needed = table["pitch_ns"].to_numpy(dtype=np.float64, na_value=np.nan) * least_pct / 100
    largest = np.array(PARTS, dtype=object)[times.argmax(axis=1)]
    together = np.where(times.sum(axis=1) >= needed, "serial", "waiting")
    bound: np.ndarray = np.where(times.max(axis=1) >= needed, largest, together).astype("object")
    bound[np.isnan(needed)] = None
    return bound


# A rank's repeated blocks in one line: medians of their parts, and what bounds most of them.


_MEDIANS = ("pitch_ns", "compute_ns", "communication_ns", "upload_ns", "exchange_ns", "download_ns", "exposed_ns",
            "idle_ns", "upload_hidden_ns", "download_hidden_ns", "upload_queued_ns", "waited_ns",
            "upload_bytes", "exchange_bytes", "download_bytes")  # fmt: skip


class BlockBounds(Result):
    """One row for each rank that has repeated blocks."""

    title = "What bounds the repeated blocks"
    keys = ("rank",)
    columns = {
        "rank": RANK,
        "source": Column.text("How blocks were found: `range` or `kernel sequence`."),
        "blocks": Column.count("Number of blocks.", is_compared=False),
        "bound": Column.text(
            "What bounds most of them: compute, communication, upload, exchange, download; `serial`: the parts "
            "run one after another; `waiting`: nothing of the block fills its time."
        ),
        "bound_blocks": Column.count("Number of blocks of which that is true.", is_compared=False, is_secondary=True),
        "bound_known_blocks": Column.count(
            "Number of blocks with a known pitch.", is_compared=False, is_secondary=True
        ),
        "broken_blocks": Column.count(
            "Number of blocks whose compute waited for 5 % of the pitch or more after the compute before it: there the "
            "chain of upload, compute and offload breaks.",
            is_compared=False,
        ),
        "broken_by": Column.text("What most of those waited for: upload, download or other."),
        **{
            name: replace(Blocks.columns[name], definition=f"Median of the blocks' {name}.", adds=Adds.DERIVED)
            for name in _MEDIANS
        },
    }


def block_bounds_across(blocks: Blocks) -> BlockBounds:
    """Summarise each rank's blocks."""
    if not len(blocks):
        table = without_rows(BlockBounds.columns)
        return BlockBounds(table.astype(dict.fromkeys(_MEDIANS, "Int64")))
    held = blocks.table.astype(dict.fromkeys(_MEDIANS, "Float64"))
    by_rank = held.groupby("rank")
    counts = held.groupby("rank")["bound"].value_counts().reset_index(name="count")
    most = counts.drop_duplicates("rank").set_index("rank")
    ranks = by_rank.size().index
    table = table_of(
        {
            "rank": ranks,
            "source": by_rank["source"].first().to_numpy(),
            "blocks": by_rank.size().to_numpy(),
            "bound": [None if pd.isna(bound) else bound for bound in most["bound"].astype("object").reindex(ranks)],
            "bound_blocks": most["count"].reindex(ranks, fill_value=0).to_numpy(),
            "bound_known_blocks": by_rank["bound"].count().to_numpy(),
            **_breaks(held, ranks),
            **{name: column.to_numpy() for name, column in by_rank[list(_MEDIANS)].median().round().items()},
        }
    )
    return BlockBounds(table.astype(dict.fromkeys(_MEDIANS, "Int64"))[list(BlockBounds.columns)])


def _breaks(held: pd.DataFrame, ranks: pd.Index) -> dict[str, object]:
    is_broken = (held["waited_ns"] >= LEAST_WAIT * held["pitch_ns"]).fillna(value=False)
    broken = rows_where(held, is_broken)
    counts = broken.groupby("rank")["waited_for"].value_counts().reset_index(name="count")
    most = counts.drop_duplicates("rank").set_index("rank")["waited_for"].astype("object").reindex(ranks)
    return {
        "broken_blocks": is_broken.groupby(held["rank"]).sum().reindex(ranks).to_numpy(),
        "broken_by": [None if pd.isna(what) else what for what in most],
    }
