"""In which order findings are read: what the capture cannot tell, then the severest causes, then what gains most."""

from collections.abc import Sequence
from itertools import groupby

from traceanalyzer.analyses.replay.recording import RUN_TO_RUN
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.basis import LEAST_GAIN_PCT
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.severities import SEVERITIES

_SMALL = 0.1
"""Of the most that a severe ideal may gain: what gains less of a job as it is, is no reason to leave that for later."""


def ordered(findings: Sequence[Finding], error_ns: float = 0.0) -> list[Finding]:
    """Findings, first to read first; `error_ns` is how far a mean step is off by chance (`error_of_mean_step_ns`).

    What the capture cannot tell goes before advice. Hosts that are late by the recording alone are no reason to doubt a
    gain that holds without it: they come after. Distances from an ideal come after causes of the same severity that
    can be mended, and so does what gains nothing; an unknown gain outranks none. The gain of an ideal is the most that
    can be won, so however severe by that, it comes after causes of medium severity whose gain is no bound: of ranks
    unlike the others, which is a fault, or of a tenth of what the ideal may gain.

    Gains that differ by less than the error of either, than mean steps do by chance, or by a twentieth, as runs of one
    job do, are alike: of these what is said of ranks unlike the others is first, for that is a fault, not how the job
    is.
    """
    found: list[Finding] = []
    ideal_ns = max((_gain_ns(item) for item in findings if item.severity == "high" and item.is_of_ideal), default=0)
    for _, alike in groupby(
        sorted(findings, key=lambda item: (*_class(item, ideal_ns), -_gain_ns(item))),
        key=lambda item: _class(item, ideal_ns),
    ):
        left = list(alike)
        while left:
            most = left[0]
            near = [item for item in left if _gain_ns(most) - _gain_ns(item) <= _error_ns(most, item, error_ns)]
            first = next((item for item in near if item.ranks), most)
            found.append(first)
            left = [item for item in left if item is not first]
    return found


def error_of_mean_step_ns(headline: Headline) -> float:
    """How far the mean of the recorded steps is off by chance: their deviation over the root of their number.

    Of the ranks the median, and no less than a hundredth of a step, which is the least gain that is told; 0 where no
    two steps are complete.
    """
    table = headline.table
    held = table[table["steps"].notna() & table["step_std_ns"].notna()] if len(table) else table
    if held.empty:
        return 0.0
    steps = held["steps"].astype("float64")
    by_chance = (held["step_std_ns"].astype("float64") / steps**0.5).median()
    least = LEAST_GAIN_PCT / 100 * (held["window_ns"].astype("float64") / steps).median()
    return float(max(by_chance, least))


def _class(finding: Finding, ideal_ns: int) -> tuple[bool, int, bool, bool]:
    return (
        not finding.is_about_capture or finding.is_of_hosts,
        _place(finding, ideal_ns),
        finding.is_of_ideal or finding.expected_ns == 0,
        finding.expected_ns is None,
    )


def _place(finding: Finding, ideal_ns: int) -> int:
    """Severe causes, those of medium severity with a gain for sure, severe ideals, other medium ones, and the rest."""
    if finding.severity == "high":
        return 2 if finding.is_of_ideal else 0
    if finding.severity == "medium":
        is_sure = not finding.is_of_ideal and not finding.gain_is_bound and bool(finding.expected_ns)
        is_fault = bool(finding.ranks) or _gain_ns(finding) >= _SMALL * ideal_ns
        return 1 if is_sure and is_fault else 3
    return 2 + SEVERITIES.index(finding.severity)


def _gain_ns(finding: Finding) -> int:
    return finding.expected_ns or 0


def _error_ns(one: Finding, other: Finding, error_ns: float) -> float:
    from_run_to_run = RUN_TO_RUN * max(_gain_ns(one), _gain_ns(other))
    return max(error_ns, from_run_to_run, one.gain_error_ns or 0, other.gain_error_ns or 0)
