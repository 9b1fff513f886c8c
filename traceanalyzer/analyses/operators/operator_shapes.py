"""What each operator costs on host and GPU, told apart by the shapes and strides that it was called with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.blocks import row_blocks
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.names import OperatorShapesColumn
from traceanalyzer.analyses.operators.operator_tree import NO_LAUNCH, NO_OPERATOR, PASS_NAMES, OperatorTree
from traceanalyzer.meaning.columns import Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import lengths_of, rows_named_so, text_array, texts_of, whole
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    column_of,
    columns_of,
    rows_where,
    sorted_by,
    table_of,
    under_each_other,
)

COSTS: Mapping[str, Column] = {
    "calls": Column.count("Times that it ran; absent for GPU operations without an operator.", is_aside=True),
    "host_self_ns": Column.time(
        "Host time inside it but in no operator that it called; absent of what a graph replays: no host runs it."
    ),
    "host_total_ns": Column.time(
        "Host time from its start to its end; calls inside another of the same name count once. Absent of what a "
        "graph replays."
    ),
    "gpu_ops": Column.count("GPU operations that it launched itself.", is_compared=False),
    "gpu_own_ns": Column.time(
        "Sum of their durations. Over all rows this adds up to all GPU operations, each counted once.",
        is_secondary=True,
        leads=True,
    ),
    "gpu_total_ns": Column.time(
        "The same with those of the operators that it called; calls inside another of the same name count once."
    ),
    "backward_gpu_ns": Column.time(
        "GPU time of the autograd nodes that these calls created; absent when none is recorded."
    ),
}
"""Columns that add up over rows."""


class OperatorShapes(Result[OperatorShapesColumn]):
    """One row for each rank, operator, autograd pass, shapes, strides and dtypes; most GPU time of its own first."""

    title: ClassVar[str] = "Operators by shape"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "operator", "autograd", "shapes", "strides", "dtypes")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "operator": Column.text("Name; in brackets what GPU operations have instead of one."),
        "autograd": Column.text(
            "forward (recorded by autograd), backward (run by it) or recompute (forward work inside the "
            "backward pass); absent for all else."
        ),
        "shapes": Column.text("Shapes of the arguments, as recorded; absent when they were not."),
        "strides": Column.text("Their strides in elements, as recorded: a transposed or sliced tensor shows here."),
        "dtypes": Column.text("Their element types.", written=Written.DTYPE),
        **COSTS,
    }


def per_rank(trace: RankTrace, tree: OperatorTree) -> pd.DataFrame:
    """Add up the rank's operators; GPU operations without one get rows of their own.

    The operator of a GPU operation is the innermost one around its launch, on the launch's thread.
    """
    if trace.gpu_ops.empty and trace.host_ops.empty:
        return pd.DataFrame()
    table = columns_of(_operators(trace, tree))
    durations = np.where(trace.counted, lengths_of(trace.gpu_ops), 0)
    others = _without_operator(durations, trace.counted, tree)
    own_ns = np.append(table["gpu_own_ns"], np.array(others["gpu_own_ns"], dtype=np.int64))
    assert int(own_ns.sum()) == int(durations.sum()), "own GPU time must add up to the GPU operations'"
    order = np.argsort(-own_ns, kind="stable")
    rows = np.append(np.arange(len(own_ns) - len(others["operator"])), np.full(len(others["operator"]), NONE))[order]
    operators = np.append(texts_of(table["operator"]), np.array(others["operator"], dtype=object))[order]
    return table_of(
        {
            "operator": text_array(operators),
            **{name: table[name].take(rows, allow_fill=True) for name in _KEYS[1:]},
            **{name: _with_others(table[name], others.get(name), len(own_ns)).take(order) for name in COSTS},
        }
    )


def _with_others(values: Any, others: list[int] | None, count: int) -> pd.arrays.IntegerArray:
    """So many integers: these, and below them others, which are absent where there are none."""
    missing = count - len(values)
    is_absent = np.zeros(len(values), dtype=bool) if isinstance(values, np.ndarray) else values.isna()
    return pd.arrays.IntegerArray(
        np.append(whole(values), np.array(others or [NONE] * missing, dtype=np.int64)),
        np.append(is_absent, np.full(missing, others is None)),
    )


def across(parts: Mapping[int, pd.DataFrame]) -> OperatorShapes:
    """The ranks' rows under each other."""
    return OperatorShapes(stack(parts, tuple(OperatorShapes.columns)))


def summed(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Rows added up by fewer keys; a column stays absent where it is absent in all of a row's parts."""
    return sorted_by(_totals(table, keys), "gpu_own_ns")


def _totals(table: pd.DataFrame | Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    return Groups.of(table, keys, by_appearance=True, with_absent=True).totals(table, list(COSTS))


def _operators(trace: RankTrace, tree: OperatorTree) -> pd.DataFrame:
    costs, ops = _Costs.of(trace, tree), columns_of(trace.host_ops)
    named = {"operator": tree.names, **{name: ops[name] for name in _KEYS[2:]}}
    parts = []
    for rows in row_blocks(len(trace.host_ops)):
        held = rows.start + np.flatnonzero(tree.is_counted[rows] | (costs.gpu_ops[rows] > 0))
        own = {name: values.take(held) for name, values in named.items()} | costs.at(held)
        own["autograd"] = pd.Categorical.from_codes(tree.autograd[held], dtype=PASS_NAMES)
        parts.append(_totals(own, _KEYS))
    return parts[0] if len(parts) == 1 else _totals(under_each_other(parts), _KEYS)


_KEYS = ("operator", "autograd", "shapes", "strides", "dtypes")


@dataclass(frozen=True, slots=True)
class _Costs:
    """What it takes to say of any operators their columns `COSTS`: an element for each operator."""

    is_counted: np.ndarray
    is_outermost: np.ndarray
    is_replayed: np.ndarray
    starts_ns: np.ndarray
    ends_ns: np.ndarray
    children_ns: np.ndarray
    gpu_ops: np.ndarray
    gpu_own_ns: np.ndarray
    gpu_total_ns: np.ndarray
    backward_ns: pd.arrays.IntegerArray

    @classmethod
    def of(cls, trace: RankTrace, tree: OperatorTree) -> "_Costs":
        ops = trace.host_ops
        gpu_ops, gpu_own = tree.gpu_sums(trace)
        gpu_total = tree.nesting.summed_up(gpu_own)
        return cls(
            tree.is_counted,
            tree.is_outermost_of_name(tree.names.codes),
            _is_replayed(trace),
            array_of(ops, "start_ns"),
            array_of(ops, "end_ns"),
            tree.nesting.children_ns(),
            gpu_ops,
            gpu_own,
            gpu_total,
            _backward(tree, gpu_total),
        )

    def at(self, rows: np.ndarray) -> dict[str, Any]:
        """The columns of these operators."""
        counted, outermost, is_replayed = self.is_counted[rows], self.is_outermost[rows], self.is_replayed[rows]
        length = self.ends_ns[rows] - self.starts_ns[rows]
        own_ns = np.where(counted, length - self.children_ns[rows], 0)
        total_ns = np.where(counted & outermost, length, 0)
        return {
            "calls": counted.astype(np.int64),
            "host_self_ns": pd.arrays.IntegerArray(own_ns, is_replayed),
            "host_total_ns": pd.arrays.IntegerArray(total_ns, is_replayed.copy()),
            "gpu_ops": self.gpu_ops[rows],
            "gpu_own_ns": self.gpu_own_ns[rows],
            "backward_gpu_ns": self.backward_ns[rows],
            "gpu_total_ns": np.where(outermost, self.gpu_total_ns[rows], 0),
        }


def _is_replayed(trace: RankTrace) -> np.ndarray:
    """Operators that stand inside the call that replays the graph that they were captured into."""
    mask = np.zeros(len(trace.host_ops), dtype=bool)
    if column_of(trace.gpu_ops, "captured_ns").isna().all():
        return mask
    calls = rows_where(trace.api_calls, rows_named_so(trace.api_calls, host_names.is_graph_launch))
    begins, threads = (array_of(trace.host_ops, name) for name in ("start_ns", "thread"))
    for thread, own in calls.groupby("thread"):
        row = np.searchsorted(array_of(own, "start_ns"), begins, side="right") - 1
        mask |= (row >= 0) & (threads == thread) & (begins < array_of(own, "end_ns")[row])
    return mask


def _backward(tree: OperatorTree, gpu_total: np.ndarray) -> pd.arrays.IntegerArray:
    """For each operator the GPU time of the autograd nodes that it created."""
    # A node is recorded twice, as the engine's call and as the function inside it: the outer one counts.
    outer = (tree.forward != NONE) & (tree.nesting.handed_down(tree.forward != NONE, including_self=False) == NONE)
    total = np.zeros(len(gpu_total), dtype=np.int64)
    np.add.at(total, tree.forward[outer], gpu_total[outer])
    linked = np.zeros(len(gpu_total), dtype=bool)
    linked[tree.forward[outer]] = True
    return pd.arrays.IntegerArray(total, ~linked)


def _without_operator(durations: np.ndarray, counted: np.ndarray, tree: OperatorTree) -> dict[str, list[Any]]:
    """Rows of the counted GPU operations that no operator launched: their names, number and time."""
    masks = {name: counted & (tree.owner == code) for name, code in ((NO_LAUNCH, NONE), (NO_OPERATOR, NONE - 1))}
    held = {name: mask for name, mask in masks.items() if mask.any()}
    spent = [int(durations[mask].sum()) for mask in held.values()]
    operations = [int(mask.sum()) for mask in held.values()]
    return {"operator": [*held], "gpu_ops": operations, "gpu_own_ns": spent, "gpu_total_ns": spent}
