"""Rules about work that is done twice: activations that the backward pass computes again."""

import pandas as pd

from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_shares import most_gained_ns
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.model.tables import rows_where

RECOMPUTE_PCT = 5.0
"""Of a step: forward work that the backward pass does again, of a GPU, or of a host that decides."""

_MOST_ROWS = 5


def recomputed_activations(
    headline: Headline, steps: Steps, operators: Operators, replay: Replay, ranks: Ranks, *,
    recompute_pct: float = RECOMPUTE_PCT,
) -> list[Finding]:  # fmt: skip
    """Operators that autograd runs again in its backward pass keep a GPU busy for 5 % of a step or more.

    Or the host, where the job would be quicker if hosts took no time. Those of compiled graphs are not told apart by
    their pass, and not counted.
    """
    if not len(headline) or not len(operators):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    own = rows_where(operators.table, operators.table["autograd"] == "recompute")
    sums = own.groupby("rank")[["gpu_own_ns", "host_self_ns"]].sum().astype("float64")
    # Of ranks without operators, and of hosts that were not recorded, there is none.
    again = sums.div(steps_of_operators(steps, basis), axis=0).reindex(basis.window_ns.index).fillna(0.0)
    if again.empty:
        return []
    hosts = gain_of(replay, Change("host", 0.0))  # without it, whether they decide is not known
    of_hosts = [(most_gained_ns(each, hosts) if hosts else None) or 0 for each in again["host_self_ns"]]
    gained = pd.DataFrame({"gpu": again["gpu_own_ns"], "host": of_hosts})
    found = basis.largest_share(gained.max(axis=1), recompute_pct)
    if found is None:
        return []
    rank, _ = found
    costs = _costs(again.loc[rank], rank, basis, basis_of_operators(steps, Basis.of(headline, steps), ranks))
    rows = own[own["rank"] == rank].head(_MOST_ROWS)
    others = again.drop(index=rank)
    alone = ", the others do none" if len(others) and not others.to_numpy().any() else ""
    return [
        Finding(
            severity="low",
            title=f"The backward pass computes activations again: {costs}{alone}.",
            evidence=plain(rows[["rank", "operator", "autograd", "calls", "gpu_own_ns", "host_self_ns"]]),
            recommendation="Where memory allows, checkpoint fewer blocks, or only what is cheap to compute again "
            "(selective activation checkpointing); compare the step with checkpointing off.",
            caveat="Checkpointing takes this time to save memory: what it saves, the trace does not say.",
            gain_ns=round(gained.loc[rank].max()),
            is_of_hosts=bool(gained.loc[rank].idxmax() == "host"),
            named=(rank,),
            table="operators",
        )
    ]


def _costs(again: pd.Series, rank: int, basis: Basis, recorded: Basis) -> str:
    """`3.89 ms of rank 0's GPU work, 6 % of a step, and 13 ms of its host's, 19 %`; a host's of nothing is left out."""
    wholes = {"gpu_own_ns": basis.mean_ns(rank), "host_self_ns": recorded.mean_ns(rank)}
    shares = {name: f"{100 * float(again[name]) / whole_ns:.0f} %" for name, whole_ns in wholes.items()}
    gpu = f"{time_text(again['gpu_own_ns'])} of rank {rank}'s GPU work, {shares['gpu_own_ns']} {basis.of_a_step}"
    host = f"{time_text(again['host_self_ns'])} of its host's, {shares['host_self_ns']}"
    return gpu if not again["host_self_ns"] else f"{gpu}, and {host}"
