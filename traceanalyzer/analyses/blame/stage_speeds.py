"""By how much a stage takes longer than the others for the same kernels: its GPU is slower then, its layers no more."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.what_ran import KERNEL, OPERATOR
from traceanalyzer.analyses.blame.work_names import has_known_work, is_of_data
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import only, rows_where


def with_slower_ns(needs: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The steps with `slower_ns`: what the rank takes longer than the median rank for the same work of the same step.

    That is operators of the same shapes, and kernels, that do the same work as those of the median of the ranks that
    run them (of two, the other): the less of both. 0 without shapes, which tell what a kernel has to do.
    """
    if (needs["peers"] == "all").all():
        return needs.assign(slower_ns=0.0)
    held = rows_where(work, work["part"] == "compute_ns")
    held = held[((held["what"] == OPERATOR) & has_known_work(held["name"])) | (held["what"] == KERNEL)]
    held = held[~is_of_data(held["name"])].assign(step=held["step"].astype("Int64").fillna(NONE))
    sums = only(held, ["total_ns", "calls", "work"]).astype("float64")
    of_name = sums.groupby([held["step"], held["what"], held["name"]])
    typical = of_name.transform("median")
    typical = typical.mask(of_name.transform("size") == 2, of_name.transform("sum") - sums)
    is_same = (sums[["calls", "work"]] == typical[["calls", "work"]]).all(axis=1)
    longer = (sums["total_ns"] - typical["total_ns"]).where(is_same, 0.0)
    of_kind = longer.groupby([held["what"], held["rank"], held["step"]]).sum()
    rows = pd.MultiIndex.from_arrays([needs["rank"], needs["step"].astype("Int64").fillna(NONE)])
    by_operator, by_kernel = (of_kind[of_kind.index.isin([kind], 0)].droplevel(0) for kind in (OPERATOR, KERNEL))
    less = np.minimum(by_operator.reindex(rows).fillna(0.0), by_kernel.reindex(rows).fillna(0.0))
    return needs.assign(slower_ns=less.to_numpy())
