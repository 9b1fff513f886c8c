"""Which operators the compiler fused into each of its kernels, and what these kernels cost."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.kernels.kernel_names import fusion
from traceanalyzer.analyses.names import FusionsColumn
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace


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
    ops = trace.gpu_ops[trace.counted]
    made = {name: fusion(name) for name in ops["name"].cat.categories.tolist()}
    own = ops[ops["name"].isin([name for name, found in made.items() if found])]
    if own.empty:
        return pd.DataFrame()
    durations = (own["end_ns"] - own["start_ns"]).groupby(own["name"], observed=True)
    table = durations.agg(gpu_ops="size", gpu_ns="sum").rename_axis("kernel").reset_index()
    found = [made[name] or ("", ()) for name in table["kernel"]]
    return table.assign(
        kernel=table["kernel"].astype("str"),
        fusion=[kind for kind, _ in found],
        operators=[", ".join(operators) for _, operators in found],
    ).sort_values("gpu_ns", ascending=False, kind="stable", ignore_index=True)


def across(parts: Mapping[int, pd.DataFrame]) -> Fusions:
    """The ranks' rows under each other."""
    return Fusions(stack(parts, tuple(Fusions.columns)))
