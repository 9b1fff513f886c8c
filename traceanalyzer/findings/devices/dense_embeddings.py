"""The rule about gradients of embeddings that are written for every row, few of which were looked up."""

from math import prod

import pandas as pd

from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.operators.operator_shapes import OperatorShapes
from traceanalyzer.analyses.operators.recorded_shapes import Shape, inputs_of
from traceanalyzer.analyses.phases.exposed_calls import ExposedCalls
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.kinds.dtypes import dtype_bytes
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import rows_where

DENSE_PCT = 5.0
"""Of a step: filling such gradients, and updating by them."""

_LOOK_UPS = ("aten::embedding", "aten::_embedding_bag", "aten::_embedding_bag_forward_only")

_DENSE = "dense_backward"

_FEW = 4
"""A table of which at most one row in so many is looked up gains by sparse gradients."""

_WHOLE = (
    "aten::fill_", "aten::zero_", "aten::_foreach_", "aten::_fused_", "aten::add_", "aten::addcmul_",
    "aten::addcdiv_", "aten::mul_", "aten::lerp_",
)  # fmt: skip
"""Operators that go through whole tables: they clear gradients, and update weights and their moments."""

_MOST_ROWS = 5

_WITH_LITTLE = 1.25
"""Times a table's numbers: a bucket of so many holds hardly anything else."""


def dense_embedding_gradients(
    headline: Headline,
    steps: Steps,
    operator_shapes: OperatorShapes,
    calls: Calls,
    exposed_calls: ExposedCalls,
    *,
    dense_pct: float = DENSE_PCT,
) -> list[Finding]:
    """Filling whole gradients of embeddings, updating by them and summing them over ranks takes 5 % of a step or more.

    Of all-reduces of such a gradient, with little beside it, what moves data while nothing computes counts. Of tables
    of which a call looks up a quarter of the rows at most. Told where shapes are recorded; of an optimizer's list of
    tensors the tables' part by their elements counts.
    """
    if not len(headline) or not len(operator_shapes):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = rows_where(operator_shapes.table, operator_shapes.table["shapes"].notna())
    looked_up = _looked_up(table)
    if not looked_up:
        return []
    part = _parts(table, looked_up)
    took_ns = part * table["gpu_own_ns"].astype("float64")
    own_ns = took_ns.groupby(table["rank"]).sum() / steps_of_operators(steps, basis)
    summed_ns = _summed_ns(calls, exposed_calls, basis, looked_up).reindex(own_ns.index, fill_value=0.0)
    cost_ns = own_ns + summed_ns
    found = basis.largest_share(cost_ns, dense_pct)
    if found is None:
        return []
    rank, share = found
    rows = table[(part > 0) & (table["rank"] == rank)].sort_values("gpu_own_ns", ascending=False)
    largest = max(looked_up, key=prod)
    more = f" and {len(looked_up) - 1} more" if len(looked_up) > 1 else ""
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"The gradient of an embedding of {list(largest)}{more} is written whole, though a call looks up "
            f"{looked_up[largest]:,} rows at most: clearing it and updating by it takes {time_text(own_ns[rank])} of "
            f"rank {rank}'s GPU time {basis.a_step}{_also(summed_ns[rank])}{share[rank]:.0f} % {basis.of_a_step}.",
            evidence=plain(rows[["rank", "operator", "shapes", "calls", "gpu_own_ns"]].head(_MOST_ROWS)),
            recommendation="Let the gradient hold only the rows that were looked up (torch.nn.Embedding(sparse=True) "
            "with SGD or torch.optim.SparseAdam; TorchRec's tables update them in the backward pass).",
            caveat="Momentum and weight decay change every row: a sparse optimizer is another algorithm.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="operator_shapes",
            is_to_do_first=True,
        )
    ]


def _also(summed_ns: float) -> str:
    """`, ` before the share; with what summing takes, where it takes some."""
    return (
        f", summing it over the ranks {time_text(summed_ns)} in which nothing computes: together "
        if summed_ns
        else ", "
    )


def _summed_ns(calls: Calls, exposed_calls: ExposedCalls, basis: Basis, tables: dict[Shape, int]) -> pd.Series:
    """Of each rank the time of a mean step in which all-reduces of such gradients move data and nothing computes."""
    if not len(calls) or not len(exposed_calls):
        return pd.Series(dtype="float64")
    held = basis.within(calls.table)
    held = rows_where(held, (held["collective"] == "all_reduce") & held["size_bytes"].notna() & held["dtype"].notna())
    numbers = held["size_bytes"].astype("float64") / held["dtype"].map(lambda name: dtype_bytes(str(name))).astype(
        "float64"
    )
    is_of_one = pd.Series(False, index=held.index)
    for shape in tables:
        is_of_one |= (numbers >= prod(shape)) & (numbers <= _WITH_LITTLE * prod(shape))
    moved = held[is_of_one][["rank", "call"]].merge(exposed_calls.table[["rank", "call", "transfer_ns"]])
    return moved.groupby("rank")["transfer_ns"].sum().astype("float64") / basis.per


def _looked_up(table: pd.DataFrame) -> dict[Shape, int]:
    """Tables, by their shape, with the most rows that a call looks up, where that is few of them.

    None in a job without dense gradients of embeddings.
    """
    if not table["operator"].astype("str").str.contains(_DENSE, regex=False).any():
        return {}
    held = rows_where(table, table["operator"].isin(_LOOK_UPS))
    most: dict[Shape, int] = {}
    for shapes in held["shapes"].unique():
        found = inputs_of(shapes).tensors
        if len(found) > 1 and len(found[0]) == 2:
            most[found[0]] = max(most.get(found[0], 0), prod(found[1]))
    return {shape: rows for shape, rows in most.items() if rows * _FEW <= shape[0]}


def _parts(table: pd.DataFrame, tables: dict[Shape, int]) -> pd.Series:
    called = zip(table["operator"], table["shapes"], strict=True)
    return pd.Series([_part(*one, tables) for one in called], index=table.index, dtype="float64")


def _part(operator: str, shapes: str, tables: dict[Shape, int]) -> float:
    """What part of an operator's work is on such tables, by elements: of lists of tensors that of the first list."""
    if not operator.startswith(_WHOLE):
        return 0.0
    inputs = inputs_of(shapes)
    of = inputs.listed or inputs.tensors
    count = sum(map(prod, of))
    return sum(prod(one) for one in of if one in tables) / count if count else 0.0
