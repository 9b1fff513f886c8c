"""What kind of work fills the GPU: products, attention, norms, element-wise, optimizer, communication, copies."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack, taken
from traceanalyzer.analyses.grouping import Groups, by_category, sums_at
from traceanalyzer.analyses.kernels.kernel_names import CATEGORIES, MATRIX_CATEGORIES, category, uses_tensor_cores
from traceanalyzer.analyses.names import CategoriesColumn
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, sorted_table, texts_of
from traceanalyzer.model.tables import column_of, rows_where


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

    def of_compute(self) -> pd.DataFrame:
        """The rows of compute kernels: neither communication nor copies."""
        table = self.to_frame()
        return rows_where(table, ~table["category"].isin(["communication", "copy"]))

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(
            table, {"share_pct": percent(table["gpu_ns"], table.groupby("rank")["gpu_ns"].transform("sum"))}
        )


def per_rank(trace: RankTrace, category_of_op: pd.Categorical) -> pd.DataFrame:
    """Add up the rank's counted GPU operations by category."""
    rows = np.flatnonzero(trace.counted)
    if not len(rows):
        return pd.DataFrame()
    ops, of_op, count = trace.gpu_ops, category_of_op.codes[rows], len(category_of_op.categories)
    gpu_ops = np.bincount(of_op, minlength=count)
    held = np.flatnonzero(gpu_ops)
    gpu_ns = lengths_of(ops)[rows]
    uses = by_category(column_of(ops, "name"), uses_tensor_cores)[rows]
    is_other = ~np.isin(category_of_op.categories.to_numpy(dtype=object), MATRIX_CATEGORIES)
    columns = {
        "category": pd.Categorical.from_codes(held, dtype=category_of_op.dtype),
        "gpu_ns": sums_at(of_op, gpu_ns, count)[held],
    }
    for column, answer in (("tensor_core_ns", True), ("no_tensor_core_ns", False)):
        told = sums_at(of_op, np.where(uses == answer, gpu_ns, 0), count)
        columns[column] = pd.arrays.IntegerArray(told[held], is_other[held])
    return sorted_table({**columns, "gpu_ops": gpu_ops[held]}, "gpu_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> Categories:
    """The ranks' rows under each other."""
    return Categories(stack(parts, tuple(Categories.columns)))


_NAMES = pd.CategoricalDtype(list(CATEGORIES))


def op_categories(trace: RankTrace, tree: OperatorTree) -> pd.Categorical:
    """Category of each GPU operation."""
    keyed = {name: column_of(trace.gpu_ops, name) for name in ("name", "kind")}
    keyed["operator"] = taken(column_of(trace.host_ops, "name"), tree.owner)
    groups = Groups.of(keyed, list(keyed), with_absent=True)
    names = map(category, *(texts_of(own).tolist() for own in groups.keys.values()))
    places = {name: place for place, name in enumerate(CATEGORIES)}
    codes = np.array([places[name] for name in names], dtype=np.int64)
    return pd.Categorical.from_codes(codes[groups.of_row], dtype=_NAMES)
