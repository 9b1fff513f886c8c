"""In which order findings are read: what the capture cannot tell, then the severest causes, then what gains most."""

from collections.abc import Iterable

from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.severities import SEVERITIES


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings, first to read first.

    What the capture cannot tell goes before advice, but for hosts that are late by the recording alone. Of the same
    severity come first gains that a replay forecasts, then those that are the most that can be won, last distances from
    an ideal and what gains nothing or an unknown amount; of each what gains most without the profiler.
    """
    return sorted(findings, key=_key)


def _key(finding: Finding) -> tuple[bool, int, bool, bool, bool, int]:
    gain_ns = finding.expected_ns
    is_least = bool(gain_ns) and not (finding.gain_is_bound or finding.is_of_ideal)
    return (
        not finding.is_about_capture or finding.is_of_hosts,
        SEVERITIES.index(finding.severity),
        not is_least,
        finding.is_of_ideal or gain_ns == 0,
        gain_ns is None,
        -(gain_ns or 0),
    )
