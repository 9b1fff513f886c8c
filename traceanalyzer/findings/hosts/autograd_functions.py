"""The rule about functions of one's own for autograd, each call of which takes a host as long as launching dozens."""

import re

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_shares import host_shares, most_gained_ns
from traceanalyzer.findings.hosts.host_words import HOST_PCT
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.worst import worst_rank
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import digits, time_text
from traceanalyzer.meaning.vocabulary import HOST

FUNCTION_NS = 400_000
"""Of a host for a call: an operator of one kernel takes it some ten times less, a profiler's part of that included."""

FUNCTION_PCT = 20.0
"""Of a step, by the longest such function of each pass together."""

_LEAST_CALLS = 10
"""Of a step: what is called less often may be a block of the model, or the model."""

# Operators of libraries, backward nodes of these (they may compute a whole block again), hooks, what holds a pass.
_NO_FUNCTION = re.compile(r"::|Backward\d+$|(?:Pre|Post)(?:Forward|Backward)|Checkpoint|Compiled|^## ")

_SUMS = ["calls", "host_total_ns", "gpu_ops", "gpu_total_ns"]

_ADVICE = "Let one kernel do what {} does in many operations (torch.compile, or an implementation of its own)."

_OF_SYNC_BN = (
    "Keep SyncBatchNorm where a GPU's own batch is too small to tell mean and variance; "
    "elsewhere torch.nn.BatchNorm needs one kernel and no exchange, and GroupNorm or LayerNorm none either."
)


def autograd_functions(
    headline: Headline, steps: Steps, idle: Idle, operators: Operators, episodes: Episodes, places: Places,
    replay: Replay, ranks: Ranks, *, function_ns: int = FUNCTION_NS, function_pct: float = FUNCTION_PCT,
    host_idle_pct: float = HOST_PCT,
) -> list[Finding]:  # fmt: skip
    """Where GPUs wait for hosts: an autograd function takes them 0.4 ms a call, 20 % of a step with its backward.

    They launch nothing themselves, what they call does; ten times a step and more. Of those that lie in each other the
    longest of each pass is told. Not where the job would be no quicker if these hosts took no time at all.
    """
    worst = worst_rank(headline, steps, idle, HOST.column, host_idle_pct)
    if worst is None or not len(operators):
        return []
    rank, basis = worst[0], basis_of_operators(steps, worst[3], ranks)
    table = _functions(operators, steps_of_operators(steps, basis), function_ns)
    shares = host_shares(table.groupby("rank")["a_step_ns"].sum(), rank, basis, function_pct)
    if shares is None:
        return []
    gain = gain_of(replay, Change("host", 0.0, frozenset(shares.ranks)))
    own = table[table["rank"] == rank]
    total_ns = float(own["a_step_ns"].sum())
    most_ns = most_gained_ns(total_ns, gain)
    if most_ns is None:
        return []
    return [
        Finding(
            severity=severity(shares.pct),
            title=f"Rank {rank}'s host takes {time_text(total_ns)} {basis.a_step} for autograd's "
            f"{'functions' if len(own) > 1 else 'function'} {_listed(own, basis)}: {shares.pct:.0f} % "
            f"{basis.of_a_step}{shares.also(places)}.",
            evidence=plain(own[["rank", "operator", "autograd", "calls", "host_total_ns", "gpu_total_ns"]]),
            recommendation=_advice(str(own.iloc[0]["operator"])),
            caveat="A profiler slows the host, most where it launches many small operations.",
            gain_ns=most_ns,
            is_of_hosts=True,
            named=shares.named(rank),
            table="operators",
            is_to_do_first=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def _functions(operators: Operators, per: pd.Series, least_ns: int) -> pd.DataFrame:
    """Of each rank and pass the function that takes its host longest, of those that take it long a call."""
    table = operators.table[["rank", "operator", "autograd", *_SUMS]].dropna(subset=_SUMS)
    each = table["rank"].map(per).astype("float64")
    table = table.assign(a_step_ns=table["host_total_ns"].astype("float64") / each, a_step=table["calls"] / each)
    is_told = (table["gpu_ops"] == 0) & (table["gpu_total_ns"] > 0) & (table["a_step"] >= _LEAST_CALLS)
    is_told &= table["host_total_ns"] >= least_ns * table["calls"]
    is_told &= ~table["operator"].astype(str).str.contains(_NO_FUNCTION)
    held = table[is_told].sort_values("a_step_ns", ascending=False, kind="stable")
    return held.drop_duplicates(["rank", "autograd"])


def _listed(own: pd.DataFrame, basis: Basis) -> str:
    """`SyncBatchNorm (30 times a step, 1.1 ms each) and SyncBatchNormBackward (…)`."""
    said = [
        f"{short_name(row['operator'])} ({digits(row['a_step'])} times {basis.a_step}, "
        f"{time_text(row['a_step_ns'] / row['a_step'])} each)"
        for row in own.to_dict("records")
    ]
    return " and ".join(said)


def _advice(name: str) -> str:
    return _OF_SYNC_BN if "SyncBatchNorm" in name else _ADVICE.format(short_name(name))
