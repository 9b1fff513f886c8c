"""Which kernels each operator launched, by place in the program: the tree module → operator → kernel."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack, taken
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.names import OperatorKernelsColumn
from traceanalyzer.analyses.operators.operator_shapes import OperatorShapes
from traceanalyzer.analyses.operators.operator_tree import NO_LAUNCH, NO_OPERATOR, PASS_NAMES, OperatorTree
from traceanalyzer.analyses.operators.scopes import Scopes
from traceanalyzer.analyses.operators.source_lines import source_lines
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, sorted_table
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import column_of

_KEYS = ("path", "operator", "autograd", "kernel", "kind")


class OperatorKernels(Result[OperatorKernelsColumn]):
    """One row for each rank, path, operator, autograd pass and kernel; the times add up to all GPU operations'."""

    title: ClassVar[str] = "Kernels by module and operator"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", *_KEYS)
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "path": Column.text("Modules and ranges around the operator, from the outermost down; absent for none."),
        "operator": OperatorShapes.columns["operator"],
        "autograd": OperatorShapes.columns["autograd"],
        "kernel": Column.text("Name of the kernel or copy.", written=Written.KERNEL),
        "kind": Column.text("compute, comm or copy.", written=Written.KIND, is_aside=True),
        "category": Column.text("As in the categories table."),
        "source": Column.text(
            "The user's function around the operator, with file and line; of the longest part when there are "
            "several, absent without recorded stacks."
        ),
        "gpu_ops": Column.count("GPU operations.", is_compared=False),
        "gpu_ns": Column.time("Sum of their durations.", leads=True),
    }


def per_rank(trace: RankTrace, tree: OperatorTree, scopes: Scopes, category_of_op: pd.Categorical) -> pd.DataFrame:
    """Add up the rank's counted GPU operations; each belongs to the innermost operator around its launch."""
    if trace.gpu_ops.empty:
        return pd.DataFrame()
    rows = np.flatnonzero(trace.counted)
    columns = {name: values.take(rows) for name, values in _columns(trace, tree, scopes, category_of_op).items()}
    by_source = Groups.of(columns, [*columns], by_appearance=True, with_absent=True)
    gpu_ops, gpu_ns = by_source.counts(), by_source.sums(lengths_of(trace.gpu_ops)[rows])
    order = np.argsort(-gpu_ns, kind="stable")
    columns = {name: values.take(order) for name, values in by_source.keys.items()}
    groups = Groups.of(columns, _KEYS, by_appearance=True, with_absent=True)
    sums = {"gpu_ops": groups.sums(gpu_ops[order]), "gpu_ns": groups.sums(gpu_ns[order])}
    longest = {name: columns[name].take(groups.first) for name in ("category", "source")}
    return sorted_table({**groups.keys, **sums, **longest}, "gpu_ns")


def across(parts: Mapping[int, pd.DataFrame]) -> OperatorKernels:
    """The ranks' rows under each other."""
    return OperatorKernels(stack(parts, tuple(OperatorKernels.columns)))


def _columns(trace: RankTrace, tree: OperatorTree, scopes: Scopes, category: pd.Categorical) -> dict[str, Any]:
    """What each GPU operation is told apart by."""
    ops = trace.gpu_ops
    return {
        "path": taken(column_of(scopes.calls, "path"), scopes.of_op),
        "operator": _operators(trace, tree),
        "autograd": taken(pd.Categorical.from_codes(tree.autograd, dtype=PASS_NAMES), tree.owner),
        "kernel": column_of(ops, "name"),
        "kind": column_of(ops, "kind"),
        "category": category,
        "source": taken(source_lines(trace, tree), tree.owner),
    }


def _operators(trace: RankTrace, tree: OperatorTree) -> pd.Categorical:
    names = column_of(trace.host_ops, "name").add_categories([NO_LAUNCH, NO_OPERATOR])
    last = len(names.categories) - 1
    found = np.append(names.codes, NONE)[np.where(tree.owner >= 0, tree.owner, len(names))]
    codes = np.where(tree.owner == NONE, last - 1, np.where(tree.owner < NONE, last, found))
    return pd.Categorical.from_codes(codes, dtype=names.dtype)
