"""GPUs that idle for a reason that nobody recorded: the calls that launch work are not in the capture."""

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.integrity.integrity import Integrity
from traceanalyzer.analyses.integrity.integrity_checks import WITHOUT_LAUNCH
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.alike import also_on, with_others
from traceanalyzer.findings.basis import mean_steps, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_calls import calls_of
from traceanalyzer.findings.late.lateness import late_by
from traceanalyzer.findings.worst import as_idle, worst_rank
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import UNKNOWN

UNKNOWN_PCT = 10.0
"""Of a step, from which on the reason is missed."""

_MOSTLY = 0.5
"""Of a rank's operations without a launch, from which on that is why nothing is known."""


def unknown_idle(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    integrity: Integrity,
    episodes: Episodes,
    places: Places,
    ranks: Ranks,
    *,
    unknown_idle_pct: float = UNKNOWN_PCT,
) -> list[Finding]:
    """Over 10 % of a step is idle without a cause, on ranks most of whose operations have no launch in the capture."""
    worst = worst_rank(headline, steps, idle, UNKNOWN.column, unknown_idle_pct)
    if worst is None:
        return []
    rank, cost_ns, share, basis = worst
    checks = integrity.to_frame()
    held = checks[(checks["check"] == WITHOUT_LAUNCH) & checks["rank"].notna()]
    blind = {*held.loc[held["count"] >= _MOSTLY * held["total"].astype("float64"), "rank"].astype("int64")}
    if rank not in blind:
        return []
    mean = mean_steps(idle, basis, [UNKNOWN.column, "window_ns"])
    same = mean.index[as_idle(mean, UNKNOWN.column, unknown_idle_pct) & mean.index.isin(blind)]
    why, recommendation = calls_of(ranks, rank)
    return [
        Finding(
            severity=severity(share),
            title=f"Why rank {rank}'s GPU idles cannot be told: {time_text(cost_ns)}, {share:.0f} % "
            f"{basis.of_a_step}, for {why}"
            f"{also_on(same, mean.index, places)}.",
            evidence=tuple({"rank": int(one), "unknown_ns": round(mean.loc[one, UNKNOWN.column])} for one in same),
            recommendation=recommendation,
            is_about_capture=True,
            named=with_others(rank, same, mean.index),
            table="idle",
            part_of=late_by(episodes, rank, UNKNOWN.key),
        )
    ]
