"""What findings may say where the capture tells less than it seems to: some of them nothing, others a bound."""

from dataclasses import replace

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.integrity.step_numbers import SHIFTED
from traceanalyzer.analyses.integrity.untrue import untrue_ranks
from traceanalyzer.findings.capture import (
    absent_stages,
    fitness,
    late_start,
    missing_straggler,
    spoilt,
    unmatched,
    warm_up,
)
from traceanalyzer.findings.communication import more_exchanges
from traceanalyzer.findings.devices import memory_limits
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.findings import named_ranks
from traceanalyzer.findings.hosts import slow_hosts, unknown_idle
from traceanalyzer.findings.uneven import balance, uneven_steps, within_steps
from traceanalyzer.findings.won import as_bound, without_gains


def within_limits(findings: list[Finding], results: Results) -> list[Finding]:
    """Those that hold of what was recorded, and as far as they do; their titles are said for good."""
    held = _held_to_capture(_of_same_steps(_of_whole_files(_of_one_capture(findings), results), results))
    return [replace(item, title=str(item.title)) for item in held]


def _of_one_capture(findings: list[Finding]) -> list[Finding]:
    """Without what holds ranks against each other, and without gains, where they were not recorded together."""
    if not any(item.rule == fitness.recorded_apart.__name__ for item in findings):
        return findings
    held = [item for item in findings if item.is_about_capture or not (item.ranks or item.rule in _COMPARING)]
    return [_without_gain(item) for item in held]


def _without_gain(finding: Finding) -> Finding:
    """What a rank needs is so all the same; what the job would gain by less, nobody knows."""
    title = without_gains(finding.title)
    return replace(finding, title=title, gain_ns=None, gain_error_ns=None, unprofiled_gain_ns=None)


def _of_whole_files(findings: list[Finding], results: Results) -> list[Finding]:
    """Without what is said of ranks whose files lack operations, or tell times that cannot be; of all without any."""
    if not {"integrity", "headline"} <= {*results}:
        return findings
    without = spoilt.spoilt_ranks(results["headline"], results["integrity"])
    if any(item.rule == spoilt.lost_operations.__name__ for item in findings):
        findings = [item for item in findings if _is_of_files(item) or not (item.is_of_ideal or item.is_of_hosts)]
    if untrue_ranks(results["integrity"].to_frame()):
        findings = [item for item in findings if item.rule not in _OF_TIMES]
    if without and without >= {*results["headline"].to_frame()["rank"]}:
        return [item for item in findings if _is_of_files(item)]
    return [item for item in findings if _is_of_files(item) or not without & set(named_ranks([item]))]


def _of_same_steps(findings: list[Finding], results: Results) -> list[Finding]:
    """Without what holds single steps of ranks against each other, where one number is another step on some rank."""
    if "integrity" not in results or SHIFTED not in set(results["integrity"].to_frame()["check"]):
        return findings
    return [item for item in findings if item.rule not in _BY_STEP and not (item.steps and item.ranks)]


_BY_STEP = tuple(rule.__name__ for rule in (uneven_steps.uneven_steps, within_steps.waits_within_steps))
"""Rules that hold each step of a rank against the same one of others."""


def _is_of_files(finding: Finding) -> bool:
    """It says what the capture cannot tell, and does not rest on the time of hosts."""
    return finding.is_about_capture and not finding.is_of_hosts


_OF_TIMES = tuple(
    rule.__name__
    for rule in (
        warm_up.warm_up,
        late_start.late_start,
        fitness.clock_step,
        fitness.no_complete_step,
        missing_straggler.missing_straggler,
        absent_stages.absent_stage,
        unmatched.unmatched_calls,
        unknown_idle.unknown_idle,
    )
)
"""Rules about the capture that rest on its times, over all ranks: damaged ones tell nothing."""


_SPOILING = tuple(
    rule.__name__
    for rule in (
        warm_up.warm_up,
        late_start.late_start,
        fitness.clock_step,
        missing_straggler.missing_straggler,
        absent_stages.absent_stage,
        fitness.silent_rank,
        spoilt.lost_operations,
    )
)
"""Rules that find means, waits or lengths to be other than the job's."""


_COMPARING = tuple(rule.__name__ for rule in (balance.uneven_compute, uneven_steps.uneven_steps, slow_hosts.slow_hosts,
                                              slow_hosts.busy_hosts, memory_limits.uneven_memory,
                                              more_exchanges.more_exchanges))  # fmt: skip
"""Rules that hold ranks against each other, and name none as late."""

_OF_HOSTS_IN_ALL = tuple(rule.__name__ for rule in (slow_hosts.slow_hosts, slow_hosts.busy_hosts))
"""Rules whose figures are of all that was recorded, not of complete steps."""


def _held_to_capture(findings: list[Finding]) -> list[Finding]:
    """Where the capture tells less than it seems to, gains are bounds; what happens in a warm-up alone is not said.

    Nor are figures of hosts that are of the whole capture, the warm-up with them.
    """
    spoiling = [item for item in findings if item.rule in _SPOILING]
    if not spoiling:
        return findings
    cold = {step for item in spoiling for step in item.steps or ()}
    spoilt_rules = _OF_HOSTS_IN_ALL if cold else ()
    kept = (item for item in findings if item.is_about_capture or not item.steps or not {*item.steps} <= cold)
    kept = (item for item in kept if item.rule not in spoilt_rules)
    return [item if item.is_about_capture else _as_bound(item) for item in kept]


def _as_bound(finding: Finding) -> Finding:
    """The finding with a gain that is the most that can be won, in its words too."""
    return replace(finding, title=as_bound(finding.title), gain_is_bound=True)
