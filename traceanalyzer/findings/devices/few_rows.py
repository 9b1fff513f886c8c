"""Rules about sums by index: many rows that are added into few, and products with one-hot rows."""

from math import prod

import numpy as np
import pandas as pd

from traceanalyzer.analyses.operators.operator_shapes import OperatorShapes
from traceanalyzer.analyses.operators.recorded_shapes import Shape, inputs_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.quantities import digits, time_text
from traceanalyzer.model.tables import rows_where

FEW_ROWS_PCT = 5.0
"""Of a step, that a GPU takes for such sums; for products with one-hot rows."""

ADDED_TIMES = 1_000.0
"""Elements that are added into each one of the result: so many atomic additions follow each other."""

_PUT = ("aten::index_put_", "aten::_index_put_impl_")
"""They take a list of indices, whose shapes are not recorded: what is put by them a thousand times a place is added.

Measured on an H100 (torch 2.11), 1,048,576 rows of 64 float32 values added into

| rows | `index_put_` | `index_add_` | backward of `embedding` | one-hot product | `segment_reduce`, sorting aside |
|---|---|---|---|---|---|
| 8 | 94 ms | 1.3 ms | 0.82 ms | 0.37 ms | 14 ms |
| 64 | 12 ms | 0.50 ms | 0.53 ms | 0.79 ms | 1.9 ms |
| 1,000 | 1.2 ms | 0.50 ms | 0.37 ms | 10 ms | 0.22 ms |

65,536 rows of 64, of 512, and 1,048,576 of one value are in the same order: a one-hot product of 8 rows takes 0.3 to
0.6 of the time of `index_add_`, of 64 rows mostly more.
"""

_ADD = ("aten::index_add_", "aten::index_add", "aten::scatter_add_", "aten::scatter_add", *_PUT)

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")

_MOST_ROWS = 5


def sums_on_few_rows(
    headline: Headline, steps: Steps, operator_shapes: OperatorShapes, *, few_rows_pct: float = FEW_ROWS_PCT,
    added_times: float = ADDED_TIMES,
) -> list[Finding]:  # fmt: skip
    """A GPU adds 1,000 values and more into each one of a result by their index, for 5 % of a step.

    By `index_add_`, `scatter_add_` or `index_put_` (the backward of `weight[index]`), told where shapes are recorded:
    what is added to one place waits for what was added before.
    """
    if not len(headline) or not len(operator_shapes):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = rows_where(operator_shapes.table, operator_shapes.table["operator"].isin(_ADD))
    table = rows_where(table, table["shapes"].notna())
    called = zip(table["operator"].astype("str"), table["shapes"].astype("str"), strict=True)
    times = pd.Series([_added(*each) for each in called], index=table.index, dtype="float64")
    table, times = table[times >= added_times], times[times >= added_times]
    cost_ns = table.groupby("rank")["gpu_own_ns"].sum().astype("float64") / steps_of_operators(steps, basis)
    found = basis.largest_share(cost_ns.dropna(), few_rows_pct)
    if found is None:
        return []
    rank, share = found
    own = table[table["rank"] == rank].sort_values("gpu_own_ns", ascending=False)
    operator = str(own["operator"].iloc[0])
    into, source = _of_sum(operator, str(own["shapes"].iloc[0]))
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"Rank {rank}'s GPU adds {list(source)} into {list(into)} by {operator}: "
            f"{digits(round(float(times[own.index[0]])))} values into each one, which wait for each other. That takes "
            f"{time_text(cost_ns[rank])} {basis.a_step}, {share[rank]:.0f} % {basis.of_a_step}.",
            evidence=plain(own[["rank", "operator", "shapes", "calls", "gpu_own_ns"]].head(_MOST_ROWS)),
            recommendation=_OF_PUT if operator in _PUT else _OF_SUM,
            caveat="How evenly the index spreads over the rows, the trace does not say: the mean is told.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="operator_shapes",
        )
    ]


_OF_SUM = (
    "Of a dozen rows or fewer take a product with the one-hot matrix of the index: of eight rows it took 0.3 to 0.6 of "
    "the time on an H100, of 64 mostly more. Sorting by the index first (torch.segment_reduce) mostly took longer, too."
)

_OF_PUT = (
    "Look rows up by torch.nn.functional.embedding(index, weight) instead of weight[index], whose backward this is; "
    "where it is called by itself (accumulate=True), take index_add_, which adds to one row from many threads at once."
)


def _of_sum(operator: str, shapes: str) -> tuple[Shape, Shape]:
    """Shapes of the result and of what is added: the first tensor and the last; the index is between, or a list."""
    tensors = inputs_of(shapes).tensors
    return (tensors[0], tensors[-1]) if len(tensors) > (1 if operator in _PUT else 2) else ((), ())


def _added(operator: str, shapes: str) -> float:
    into, source = map(prod, _of_sum(operator, shapes))
    return source / into if into > 1 else 0.0


def one_hot_products(
    headline: Headline, steps: Steps, operator_shapes: OperatorShapes, *, few_rows_pct: float = FEW_ROWS_PCT
) -> list[Finding]:
    """Products with what `one_hot` made, and making it, take 5 % of a step: each picks a row of the other matrix.

    Told where shapes are recorded: the product's first matrix has a shape that `one_hot` scatters into.
    """
    if not len(headline) or not len(operator_shapes):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = rows_where(operator_shapes.table, operator_shapes.table["shapes"].notna())
    made = _one_hot_shapes(table)
    called = zip(table["operator"].astype("str"), table["shapes"].astype("str"), strict=True)
    own = rows_where(table, np.array([_picks(*one, made) for one in called], dtype=bool))
    cost_ns = own.groupby("rank")["gpu_own_ns"].sum().astype("float64") / steps_of_operators(steps, basis)
    found = basis.largest_share(cost_ns.dropna(), few_rows_pct)
    if found is None:
        return []
    rank, share = found
    own = own[own["rank"] == rank].sort_values("gpu_own_ns", ascending=False)
    one, other = inputs_of(str(own["shapes"].iloc[0])).tensors[-2:]
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"Rank {rank}'s GPU multiplies one-hot rows of {list(one)} with {list(other)}, which picks a row for "
            f"each: {time_text(cost_ns[rank])} {basis.a_step}, {share[rank]:.0f} % {basis.of_a_step}.",
            evidence=plain(own[["rank", "operator", "shapes", "calls", "gpu_own_ns"]].head(_MOST_ROWS)),
            recommendation="Look the rows up instead: torch.nn.functional.embedding(index, matrix), or matrix[index].",
            caveat="By its shape: another matrix may have the same one.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="operator_shapes",
        )
    ]


def _one_hot_shapes(table: pd.DataFrame) -> set[Shape]:
    """What `one_hot` made, by an index of the shape without its last dimension, as matrices."""
    asked, into = (
        {inputs_of(str(shapes)).first or () for shapes in table.loc[table["operator"] == name, "shapes"].unique()}
        for name in ("aten::one_hot", "aten::scatter_")
    )
    return {(prod(shape[:-1]), shape[-1]) for shape in into if len(shape) > 1 and shape[:-1] in asked}


def _picks(operator: str, shapes: str, made: set[Shape]) -> bool:
    tensors = inputs_of(shapes).tensors if made and operator in _PRODUCTS else ()
    return len(tensors) > 1 and tensors[-2] in made
