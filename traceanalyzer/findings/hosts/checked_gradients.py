"""Rules about debugging that was left on: autograd's detection of anomalies."""

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.alike import also_on, with_others
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import rows_where

LEAST_CHECKS = 10
"""A step: one for each gradient. A program may check its loss itself."""

_CHECKS = ("aten::isnan", "aten::_is_any_true", "aten::item")
"""What autograd calls for each gradient: which are NaN, whether any is, and the answer, read back by the host."""

_ONLY = "aten::_is_any_true"
"""That of them which programs do not call."""


def checked_gradients(
    headline: Headline,
    steps: Steps,
    operators: Operators,
    episodes: Episodes,
    places: Places,
    ranks: Ranks,
    *,
    least_checks: int = LEAST_CHECKS,
) -> list[Finding]:
    """The backward pass looks for NaN in ten gradients of a step or more: torch.autograd.detect_anomaly is on."""
    if not len(headline) or not len(operators):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps), ranks)
    table = rows_where(operators.table, operators.table["autograd"] == "backward")
    table = table[table["operator"].isin(_CHECKS)]
    per = steps_of_operators(steps, basis)
    checks = (table[table["operator"] == _ONLY].groupby("rank")["calls"].sum().astype("float64") / per).dropna()
    held = checks[checks >= least_checks]
    if held.empty:
        return []
    host_ns = (table.groupby("rank")["host_total_ns"].sum().astype("float64") / per).reindex(held.index)
    rank = int(host_ns.idxmax())
    share = 100.0 * host_ns[rank] / basis.mean_ns(rank)
    return [
        Finding(
            severity=severity(share),
            title=f"Autograd looks for NaN in every gradient (detect_anomaly is on): rank {rank}'s host is "
            f"in {checks[rank]:,.0f} such checks for {time_text(host_ns[rank])} {basis.a_step}, "
            f"{share:.0f} % {basis.of_a_step}, and waits for its GPU in each"
            f"{also_on(held.index, basis.window_ns.index, places)}.",
            evidence=plain(
                table.loc[table["rank"] == rank, ["rank", "operator", "calls", "host_total_ns", "gpu_total_ns"]]
            ),
            recommendation="Leave torch.autograd.set_detect_anomaly off but while you look for a NaN: it also records "
            "Python's stack of every operator of the forward pass.",
            caveat="What recording stacks takes is not counted.",
            gain_ns=round(host_ns[rank]),
            is_of_hosts=True,
            named=with_others(rank, held.index, basis.window_ns.index),
            table="operators",
            is_to_do_first=True,
            tells_why=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]
