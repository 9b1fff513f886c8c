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

_ADD = ("aten::index_add_", "aten::index_add", "aten::scatter_add_", "aten::scatter_add")

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")

_MOST_ROWS = 5


def sums_on_few_rows(
    headline: Headline, steps: Steps, operator_shapes: OperatorShapes, *, few_rows_pct: float = FEW_ROWS_PCT,
    added_times: float = ADDED_TIMES,
) -> list[Finding]:  # fmt: skip
    """A GPU adds 1,000 values and more into each one of a result by their index, for 5 % of a step.

    By `index_add_` or `scatter_add_`, told where shapes are recorded: what is added to one place waits for what was
    added before.
    """
    if not len(headline) or not len(operator_shapes):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = rows_where(operator_shapes.table, operator_shapes.table["operator"].isin(_ADD))
    table = rows_where(table, table["shapes"].notna())
    times = pd.Series([_added(str(shapes)) for shapes in table["shapes"]], index=table.index, dtype="float64")
    table, times = table[times >= added_times], times[times >= added_times]
    cost_ns = table.groupby("rank")["gpu_own_ns"].sum().astype("float64") / steps_of_operators(steps, basis)
    found = basis.largest_share(cost_ns.dropna(), few_rows_pct)
    if found is None:
        return []
    rank, share = found
    own = table[table["rank"] == rank].sort_values("gpu_own_ns", ascending=False)
    into, source = _of_sum(str(own["shapes"].iloc[0]))
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"Rank {rank}'s GPU adds {list(source)} into {list(into)} by {own['operator'].iloc[0]}: "
            f"{digits(round(float(times[own.index[0]])))} values into each one, which wait for each other. That takes "
            f"{time_text(cost_ns[rank])} {basis.a_step}, {share[rank]:.0f} % {basis.of_a_step}.",
            evidence=plain(own[["rank", "operator", "shapes", "calls", "gpu_own_ns"]].head(_MOST_ROWS)),
            recommendation="Add what belongs to one row in one go: for few rows by a product with the one-hot matrix "
            "of the index, else sort by the index once and take torch.segment_reduce.",
            caveat="How evenly the index spreads over the rows, the trace does not say: the mean is told.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="operator_shapes",
        )
    ]


def _of_sum(shapes: str) -> tuple[Shape, Shape]:
    """Shapes of the result and of what is added: the first tensor and the last."""
    tensors = inputs_of(shapes).tensors
    return (tensors[0], tensors[-1]) if len(tensors) > 2 else ((), ())


def _added(shapes: str) -> float:
    into, source = map(prod, _of_sum(shapes))
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
