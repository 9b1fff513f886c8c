"""Ranks that compute longer only for their streams, which overlap less while they wait: they are not late."""

import pandas as pd

from traceanalyzer.analyses.blame.what_ran import KERNEL
from traceanalyzer.meaning.vocabulary import COMPUTE
from traceanalyzer.model.tables import picked

_SEEN = 0.5
"""Of what a rank computes longer."""


def without_overlapping(found: pd.DataFrame, late: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The cells (`lateness.cells`) but for those of ranks whose kernels take no longer, and that wait as others do.

    Where two streams compute beside each other, as gradients of weights beside those of inputs, one that waits for
    another rank no longer overlaps the other: some stream computes for longer, with the same kernels. Of what such a
    rank computes longer its kernels explain less than half; it waits for as long itself, and hardly less than its peers
    that are in time.
    """
    is_compute = found["part"] == COMPUTE.column
    kernels = work[(work["part"] == COMPUTE.column) & (work["what"] == KERNEL)]
    if not is_compute.any():
        return found
    needs = late.set_index(["rank", "step"])
    cells = pd.MultiIndex.from_frame(found[["rank", "step"]])
    total = kernels.groupby(["rank", "step"])["total_ns"].sum().astype("float64").reindex(needs.index)
    waits = needs["exposed_wait_ns"].astype("float64")
    is_late, beside = needs.index.isin(cells), [needs["peers"], needs.index.get_level_values("step")]
    longer, waits_more = (own - own.mask(is_late).groupby(beside).transform("median") for own in (total, waits))
    least = _SEEN * found["excess_ns"].to_numpy()
    is_same = longer.reindex(cells).to_numpy() < least
    is_waiting = (waits.reindex(cells).to_numpy() >= least) & (waits_more.reindex(cells).to_numpy() > -least)
    return picked(found, ~(is_compute.to_numpy() & is_same & is_waiting))
