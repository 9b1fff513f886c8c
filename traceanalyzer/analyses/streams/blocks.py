"""Repeated blocks of a model whose weights are copied from the CPU and back: their pace, compute and copies."""

import re

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result
from traceanalyzer.analyses.host.activity import range_around
from traceanalyzer.analyses.streams.streams import CLASSES, op_classes
from traceanalyzer.analyses.time.intervals import new_ns
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    arrays_of,
    picked,
    rows_named_so,
)

_PARTS = ("compute", "upload", "download")

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


def per_rank(trace: RankTrace, block_repeats: int = 4) -> pd.DataFrame:
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
    medians = times.reindex(index=first.index, columns=list(_PARTS), fill_value=0).median()
    made = {"pitch_ns": np.median(pitch) if len(pitch) else np.nan} | {f"{name}_ns": medians[name] for name in _PARTS}
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
