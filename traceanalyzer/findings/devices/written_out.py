"""Rules about attention that is computed operator by operator, its scores written to memory and read again."""

from math import prod

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.operators.operator_shapes import OperatorShapes
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.operators.recorded_shapes import Shape, inputs_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.lateness import late_by
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import rows_where

SCORES_PCT = 10.0
"""Of a step: work on attention's scores beside the matrix products, which fused attention does not do in memory."""

_SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data", "aten::_safe_softmax", "aten::_masked_softmax")

_PRODUCTS = ("aten::bmm", "aten::baddbmm", "aten::mm")

_MATH = "aten::_scaled_dot_product_attention_math"

WRITTEN_OUT = "what is written out"
"""What rules of it are about: kernels that move data are a part of it."""

_MOST_ROWS = 5

_ADVICE = (
    "Call torch.nn.functional.scaled_dot_product_attention, which keeps the scores on the chip (Hugging Face: "
    'attn_implementation="sdpa"); masks and biases of other forms fit into torch.nn.attention.flex_attention.'
)

_NOT_FUSED = (
    "scaled_dot_product_attention takes its plain implementation here: no fused one takes these inputs. Use 16 bits, "
    "is_causal=True or a mask of their type, head sizes that are multiples of 8; "
    "torch.nn.attention.sdpa_kernel says which it refuses and why."
)


def written_out_attention(
    headline: Headline,
    steps: Steps,
    operator_shapes: OperatorShapes,
    operators: Operators,
    episodes: Episodes,
    *,
    scores_pct: float = SCORES_PCT,
) -> list[Finding]:
    """Softmax, masks, casts and what else runs over attention's scores keep a GPU busy for 10 % of a step or more.

    Scores are what a softmax reads that has the shape of a batched product's result. Told where shapes are recorded.
    """
    if not len(headline) or not len(operator_shapes):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = rows_where(operator_shapes.table, operator_shapes.table["shapes"].notna())
    table = table.assign(first=table["shapes"].map(lambda shapes: inputs_of(shapes).first))
    scores = _scores(table)
    own = rows_where(table, table["first"].isin(scores) & ~table["operator"].isin(_PRODUCTS))
    cost_ns = own.groupby("rank")["gpu_own_ns"].sum().astype("float64") / steps_of_operators(steps, basis)
    found = basis.largest_share(cost_ns, scores_pct)
    if found is None:
        return []
    rank, share = found
    rows = own[own["rank"] == rank].sort_values("gpu_own_ns", ascending=False)
    of_softmax = rows[rows["operator"].isin(_SOFTMAX)]
    late = {late_by(episodes, int(each), "compute") for each in share.index[share >= scores_pct]}
    is_math = bool((operators.table["operator"] == _MATH).any())
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"Attention is written out: softmax, and what else runs over its scores of "
            f"{list(of_softmax['first'].iloc[0])}, takes {time_text(cost_ns[rank])} of rank {rank}'s GPU time "
            f"{basis.a_step}, {share[rank]:.0f} % {basis.of_a_step}.",
            evidence=plain(rows[["rank", "operator", "shapes", "calls", "gpu_own_ns"]].head(_MOST_ROWS)),
            recommendation=_NOT_FUSED if is_math else _ADVICE,
            caveat="Fused attention computes the scores anew in the backward pass. Kernels whose launch was not "
            "recorded are not counted.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="operator_shapes",
            is_to_do_first=True,
            about=WRITTEN_OUT,
            part_of=late.pop() if len(late) == 1 else None,
            tells_why=True,
        )
    ]


def _scores(table: pd.DataFrame) -> set[Shape]:
    """Shapes of attention's scores, as they are and with their batches put together."""
    results = {_result(shapes) for shapes in table.loc[table["operator"].isin(_PRODUCTS), "shapes"].unique()}
    softmax = set(table.loc[table["operator"].isin(_SOFTMAX), "first"].dropna())
    of_products = {shape: (prod(shape[:-2]), *shape[-2:]) for shape in softmax if len(shape) > 2}
    held = {shape: flat for shape, flat in of_products.items() if flat in results}
    return {*held, *held.values()}


def _result(shapes: str) -> Shape | None:
    """What a batched product gives: `[[64, 512, 128], [64, 128, 512]]` gives `(64, 512, 512)`."""
    inputs = [shape for shape in inputs_of(shapes).tensors if len(shape) == 3]
    return (inputs[-2][0], inputs[-2][1], inputs[-1][2]) if len(inputs) >= 2 else None
