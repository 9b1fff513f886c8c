"""What kind of work fills the GPU: products, attention, norms, element-wise, optimizer, communication, copies."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack, taken
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.kernels.kernel_names import CATEGORIES, MATRIX_CATEGORIES, category, uses_tensor_cores
from traceanalyzer.analyses.names import CategoriesColumn
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace


class Categories(Result[CategoriesColumn]):
    """One row for each rank and category, most time first; the times add up to all GPU operations' durations."""

    title: ClassVar[str] = "GPU time by category"
    keys: ClassVar[tuple[str, ...]] = ("rank", "category")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "category": Column.text(f"By the operator, else by the kernel's name: {', '.join(CATEGORIES)}."),
        "gpu_ops": Column.count("GPU operations.", is_compared=False),
        "gpu_ns": Column.time("Sum of their durations.", leads=True),
        "share_pct": Column.share("100 · duration / that of all GPU operations of the rank."),
        "tensor_core_ns": Column.time(
            "Of matrix categories: duration of the kernels whose names say that they use tensor cores."
        ),
        "no_tensor_core_ns": Column.time("The same of those whose names say that they do not. The rest does not say."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(share_pct=percent(table["gpu_ns"], table.groupby("rank")["gpu_ns"].transform("sum")))


def per_rank(trace: RankTrace, category_of_op: pd.Categorical) -> pd.DataFrame:
    """Add up the rank's counted GPU operations by category."""
    ops = trace.gpu_ops[trace.counted]
    if ops.empty:
        return pd.DataFrame()
    table = pd.DataFrame(
        {
            "category": category_of_op[trace.counted],
            "gpu_ns": (ops["end_ns"] - ops["start_ns"]).to_numpy(),
        }
    )
    uses = ops["name"].map({name: uses_tensor_cores(name) for name in ops["name"].cat.categories}).astype("object")
    is_matrix = table["category"].isin(MATRIX_CATEGORIES)
    for column, answer in (("tensor_core_ns", True), ("no_tensor_core_ns", False)):
        told = table["gpu_ns"].where((uses == answer).to_numpy(), 0)
        table[column] = told.astype("Int64").where(is_matrix)
    groups = table.groupby("category", observed=True)
    sums = groups[["gpu_ns", "tensor_core_ns", "no_tensor_core_ns"]].sum(min_count=1).assign(gpu_ops=groups.size())
    return sums.reset_index().sort_values("gpu_ns", ascending=False, kind="stable", ignore_index=True)


def across(parts: Mapping[int, pd.DataFrame]) -> Categories:
    """The ranks' rows under each other."""
    return Categories(stack(parts, tuple(Categories.columns)))


def op_categories(trace: RankTrace, tree: OperatorTree) -> pd.Categorical:
    """Category of each GPU operation."""
    ops = trace.gpu_ops[["name", "kind"]]
    keyed = ops.assign(operator=taken(trace.host_ops["name"].array, tree.owner))
    groups = Groups.of(keyed, ["name", "kind", "operator"], with_absent=True)
    names = [category(*_plain(values)) for values in groups.table().itertuples(index=False)]
    places = {name: place for place, name in enumerate(CATEGORIES)}
    codes = np.array([places[name] for name in names], dtype=np.int64)
    return pd.Categorical.from_codes(codes[groups.of_row], categories=list(CATEGORIES))


def _plain(values: tuple[object, ...]) -> tuple[str, str, str | None]:
    name, kind, operator = values
    return str(name), str(kind), operator if isinstance(operator, str) else None
