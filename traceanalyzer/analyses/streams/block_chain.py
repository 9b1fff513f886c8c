"""Upload of the next block beside compute of this one and offload of the last: how far they hide, where that breaks."""

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.grouping import extreme_at, sums_at
from traceanalyzer.analyses.streams.traffic import CLASSES
from traceanalyzer.analyses.time.intervals import Intervals, unions
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, with_columns

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
