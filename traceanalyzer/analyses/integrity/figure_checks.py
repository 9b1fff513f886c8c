"""Figures that cannot be: a trace contradicts itself, or says more than hardware does."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import is_any
from traceanalyzer.analyses.integrity.integrity_checks import Defect, many
from traceanalyzer.analyses.names import SourceName
from traceanalyzer.meaning.severities import MEDIUM
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of

_BANDWIDTHS: tuple[SourceName, ...] = ("collectives", "by_collective", "nccl", "comm_phases")

_MOST_OF_LINK = 2
"""Times a link's peak: switches that add up or copy on the way halve what a rank sends, and busbw does not know it."""

_MOST_GBPS = 16_000
"""What a rank sends comes out of its GPU's memory: 8 TB/s of the fastest (B200, MI355X), and busbw counts it twice."""


def impossible_memory_levels(trace: RankTrace) -> list[Defect]:
    """Moments at which the allocator had given out more than it held, or less than nothing."""
    counters = trace.counters
    masks = [is_any(counters["name"], name) for name in ("memory_allocated_bytes", "memory_reserved_bytes")]
    times = [array_of(counters, "time_ns")[mask] for mask in masks]
    allocated, reserved = (array_of(counters, "value")[mask] for mask in masks)
    total = len(allocated)
    if not total or not np.array_equal(*times):
        return []
    count = int(((allocated > reserved) | (allocated < 0)).sum())
    text = (
        f"At {many(count, 'moment')} of {total:,} the allocator had given out more memory than it held, or less than "
        "none: no allocator does; the levels are damaged, or of two allocators."
    )
    return [Defect("impossible_memory_levels", MEDIUM, count, total, text, ("counters",))] if count else []


def impossible_bandwidths(collectives: pd.DataFrame) -> list[Defect]:
    """Rows of `collectives` that are faster than twice their links, or, of unknown links, than any GPU's memory."""
    if collectives.empty:
        return []
    rate = collectives["busbw_gbps"].astype("Float64")
    most = (_MOST_OF_LINK * collectives["link_peak_gbps"].astype("Float64")).fillna(_MOST_GBPS)
    is_beyond = (rate > most).fillna(value=False).to_numpy(dtype=bool)
    if not is_beyond.any():
        return []
    fastest = collectives[is_beyond].loc[rate[is_beyond].idxmax()]
    text = (
        f"Collectives are faster than any link or memory: {fastest['collective']} of rank {fastest['rank']} at "
        f"{fastest['busbw_gbps']:,.0f} GB/s. Their sizes or times are damaged, or clocks differ: believe no bandwidth."
    )
    return [Defect("impossible_bandwidths", MEDIUM, int(is_beyond.sum()), len(collectives), text, _BANDWIDTHS)]
