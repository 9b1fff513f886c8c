"""The rule about norms that are computed operator by operator, each of which reads and writes the whole tensor."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.operators.operator_shapes import OperatorShapes
from traceanalyzer.analyses.operators.recorded_shapes import Shape, inputs_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.devices.written_out import WRITTEN_OUT
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import rows_where

NORMS_PCT = 5.0
"""Of a step: work on what is normed and on its statistics."""

_ROOTS = ("aten::rsqrt", "aten::sqrt")
"""Of the mean square, or of the variance: one number for each row."""

_MEANS = ("aten::mean", "aten::var", "aten::pow", "aten::square")

_SCALES = ("aten::sub", "aten::mul", "aten::div")
"""By the statistics of its row."""

_MOST_ROWS = 5


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
                rows[["rank", "operator", "shapes", "calls", "gpu_own_ns", "backward_gpu_ns"]].head(_MOST_ROWS)
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

    def is_own(operator: str, of: tuple[Shape, ...]) -> bool:
        if not of or of[0] in statistics:
            return bool(of)
        if of[0] not in normed:
            return False
        return operator in _MEANS or (operator in _SCALES and of[1:2] == ((*of[0][:-1], 1),))

    rows = zip(table["operator"].tolist(), table["shapes"].tolist(), strict=True)
    return rows_where(table, np.array([is_own(operator, inputs[shapes]) for operator, shapes in rows], dtype=bool))


def _inputs(shapes: str) -> tuple[Shape, ...]:
    """Shapes of the inputs that are tensors, where the first one is: of `[[16, 768], [16, 1], []]` the first two."""
    inputs = inputs_of(shapes)
    return inputs.tensors if inputs.first else ()
