"""Rules about ranks that do not get equal work."""

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.findings.basis import Basis, milliseconds, per_step, plain, severity
from traceanalyzer.findings.finding import Finding

IMBALANCE_PCT = 10.0
"""A rank that computes longer than the mean by this share of a step is worth a finding."""


def uneven_compute(
    headline: Result,
    steps: Result,
    stragglers: Result,
    pipeline: Result,
    call_waits: Result,
    instances: Result,
    *,
    imbalance_pct: float = IMBALANCE_PCT,
) -> list[Finding]:
    """One rank computes longer than the others, and no rule that measured waits or stages says so already.

    It matters most where waits cannot be measured: experts with uneven all-to-alls.
    """
    frame = headline.to_frame().set_index("rank")
    if len(frame) < 2 or len(pipeline):
        return []
    basis = Basis.of(headline, steps)
    compute = frame["compute_ns"].astype("int64") / basis.per
    rank = int(compute.idxmax())
    excess_ns = compute.max() - compute.mean()
    window = frame["window_ns"].astype("int64") / basis.per
    if 2 * (window[rank] - window.mean()) > excess_ns:  # its window is longer: more of the same work lies in it
        return []
    share = 100.0 * excess_ns / basis.mean_ns(rank) if basis.mean_ns(rank) else 0.0
    known = stragglers.to_frame()
    is_said = bool(((known["rank"] == rank) & (known["cause"] == "compute")).any())
    if share < imbalance_pct or is_said:
        return []
    least = int(compute.idxmin())
    rows = frame.reset_index()[["rank", "basis", "compute_ns", "exposed_comm_ns", "idle_ns"]]
    per = "" if basis.steps is None else " a step"
    calls = basis.within(call_waits.to_frame())
    calls = calls[(calls["rank"] == least) & calls["transfer_ns"].isna()]
    return [
        Finding(
            rule="uneven_compute",
            severity=severity(share),
            title=f"Rank {rank} computes {milliseconds(compute[rank])}{per}, rank {least} only "
            f"{milliseconds(compute[least])}{_sits_in(calls, compute[rank] - compute[least], basis, least)}.",
            evidence=plain(per_step(rows, ["compute_ns", "exposed_comm_ns", "idle_ns"], basis.steps)),
            recommendation="Even out the work: tokens or experts over ranks, lengths of sequences, samples of a batch.",
            caveat=f"What can be won is what rank {rank} computes beyond the mean rank. How much of the communication "
            f"is waiting, its durations do not tell: uneven all-to-alls, one root.{apart(instances, basis)}",
            gain_ns=round(excess_ns),
            interval_ns=_longest(calls),
        )
    ]


def apart(instances: Result, basis: Basis) -> str:
    """A sentence on how far apart the ranks enter calls whose waits are not known; empty without a common clock."""
    frame = basis.within(instances.to_frame())
    own = frame[frame["transfer_ns"].isna() & frame["skew_ns"].notna()]
    if own.empty:
        return ""
    total = f"{milliseconds(own['skew_ns'].sum() / basis.per)}{'' if basis.steps is None else ' a step'}"
    each = milliseconds(own["skew_uncertainty_ns"].max())
    return f" By the clocks the last rank enters {len(own)} of them {total} after the first, summed, each ± {each}."


def _sits_in(calls: pd.DataFrame, missing_ns: float, basis: Basis, rank: int) -> str:
    """Where a rank spends the time that it does not compute, if it is in calls whose waits are not known."""
    lengths = (calls["end_ns"] - calls["start_ns"]).groupby(calls["collective"]).sum() / basis.per
    if lengths.empty or lengths.max() < missing_ns / 2:
        return ""
    share = 100 * lengths.max() / basis.mean_ns(rank)
    name = str(lengths.idxmax()).replace("_", "-")
    return f" and sits in {name} for {milliseconds(lengths.max())}, {share:.0f} % {basis.of_a_step}"


def _longest(calls: pd.DataFrame) -> tuple[int, int] | None:
    if calls.empty:
        return None
    longest = calls.loc[(calls["end_ns"] - calls["start_ns"]).idxmax()]
    return int(longest["start_ns"]), int(longest["end_ns"])
