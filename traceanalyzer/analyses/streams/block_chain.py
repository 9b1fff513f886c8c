"""Upload of the next block beside compute of this one and offload of the last: how far they hide, where that breaks."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import typed
from traceanalyzer.analyses.streams.traffic import CLASSES
from traceanalyzer.analyses.time.intervals import of_rows
from traceanalyzer.model import RankTrace

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
    compute, upload, download = (_ends(ops, name).reindex(table.index) for name in ("compute", UPLOAD, DOWNLOAD))
    beside = {f"{name}_hidden_ns": _hidden(trace, ops, name).reindex(table.index) for name in (UPLOAD, DOWNLOAD)}
    queued = upload["start_ns"] - _launched(trace, ops).reindex(table.index)
    # Copies of one block that overlap each other hide no longer than they take.
    beside = {name: time.clip(upper=table[name.replace("_hidden", "")]) for name, time in beside.items()}
    made = table.assign(**beside, upload_queued_ns=queued.clip(lower=0)).join(_waits(compute, upload, download))
    names = ("upload_hidden_ns", "download_hidden_ns", "upload_queued_ns", "waited_ns")
    return typed(made, dict.fromkeys(names, "Int64"))


def _ends(ops: pd.DataFrame, name: str) -> pd.DataFrame:
    """First start and last end of each block's operations of a class."""
    own = ops[ops["place"] == CLASSES.index(name)].groupby("block")
    return pd.DataFrame({"start_ns": own["start_ns"].min(), "end_ns": own["end_ns"].max()}).astype("Int64")


def _hidden(trace: RankTrace, ops: pd.DataFrame, name: str) -> pd.Series:
    """Time of each block's copies in which some compute kernel runs."""
    own = ops[ops["place"] == CLASSES.index(name)]
    compute = of_rows(trace.gpu_ops, (trace.gpu_ops["kind"] == "compute").to_numpy())
    covered = compute.covered_ns(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
    return pd.Series(covered, index=own.index).groupby(own["block"]).sum()


def _launched(trace: RankTrace, ops: pd.DataFrame) -> pd.Series:
    """When the call that launched each block's first upload returned."""
    own = ops[ops["place"] == CLASSES.index(UPLOAD)]
    returned = pd.Series(trace.api_calls["end_ns"].to_numpy()[own["launch"].to_numpy()], index=own.index)
    return returned.groupby(own["block"]).min()


def _waits(compute: pd.DataFrame, upload: pd.DataFrame, download: pd.DataFrame) -> pd.DataFrame:
    """`waited_ns`, from the compute before it to the start of its own, and `waited_for`, what ended in between."""
    order = compute["start_ns"].sort_values().index
    before = compute["end_ns"].reindex(order).shift()
    starts = compute["start_ns"].reindex(order)
    waited = (starts - before).clip(lower=0)
    # A block's upload, or the offload of an earlier one that holds its memory, ends in the gap before its compute.
    found = [_in_gap(side, before, starts) for side in (upload["end_ns"].reindex(order), _latest(download, starts))]
    is_upload, is_download = found
    told = np.where(is_upload, UPLOAD, np.where(is_download, DOWNLOAD, OTHER)).astype("object")
    told[(waited.fillna(0) == 0).to_numpy(dtype=bool)] = None
    return pd.DataFrame({"waited_ns": waited, "waited_for": told}, index=order)


def _latest(download: pd.DataFrame, starts: pd.Series) -> pd.Series:
    """The last offload to end before each block's compute starts."""
    ends = np.sort(download["end_ns"].dropna().to_numpy(dtype=np.int64))
    place = np.searchsorted(ends, starts.to_numpy(dtype=np.int64), side="right") - 1
    values = np.append(ends, 0)[place]
    return pd.Series(pd.array(np.where(place >= 0, values, 0), dtype="Int64"), index=starts.index).mask(place < 0)


def _in_gap(ends: pd.Series, before: pd.Series, starts: pd.Series) -> np.ndarray:
    inside: np.ndarray = ((ends > before) & (ends <= starts)).fillna(value=False).to_numpy(dtype=bool)
    return inside
