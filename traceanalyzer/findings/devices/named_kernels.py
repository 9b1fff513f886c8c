"""What kernels of some names cost a rank: what rules that know kernels by their names share."""

from collections.abc import Callable

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.basis import count_of_steps
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.wholes import step_or_capture, within_whole
from traceanalyzer.model.tables import rows_where

_MOST_NAMED = 2


class NamedKernels(Struct, frozen=True):
    """Kernels of the rank that spends the largest share of its time in them.

    Attributes:
        rank: that rank.
        cost_ns: their part of its compute time, in a mean step (of the capture, without steps).
        pct: of a step.
        steps: how many complete ones there are; `None` for the whole capture.
        rows: the rank's, of the table of kernels; the longest first.
    """

    rank: int
    cost_ns: float
    pct: float
    steps: int | None
    rows: pd.DataFrame

    @property
    def names(self) -> str:
        """The two that take longest."""
        return " and ".join(dict.fromkeys(short_name(name) for name in self.rows["name"].head(_MOST_NAMED)))

    @property
    def cost(self) -> str:
        """`6.40 ms a step, 23 % of a step`."""
        whole = step_or_capture(self.steps)
        return f"{time_text(self.cost_ns)} {within_whole(self.steps)}, {self.pct:.0f} % of {whole}"


def named_kernels(
    headline: Headline, kernels: Kernels, is_such: Callable[[str], bool], least_pct: float
) -> NamedKernels | None:
    """Compute kernels of such names; `None` where they take less than `least_pct` of every rank's time."""
    if not len(headline) or not len(kernels):
        return None
    table = kernels.to_frame()
    compute = rows_where(table, table["kind"] == "compute")
    own = rows_where(compute, compute["name"].astype("str").map(is_such).astype(bool))
    part = own.groupby("rank")["total_ns"].sum() / compute.groupby("rank")["total_ns"].sum()
    held = headline.to_frame().set_index("rank")
    steps = count_of_steps(held)
    per = steps or 1
    cost_ns = (part * held["compute_ns"].astype("float64") / per).dropna()
    share = (100.0 * cost_ns / (held["window_ns"].astype("float64") / per)).dropna()
    if share.empty or not share.max() >= least_pct:
        return None
    rank = int(share.idxmax())
    rows = own[own["rank"] == rank].sort_values("total_ns", ascending=False)
    return NamedKernels(rank, float(cost_ns[rank]), float(share[rank]), steps, rows)
