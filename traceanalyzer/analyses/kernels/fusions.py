"""Which operators the compiler fused into each of its kernels, and what these kernels cost."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.kernels.kernel_names import fusion
from traceanalyzer.analyses.names import FusionsColumn
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, mask_of, sorted_table, text_array
from traceanalyzer.model.tables import column_of


class Fusions(Result[FusionsColumn]):
    """One row for each rank and kernel that Inductor made, most time first."""

    title: ClassVar[str] = "Kernels made by the compiler"
    keys: ClassVar[tuple[str, ...]] = ("rank", "kernel")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "kernel": Column.text("Name of the Triton kernel.", written=Written.KERNEL),
        "fusion": Column.text(
            "pointwise, reduction, persistent reduction, template (a product or attention) or foreach."
        ),
        "operators": Column.text(
            "The distinct operators in it, as its name lists them; a long list is cut by the compiler."
        ),
        "gpu_ops": Column.count("Times that it ran.", is_compared=False),
        "gpu_ns": Column.time("Sum of its durations.", leads=True),
    }


def per_rank(trace: RankTrace) -> pd.DataFrame:
    """Add up the rank's counted kernels whose names are Inductor's."""
    names: Any = column_of(trace.gpu_ops, "name")
    rows = np.flatnonzero(mask_of(names, fusion) & trace.counted)
    if not len(rows):
        return pd.DataFrame()
    groups = Groups.of({"kernel": names[rows]}, ["kernel"])
    kernels = groups.keys["kernel"].astype("str")
    found = [fusion(name) or ("", ()) for name in kernels.tolist()]
    columns = {
        "kernel": kernels,
        "gpu_ops": groups.counts(),
        "gpu_ns": groups.sums(lengths_of(trace.gpu_ops)[rows]),
        "fusion": text_array([kind for kind, _ in found]),
        "operators": text_array([", ".join(operators) for _, operators in found]),
    }
    return sorted_table(columns, "gpu_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> Fusions:
    """The ranks' rows under each other."""
    return Fusions(stack(parts, tuple(Fusions.columns)))
