"""Rules about values that a program reads back one by one: is this tensor finite, and this one?"""

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.operators.launch_loops import LaunchLoops
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_shares import host_shares, once, won_by_one_turn
from traceanalyzer.findings.hosts.checked_gradients import LEAST_CHECKS
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.won import Title
from traceanalyzer.meaning.quantities import time_text

CHECKED_PCT = 3.0
"""Of a step, in which a host checks values."""

CHECKS = ("aten::isfinite", "aten::isnan", "aten::isinf")
"""Which of a tensor's values are what they should not be."""

_ANSWERS = ("aten::all", "aten::any", "aten::item")
"""Whether any is, and the answer, read back by the host; programs call them for more than that."""

_NAMES = [*CHECKS, *_ANSWERS]


def checked_values(
    headline: Headline, steps: Steps, operators: Operators, launch_loops: LaunchLoops, episodes: Episodes,
    places: Places, replay: Replay, ranks: Ranks, *, least_checks: int = LEAST_CHECKS, checked_pct: float = CHECKED_PCT,
) -> list[Finding]:  # fmt: skip
    """The program asks of ten tensors of a step or more, one after the other, whether they are finite.

    Where a host spends 3 % of a step in that, and the job would be quicker if that host took less. Of what is called
    for other answers too, as many calls count as there are checks. Autograd's own checks have a rule of their own.
    """
    if not len(headline) or not len(operators):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps), ranks)
    table = operators.table[(operators.table["autograd"] != "backward") & operators.table["operator"].isin(_NAMES)]
    checks, spent_ns = _checks(table, steps_of_operators(steps, basis), least_checks)
    if spent_ns.empty:
        return []
    rank = int(spent_ns.idxmax())
    shares = host_shares(spent_ns, rank, basis, checked_pct)
    if shares is None:
        return []
    most_ns = shares.most_gained_ns(float(spent_ns[rank]), replay)
    if most_ns is None:
        return []
    loops = launch_loops.table
    asking = loops[loops["loop"].astype("str").str.contains("|".join(CHECKS))]
    won = won_by_one_turn(asking, replay, shares, checks[rank] * basis.per, most_ns)
    return [
        Finding(
            severity=severity(shares.pct),
            title=Title(
                f"Rank {rank}'s host asks {basis.times(checks[rank] * basis.per)}, of one tensor after the other, "
                f"whether its values are finite, and reads each answer back: {time_text(float(spent_ns[rank]))} "
                f"{basis.a_step}, {shares.pct:.1f} % {basis.of_a_step}{shares.also(places)}.",
                *once("Asked once for all", won, basis),
            ),
            evidence=plain(table.loc[table["rank"] == rank, ["rank", "operator", "calls", "host_total_ns"]]),
            recommendation="Ask once for all tensors, and on the GPU: the norm that clip_grad_norm_ returns is not "
            "finite where any gradient is not; read it every N steps.",
            caveat="A profiler slows the host.",
            gain_ns=won.gain_ns,
            gain_is_bound=won.is_bound,
            unprofiled_gain_ns=won.unprofiled_ns,
            is_of_hosts=True,
            named=shares.named(rank),
            table="operators",
            is_to_do_first=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def _checks(table: pd.DataFrame, per: pd.Series, least: int) -> tuple[pd.Series, pd.Series]:
    """Of each rank that makes many: how many a step, and its host's time in them and in their answers."""
    by_name = table.groupby(["rank", "operator"])[["calls", "host_total_ns"]].sum().astype("float64")
    calls, host_ns = (by_name[name].unstack().reindex(columns=_NAMES) for name in by_name.columns)  # noqa: PD010 - no row twice
    checks = calls[[*CHECKS]].sum(axis=1)
    as_many = (1 / calls).mul(checks, axis=0).clip(upper=1.0)
    a_step = (checks / per).reindex(checks.index)
    is_many = (a_step >= least) & (calls["aten::item"] >= least * per.reindex(checks.index))
    return a_step[is_many], ((host_ns * as_many).sum(axis=1) / per)[is_many.index[is_many]]
