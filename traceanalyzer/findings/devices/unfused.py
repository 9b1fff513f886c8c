"""Unfused attention, norms and optimizers."""

import re
from math import prod

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.host.api_calls import NvtxProjection
from traceanalyzer.analyses.operators.flops import RecordedShapesShape, inputs_of
from traceanalyzer.analyses.operators.operators import Operators, OperatorShapes
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, Title, Won, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.stragglers.stragglers import late_by
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.model.tables import rows_where

# The rule about optimizers that pass over all parameters again and again, where one kernel can do it in one pass.


OPTIMIZER_PCT = 5.0
"""Of a step: updates in many passes."""

_ADAM = re.compile(r"^Optimizer\.step#(Adam|AdamW)\.step$")
"""PyTorch's ranges around the updates of optimizers that it has as one kernel, and that pass over five arrays."""

_OF_ADAM = ("aten::lerp_", "aten::addcmul_", "aten::addcdiv_")
_OF_ALL_AT_ONCE = ("aten::_foreach_lerp_", "aten::_foreach_addcmul_", "aten::_foreach_addcdiv_")

_THEIR_PART = 0.3
"""Of the update's GPU time, which these operators take at least (ten of twenty arrays): less, and hosts bind it."""

_SPARED = 0.65
"""Of twenty arrays that Adam's operators read or write for each parameter, one kernel's seven leave out so much."""

_UNFUSED_OPTIMIZER_ADVICE = "Update in one pass: torch.optim.{}(…, fused=True)."


def unfused_optimizer(
    headline: Headline,
    steps: Steps,
    nvtx_projection: NvtxProjection,
    operators: Operators,
    *,
    optimizer_pct: float = OPTIMIZER_PCT,
) -> list[Finding]:
    """Adam's or AdamW's update takes 5 % of a step of GPU time in operators that each pass over all parameters.

    By `foreach` or parameter by parameter, on a GPU that is busy meanwhile: where hosts bind it, `many_launches` tells.
    """
    if not len(headline) or not len(nvtx_projection) or not len(operators):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    ranges = nvtx_projection.table
    ranges = rows_where(ranges, ranges["name"].astype("str").str.match(_ADAM))
    if ranges.empty:
        return []
    per = steps_of_operators(steps, basis)
    table = operators.table
    own = rows_where(table, table["operator"].isin([*_OF_ADAM, *_OF_ALL_AT_ONCE]))
    passing_ns = own.groupby("rank")["gpu_own_ns"].sum().astype("float64") / per
    cost_ns = ranges.groupby("rank")["total_ns"].sum().astype("float64") / per
    found = basis.largest_share(cost_ns[passing_ns.reindex(cost_ns.index) >= _THEIR_PART * cost_ns], optimizer_pct)
    if found is None:
        return []
    rank, share = found
    name = str(ranges.loc[ranges["rank"] == rank, "name"].iloc[0])
    adam = _ADAM.match(name)
    return [
        Finding(
            severity=severity(_SPARED * share[rank]),
            title=Title(
                f"{adam[1] if adam else name} updates the parameters in {time_text(cost_ns[rank])} of rank {rank}'s "
                f"GPU time {basis.a_step}, {share[rank]:.0f} % {basis.of_a_step}, in one pass over them after the "
                f"other. In one kernel, which reads and writes a third as much, {basis.whole} is ",
                Won(round(_SPARED * cost_ns[rank]), is_bound=True),
                ".",
            ),
            evidence=plain(own.loc[own["rank"] == rank, ["rank", "operator", "calls", "gpu_ops", "gpu_own_ns"]]),
            recommendation=_UNFUSED_OPTIMIZER_ADVICE.format(adam[1] if adam else name),
            caveat="That an update moves memory and nothing else is supposed.",
            gain_ns=round(_SPARED * cost_ns[rank]),
            gain_is_bound=True,
            named=(rank,),
            table="nvtx_projection",
            is_to_do_first=True,
        )
    ]


# Rules about attention that is computed operator by operator, its scores written to memory and read again.


SCORES_PCT = 10.0
"""Of a step: work on attention's scores beside the matrix products, which fused attention does not do in memory."""

_SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data", "aten::_safe_softmax", "aten::_masked_softmax")

_PRODUCTS = ("aten::bmm", "aten::baddbmm", "aten::mm")

_MATH = "aten::_scaled_dot_product_attention_math"

WRITTEN_OUT = "what is written out"
"""What rules of it are about: kernels that move data are a part of it."""

_WRITTEN_OUT_MOST_ROWS = 5

_WRITTEN_OUT_ADVICE = (
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
            evidence=plain(rows[["rank", "operator", "shapes", "calls", "gpu_own_ns"]].head(_WRITTEN_OUT_MOST_ROWS)),
            recommendation=_NOT_FUSED if is_math else _WRITTEN_OUT_ADVICE,
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


def _scores(table: pd.DataFrame) -> set[RecordedShapesShape]:
    """Shapes of attention's scores, as they are and with their batches put together."""
    results = {_result(shapes) for shapes in table.loc[table["operator"].isin(_PRODUCTS), "shapes"].unique()}
    softmax = set(table.loc[table["operator"].isin(_SOFTMAX), "first"].dropna())
    of_products = {shape: (prod(shape[:-2]), *shape[-2:]) for shape in softmax if len(shape) > 2}
    held = {shape: flat for shape, flat in of_products.items() if flat in results}
    return {*held, *held.values()}


def _result(shapes: str) -> RecordedShapesShape | None:
    """What a batched product gives: `[[64, 512, 128], [64, 128, 512]]` gives `(64, 512, 512)`."""
    inputs = [shape for shape in inputs_of(shapes).tensors if len(shape) == 3]
    return (inputs[-2][0], inputs[-2][1], inputs[-1][2]) if len(inputs) >= 2 else None


# The rule about norms that are computed operator by operator, each of which reads and writes the whole tensor.


NORMS_PCT = 5.0
"""Of a step: work on what is normed and on its statistics."""

_ROOTS = ("aten::rsqrt", "aten::sqrt")
"""Of the mean square, or of the variance: one number for each row."""

_MEANS = ("aten::mean", "aten::var", "aten::pow", "aten::square")

_SCALES = ("aten::sub", "aten::mul", "aten::div")
"""By the statistics of its row."""

_WRITTEN_OUT_NORMS_MOST_ROWS = 5


def written_out_norms(
    headline: Headline, steps: Steps, operator_shapes: OperatorShapes, *, norms_pct: float = NORMS_PCT
) -> list[Finding]:
    """Means, roots and scaling of tensors by their rows' statistics, and their backward, take 5 % of a step or more.

    Told where shapes are recorded: roots of one number a row beside means of rows as many. The scaling by weights,
    casts, and what the statistics are not part of are not counted.
    """
    if not len(headline) or not len(operator_shapes):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = operator_shapes.table
    table = rows_where(table, table["shapes"].notna() & (table["autograd"] != "backward").fillna(value=True))
    own = _of_norms(table)
    took_ns = own["gpu_own_ns"].astype("float64") + own["backward_gpu_ns"].astype("Float64").fillna(0.0).astype(
        "float64"
    )
    cost_ns = took_ns.groupby(own["rank"]).sum() / steps_of_operators(steps, basis)
    found = basis.largest_share(cost_ns, norms_pct)
    if found is None:
        return []
    rank, share = found
    rows = own[own["rank"] == rank].sort_values("gpu_own_ns", ascending=False)
    roots = int(rows.loc[rows["operator"].isin(_ROOTS), "calls"].sum())
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"Norms are written out, {basis.times(roots * basis.per / steps_of_operators(steps, basis)[rank])}: "
            f"means, roots and scaling by them, forward and backward, take {time_text(cost_ns[rank])} of rank {rank}'s "
            f"GPU time {basis.a_step}, {share[rank]:.0f} % {basis.of_a_step}.",
            evidence=plain(
                rows[["rank", "operator", "shapes", "calls", "gpu_own_ns", "backward_gpu_ns"]].head(
                    _WRITTEN_OUT_NORMS_MOST_ROWS
                )
            ),
            recommendation="Call torch.nn.functional.rms_norm or layer_norm, which read their input once (of Hugging "
            "Face's models: fused kernels such as Liger's), or let torch.compile fuse these operators.",
            caveat="A fused norm takes a part of this time. Kernels whose launch was not recorded are not counted.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="operator_shapes",
            is_to_do_first=True,
            about=WRITTEN_OUT,
            tells_why=True,
        )
    ]


def _of_norms(table: pd.DataFrame) -> pd.DataFrame:
    """The operators on what is normed, on its rows' statistics, and between both."""
    inputs = {shapes: _inputs(shapes) for shapes in table["shapes"].unique()}  # ranks of one program have the same
    pairs = zip(table["operator"].tolist(), [inputs[shapes] for shapes in table["shapes"].tolist()], strict=True)
    called = [(operator, of) for operator, of in pairs if of]
    roots = {of[0] for operator, of in called if operator in _ROOTS and of[0][-1] == 1}
    normed = {of[0] for operator, of in called if operator in _MEANS and of[0][-1] > 1 and (*of[0][:-1], 1) in roots}
    statistics = {(*shape[:-1], 1) for shape in normed}

    def is_own(operator: str, of: tuple[RecordedShapesShape, ...]) -> bool:
        if not of or of[0] in statistics:
            return bool(of)
        if of[0] not in normed:
            return False
        return operator in _MEANS or (operator in _SCALES and of[1:2] == ((*of[0][:-1], 1),))

    rows = zip(table["operator"].tolist(), table["shapes"].tolist(), strict=True)
    return rows_where(table, np.array([is_own(operator, inputs[shapes]) for operator, shapes in rows], dtype=bool))


def _inputs(shapes: str) -> tuple[RecordedShapesShape, ...]:
    """Shapes of the inputs that are tensors, where the first one is: of `[[16, 768], [16, 1], []]` the first two."""
    inputs = inputs_of(shapes)
    return inputs.tensors if inputs.first else ()
