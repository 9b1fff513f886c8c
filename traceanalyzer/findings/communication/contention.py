"""Overlap is not free: kernels beside communication take longer than the same kernels alone."""

from traceanalyzer.analyses.replay.change import ALONE, Change
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, severity
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.won import Title, Won

_SURE = 2
"""Times the replay's error."""


def contention(
    headline: Headline,
    steps: Steps,
    replay: Replay,
    *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """Compute at the speed of the same kernels without communication beside them: a step shorter by over 3 %."""
    if not len(headline):
        return []
    gain = gain_of(replay, Change("compute", ALONE))
    if gain is None or not gain.before_ns:
        return []
    share = gain.gain_pct
    if share < clear_gain_pct or gain.gain_ns < _SURE * gain.error_ns:
        return []
    of = Basis.of(headline, steps).whole
    return [
        Finding(
            severity=severity(share),
            title=Title(
                f"Compute is slower beside communication: with the same kernels as fast as alone, {of} would be ",
                Won.recorded(gain),
                f" ({share:.0f} %).",
            ),
            recommendation="Give communication fewer multiprocessors of the GPU (NCCL_MAX_CTAS, collectives by copy "
            "engines), or move it beside kernels that leave some free; compare a step with less overlap.",
            caveat="Each kernel is compared with the median of the same work (kernel, operator, shapes and element "
            "types) without communication beside it. Not both can be had: communication that no compute hides costs "
            "time itself.",
            **gained(gain),
            is_of_ideal=True,
        )
    ]
