"""Sparse work done densely: few rows of large tables, handled as if they were all of them.

A dense gradient for a whole embedding table, a product with a one-hot matrix, or thousands of values added to a few
rows one after the other.

**Fix.** `nn.Embedding(..., sparse=True)` with `SparseAdam`, indexing instead of one-hot products,
`torch.nn.functional.embedding`, `scatter_reduce` over sorted indices.
"""

from collections.abc import Iterator
from math import prod

import pandas as pd

from traceanalyzer.analyses.operators.operators import OperatorShapes
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.kinds import Call
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.gpus import WARP

PLACE = "Compute", 4

_LOOK_UPS = ("aten::embedding", "aten::_embedding_bag", "aten::_embedding_bag_forward_only")

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")

_PUTS = ("aten::index_put_", "aten::_index_put_impl_")

_SUMS = ("aten::index_add_", "aten::index_add", "aten::scatter_add_", "aten::scatter_add", *_PUTS)

_WHOLE = ("aten::fill_", "aten::zero_", "aten::_foreach_", "aten::_fused_", "aten::add_", "aten::addc", "aten::mul_",
          "aten::lerp_")  # fmt: skip
"""Operators that pass over whole tables: they clear gradients and update weights and moments."""


def sparse_as_dense(run: Run, operator_shapes: OperatorShapes) -> Iterator[Finding]:
    """Dense gradients of embeddings, sums into few rows by index, and products with one-hot matrices, by shapes.

    The change is this GPU work gone.
    """
    table = operator_shapes.table[operator_shapes.table["shapes"].notna()]
    inputs = {text: Call.parse(str(text)) for text in table["shapes"].unique()}
    calls = [(str(name), inputs[text]) for name, text in zip(table["operator"], table["shapes"], strict=True)]
    tables, one_hot = _few_looked_up(calls), _one_hot(calls)
    for headline, why, fix, part in (
        (
            "Dense embedding gradients",
            "Few rows are looked up, but clearing gradients and the update pass over all of them.",
            "torch.nn.Embedding(sparse=True) with torch.optim.SparseAdam, or TorchRec's fused updates.",
            [_part(*call, tables) for call in calls],
        ),
        (
            "Sums by index into few rows",
            "Additions into the same row wait for each other.",
            "embedding() for weight[index], index_add_ for index_put_; for a dozen rows a one-hot product.",
            [float(_waits(*call)) for call in calls],
        ),
        (
            "Products with one-hot matrices",
            "Each product only picks rows of the other matrix.",
            "torch.nn.functional.embedding(index, matrix) or matrix[index].",
            [float(name in _PRODUCTS and not one_hot.isdisjoint(call.sizes[-2:-1])) for name, call in calls],
        ),
    ):
        spared = table["gpu_own_ns"].astype("float64") * pd.Series(part, index=table.index, dtype="float64")
        changes = run.shorter_operators(spared.groupby(table["operator"], observed=True).sum())
        if changes:
            rows = table.loc[spared.nlargest(5).index, ["operator", "shapes", "gpu_own_ns"]]
            first, of = rows["operator"].iloc[0], inputs[rows["shapes"].iloc[0]]
            yield Finding(
                headline=f"{headline}: {time_text(spared.sum() / run.recorded)}{run.each} of GPU time.",
                why=f"{why[:-1]}, mostly in {first} of {list(of.listed[0] if of.listed else of.first or ())}.",
                fix=fix,
                changes=changes,
                evidence=tuple(rows.to_dict("records")),
                table="operator_shapes",
                half_of="the dense work",
            )


def _few_looked_up(calls: list[tuple[str, Call]]) -> set[tuple[int, ...]]:
    """Tables with dense gradients of which a call looks up fewer than half of the rows, and which no product reads."""
    if not any("dense_backward" in name for name, _ in calls):
        return set()
    read = {side for name, call in calls if name in _PRODUCTS for one in call.sizes for side in (one, one[::-1])}
    rows: dict[tuple[int, ...], int] = {}
    for name, call in calls:
        if name in _LOOK_UPS and len(call.sizes) > 1 and len(call.sizes[0]) == 2:
            one, index = call.sizes[:2]
            rows[one] = max(rows.get(one, 0), prod(index))
    return {one for one, count in rows.items() if count < SHARE * one[0]} - read


def _part(operator: str, call: Call, tables: set[tuple[int, ...]]) -> float:
    """What part of an operator's work is on such tables, by elements."""
    of = call.listed or call.sizes
    count = sum(map(prod, of))
    return sum(prod(one) for one in of if one in tables) / count if count and operator.startswith(_WHOLE) else 0.0


def _waits(operator: str, call: Call) -> bool:
    """Whether it adds into fewer rows than threads run at once; of `index_put_` more values than there are places."""
    if operator not in _SUMS or len(call.sizes) < 2:
        return False
    into, added = call.sizes[0], call.sizes[-1]
    return prod(added) > prod(into) > 1 and (operator in _PUTS or into[0] < WARP)


def _one_hot(calls: list[tuple[str, Call]]) -> set[tuple[int, ...]]:
    """Shapes of what `one_hot` made, as matrices."""
    asked = {call.first for name, call in calls if name == "aten::one_hot"}
    into = {call.first or () for name, call in calls if name == "aten::scatter_"}
    return {(prod(shape[:-1]), shape[-1]) for shape in into if len(shape) > 1 and shape[:-1] in asked}
