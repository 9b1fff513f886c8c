"""Rules about work that is done twice: activations that the backward pass computes again."""

from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, plain, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import rows_where

RECOMPUTE_PCT = 5.0
"""Of a step: forward work that the backward pass does again."""

_MOST_ROWS = 5


def recomputed_activations(
    headline: Headline, steps: Steps, operators: Operators, *, recompute_pct: float = RECOMPUTE_PCT
) -> list[Finding]:
    """Operators that autograd runs again in its backward pass keep a GPU busy for 5 % of a step or more.

    Those of compiled graphs are not told apart by their pass, and not counted.
    """
    if not len(headline) or not len(operators):
        return []
    basis = Basis.of(headline, steps)
    own = rows_where(operators.table, operators.table["autograd"] == "recompute")
    again_ns = own.groupby("rank")["gpu_own_ns"].sum().astype("float64") / steps_of_operators(steps, basis)
    again_ns = again_ns.reindex(basis.window_ns.index, fill_value=0.0)
    share = 100.0 * again_ns / (basis.window_ns / basis.per)
    if share.empty or not share.max() >= recompute_pct:
        return []
    rank = int(share.idxmax())
    rows = own[own["rank"] == rank].head(_MOST_ROWS)
    others = again_ns.drop(rank)
    alone = ", the others do none" if len(others) and not others.any() else ""
    return [
        Finding(
            severity="low",
            title=f"The backward pass computes activations again: {time_text(again_ns[rank])} of rank {rank}'s GPU "
            f"work, {share[rank]:.0f} % {basis.of_a_step}{alone}.",
            evidence=plain(rows[["rank", "operator", "autograd", "calls", "gpu_own_ns"]]),
            recommendation="Where memory allows, checkpoint fewer blocks, or only what is cheap to compute again "
            "(selective activation checkpointing); compare the step with checkpointing off.",
            caveat="Checkpointing takes this time to save memory: what it saves, the trace does not say.",
            gain_ns=round(again_ns[rank]),
            named=(rank,),
            table="operators",
        )
    ]
