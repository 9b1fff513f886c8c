"""The rule about optimizers that pass over all parameters again and again, where one kernel can do it in one pass."""

import re

from traceanalyzer.analyses.host.nvtx_projection import NvtxProjection
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import rows_where

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

_ADVICE = "Update in one pass: torch.optim.{}(…, fused=True)."


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
            recommendation=_ADVICE.format(adam[1] if adam else name),
            caveat="That an update moves memory and nothing else is supposed.",
            gain_ns=round(_SPARED * cost_ns[rank]),
            gain_is_bound=True,
            named=(rank,),
            table="nvtx_projection",
            is_to_do_first=True,
        )
    ]
