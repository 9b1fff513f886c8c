"""The rule about one process whose GPUs compute one after the other, as where a model's layers are spread over them."""

import pandas as pd

from traceanalyzer.analyses.host.sync_calls import SyncCalls
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import Basis, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.quantities import time_text

_AT_ONCE = 1.1
"""GPUs at work on average, of those that take turns: one, and a tenth more for what they hand over."""

_WAITED = 0.5
"""Of the time in which GPUs idle, so much within calls in which the host waits for another one."""


def gpus_in_turn(headline: Headline, steps: Steps, sync_calls: SyncCalls, ranks: Ranks) -> list[Finding]:
    """One process drives several GPUs, of which one works at a time: its host waits in calls while the others idle.

    A call that waits returns once nothing runs: while it lasts and a GPU idles, another one works.
    """
    if not take_turns(headline, steps, sync_calls, ranks):
        return []
    basis, table = Basis.of(headline, steps), headline.table
    idle_ns = _idle_in_calls_ns(basis, sync_calls)
    rank, count = int(idle_ns.idxmax()), len(table)
    cost_ns, share = float(idle_ns.max()) / basis.per, 100.0 * float(idle_ns.max()) / float(basis.window_ns[rank])
    what = "both GPUs" if count == 2 else f"all {count:,} GPUs"
    return [
        Finding(
            severity=severity(share),
            title=f"One process drives {what}, and they take turns: while its host waits for one, rank {rank}'s idles "
            f"{time_text(cost_ns)}, {share:.0f} % {basis.of_a_step}; {_at_work(headline):.2g} of them work at a time.",
            evidence=plain(table[["rank", "window_ns", "compute_ns", "idle_ns"]]),
            recommendation="Layers that are spread over GPUs (device_map, .to() between them) run one after the other. "
            "Let GPUs work at once: a whole model on each with a process of its own (DistributedDataParallel), shards "
            "of every layer (FSDP, tensor parallelism), or several batches under way (a pipeline). What fits one GPU "
            "is fastest on one.",
            gain_ns=round(cost_ns),
            named=(rank,),
            is_of_ideal=True,
            table="sync_calls",
        )
    ]


def take_turns(headline: Headline, steps: Steps, sync_calls: SyncCalls, ranks: Ranks) -> bool:
    """Whether one process's GPUs work one at a time, and its host waits for them meanwhile."""
    if not ranks.is_one_process or len(headline) < 2 or not len(sync_calls) or _at_work(headline) > _AT_ONCE:
        return False
    waited_ns = _idle_in_calls_ns(Basis.of(headline, steps), sync_calls)
    return bool(waited_ns.sum() >= _WAITED * headline.table["idle_ns"].sum() > 0)


def _at_work(headline: Headline) -> float:
    """How many GPUs are at work on average."""
    table = headline.table
    return float((1 - table["idle_ns"] / table["window_ns"]).sum())


def _idle_in_calls_ns(basis: Basis, sync_calls: SyncCalls) -> pd.Series:
    """By rank: idle within calls that wait, in the steps that are counted."""
    table = basis.within(sync_calls.table)
    return table.groupby("rank")["idle_in_call_ns"].sum()
