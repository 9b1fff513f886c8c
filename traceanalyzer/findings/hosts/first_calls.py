"""The rule about calls that take long only when they are first made: a cold capture."""

import pandas as pd

from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.host.first_calls import FirstCalls
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.alike import also_on, with_others
from traceanalyzer.findings.basis import LEAST_GAIN_PCT, Basis, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text

_MOST_ROWS = 8


def first_calls(headline: Headline, steps: Steps, first_calls: FirstCalls, places: Places) -> list[Finding]:
    """GPUs idle for over 1 % of the time in calls that take far longer than the same calls later."""
    if not len(headline) or not len(first_calls):
        return []
    basis = Basis.of(headline, steps)
    table = basis.within(first_calls.table)
    idle_ns = table.groupby("rank")["idle_ns"].sum().astype("float64")
    found = basis.largest_share(idle_ns / basis.per, LEAST_GAIN_PCT)
    if found is None:
        return []
    rank, shares = found
    own = table[table["rank"] == rank].sort_values("idle_ns", ascending=False, kind="stable")
    alike = shares.index[shares >= LEAST_GAIN_PCT]
    return [
        Finding(
            severity=severity(float(shares[rank])),
            title=f"First-call work on rank {rank}: {_what(own)}. The GPU idles {time_text(float(idle_ns[rank]))} for "
            f"it, {shares[rank]:.0f} % of {'the capture' if basis.steps is None else 'all steps'}"
            f"{also_on(alike, shares.index, places)}.",
            evidence=plain(own.head(_MOST_ROWS)),
            recommendation="Record after the first calls: some steps (or requests) of warm-up before the recording, "
            "torch.profiler.schedule(wait=1, warmup=3, active=3). Later calls of these functions return at once.",
            is_about_capture=True,
            named=with_others(rank, alike, shares.index),
            table="first_calls",
        )
    ]


def _what(own: pd.DataFrame) -> str:
    """`kernel modules load in 30 calls of hipLaunchKernel`; of other calls which one blocks the CPU, and when."""
    loading = own[own["loads"].astype(bool)]
    if 2 * loading["idle_ns"].sum() >= own["idle_ns"].sum():
        names = loading.groupby("name")["idle_ns"].sum()
        calls = int(loading["calls"].sum())
        return f"kernel modules load in {calls} call{'s' if calls > 1 else ''}, most of {names.idxmax()}"
    row = own.iloc[0]
    place = "" if pd.isna(row["operator"]) else f" ({short_name(row['operator'])})"
    often = "once" if row["calls"] == 1 else f"{row['calls']} times"
    return f"{row['name']}{place} blocks the CPU {often}, {time_text(int(row['since_ns']))} into the recording"
