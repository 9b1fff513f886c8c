"""Rules about ranks that do not get equal work."""

from traceanalyzer.analyses import Result
from traceanalyzer.findings.basis import Basis, milliseconds, per_step, plain, severity
from traceanalyzer.findings.finding import Finding

IMBALANCE_PCT = 10.0
"""A rank that computes longer than the mean by this share of a step is worth a finding."""


def uneven_compute(
    headline: Result, steps: Result, stragglers: Result, pipeline: Result, *, imbalance_pct: float = IMBALANCE_PCT
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
    rows = frame.reset_index()[["rank", "basis", "compute_ns", "exposed_comm_ns", "idle_ns"]]
    per = "" if basis.steps is None else " a step"
    return [
        Finding(
            rule="uneven_compute",
            severity=severity(share),
            title=f"Rank {rank} computes {milliseconds(excess_ns)}{per} longer than the mean rank, and "
            f"{milliseconds(compute.max() - compute.min())} longer than rank {int(compute.idxmin())}.",
            evidence=plain(per_step(rows, ["compute_ns", "exposed_comm_ns", "idle_ns"], basis.steps)),
            recommendation="Even out the work: tokens or experts over ranks, lengths of sequences, samples of a batch.",
            caveat="How much of it the others wait is not measured here: their communication may be of a kind whose "
            "waits cannot be told from transfers (uneven all-to-all, collectives with one root).",
            cost_ns=round(compute.max() - compute.min()),
        )
    ]
