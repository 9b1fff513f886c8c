"""What the figures say: rules that turn Results into findings with evidence and advice."""

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.integrity.step_numbers import SHIFTED
from traceanalyzer.failures import Failure
from traceanalyzer.findings.capture import absent_stages, fitness, missing_straggler, spoilt, unmatched, warm_up
from traceanalyzer.findings.communication import (
    bandwidth,
    communication,
    contention,
    experts,
    exposed_collective,
    gathered_again,
    more_exchanges,
    redundant_exchanges,
    slow_pieces,
    wiring,
)
from traceanalyzer.findings.devices import (
    copies,
    copy_bound,
    efficiency,
    layouts,
    memory,
    memory_limits,
    other_copies,
    recomputing,
    written_out,
)
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.findings import Findings
from traceanalyzer.findings.folding import folded
from traceanalyzer.findings.hosts import (
    blocking_launches,
    checked_gradients,
    drained,
    host_work,
    hosts,
    idle,
    inference,
    silent_hosts,
    slow_hosts,
    slow_operators,
    unknown_idle,
)
from traceanalyzer.findings.late import lateness, other_work
from traceanalyzer.findings.order import error_of_mean_step_ns, ordered
from traceanalyzer.findings.pipelines import outside_microbatches, pipeline, uneven_stages
from traceanalyzer.findings.uneven import balance, hidden, other_gpus, uneven_steps, within_steps, without_work
from traceanalyzer.forks import all_aside

__all__ = ["RULES", "Finding", "Findings", "Rule", "find", "named_ranks"]


Rule = Callable[..., list[Finding]]

RULES: tuple[Rule, ...] = (
    fitness.recorded_apart,
    missing_straggler.missing_straggler,
    absent_stages.absent_stage,
    unmatched.unmatched_calls,
    fitness.clock_step,
    warm_up.warm_up,
    fitness.silent_rank,
    spoilt.lost_operations,
    fitness.no_complete_step,
    fitness.whole_graphs,
    spoilt.cut_files,
    other_gpus.shared_gpu,
    spoilt.impossible_times,
    unknown_idle.unknown_idle,
    blocking_launches.blocking_launches,
    slow_hosts.slow_hosts,
    slow_hosts.eager_hosts,
    slow_hosts.busy_hosts,
    other_gpus.other_gpus,
    outside_microbatches.outside_microbatches,
    uneven_stages.pipeline_imbalance,
    pipeline.pipeline_bubble,
    lateness.late_ranks,
    balance.uneven_compute,
    uneven_steps.uneven_steps,
    within_steps.waits_within_steps,
    without_work.ranks_without_work,
    without_work.ranks_without_compute,
    experts.uneven_experts,
    other_work.other_work,
    other_copies.other_copies,
    redundant_exchanges.redundant_exchanges,
    gathered_again.gathered_again,
    more_exchanges.more_exchanges,
    slow_pieces.slow_pieces,
    communication.little_overlap,
    exposed_collective.exposed_collective,
    contention.contention,
    bandwidth.low_bandwidth,
    wiring.log_of_another_run,
    communication.many_small_collectives,
    inference.launch_bound_iterations,
    drained.drained_queues,
    hosts.host_bound,
    host_work.cpu_work,
    checked_gradients.checked_gradients,
    slow_operators.slow_operators,
    silent_hosts.silent_hosts,
    idle.short_kernels,
    idle.synchronising_calls,
    idle.data_loader,
    hidden.hidden_late,
    copy_bound.copy_bound,
    copies.pageable_copies,
    copies.serial_blocks,
    efficiency.tensor_cores_unused,
    layouts.layout_conversions,
    written_out.written_out_attention,
    efficiency.memory_bound_kernels,
    efficiency.low_mfu,
    recomputing.recomputed_activations,
    memory.memory_growth,
    memory_limits.low_headroom,
    memory_limits.allocator_retries,
    memory_limits.uneven_memory,
)
"""Each takes the Results that it names as parameters; thresholds are keyword arguments with defaults."""


def find(results: Results, failures: list[Failure] | None = None, *, processes: int = 1) -> tuple[Finding, ...]:
    """All findings, one for each cause: severest first, of those what gains most; an unknown gain outranks none.

    Distances from an ideal come after causes of the same severity that can be mended, and after those of medium
    severity whose gain is known.

    With a list of what could not be computed, rules that need it are left out, and rules that fail are added to it.
    With `processes` forks of this one look for a share of them, where it can be forked.
    """
    found = [finding for made in _of_rules(results, failures, processes) for finding in made]
    held = _held_to_capture(_of_same_steps(_of_whole_files(_of_one_capture(found), results), results))
    error_ns = error_of_mean_step_ns(results["headline"]) if "headline" in results else 0.0
    return tuple(ordered([_by_gain(item) for item in folded(held)], error_ns))


def _of_one_capture(findings: list[Finding]) -> list[Finding]:
    """Without what holds ranks against each other, where they were not recorded together."""
    if not any(item.rule == fitness.recorded_apart.__name__ for item in findings):
        return findings
    return [item for item in findings if item.is_about_capture or not (item.ranks or item.rule in _COMPARING)]


def _of_whole_files(findings: list[Finding], results: Results) -> list[Finding]:
    """Without what is said of ranks whose files lack operations, or tell times that cannot be; of all without any."""
    if not {"integrity", "headline"} <= {*results}:
        return findings
    without = spoilt.spoilt_ranks(results["headline"], results["integrity"])
    if any(item.rule == spoilt.lost_operations.__name__ for item in findings):
        findings = [item for item in findings if _is_of_files(item) or not (item.is_of_ideal or item.is_of_hosts)]
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


_SPOILING = tuple(
    rule.__name__
    for rule in (
        warm_up.warm_up,
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
    title = re.sub(r"(Mended, [a-z ]+ is )(?!at most )", r"\1at most ", finding.title)
    return replace(finding, title=title, gain_is_bound=True)


def _by_gain(finding: Finding) -> Finding:
    """Nothing to gain is nothing to do first: such a finding is of low severity, with its signs as they are."""
    if finding.expected_ns != 0 or finding.is_about_capture or finding.severity == "info":
        return finding
    return replace(finding, severity="low")


def named_ranks(findings: Iterable[Finding]) -> list[int]:
    """The ranks that findings name, in their order: those that they blame, then all that their words speak of."""
    found: list[int] = []
    for finding in findings:
        words = " ".join([finding.title, finding.about or "", *(item.title for item in finding.also)])
        found += [*finding.ranks, *(int(rank) for named in _NAMED.findall(words) for rank in _NUMBER.findall(named))]
    return list(dict.fromkeys(found))


_NAMED = re.compile(r"\brank \d+\b|\branks \d+\b(?:(?:, | and )\d+\b)*(?!,\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


_MOST = 4
"""Processes that share the rules: each takes some milliseconds."""


def _of_rules(results: Results, failures: list[Failure] | None, processes: int) -> list[list[Finding]]:
    """What each rule finds; what fails in a fork is tried again here, where it is noted."""
    shares = max(1, min(processes, _MOST))
    lost = list(failures or ())

    def tried(share: int) -> dict[int, list[Finding]]:
        found: dict[int, list[Finding]] = {}
        for place in range(share, len(RULES), shares):
            noted = lost.copy()
            made = _of_rule(RULES[place], results, noted)
            found |= {place: made} if noted == lost else {}
        return found

    begun = all_aside([partial(tried, share) for share in range(1, shares)], processes=processes)
    own = {place: _of_rule(RULES[place], results, failures) for place in range(0, len(RULES), shares)}
    for wait in begun:
        own |= wait()
    return [own[place] if place in own else _of_rule(rule, results, failures) for place, rule in enumerate(RULES)]


def _of_rule(rule: Rule, results: Results, failures: list[Failure] | None) -> list[Finding]:
    needed = _needed(rule, results)
    lost = {name for failure in failures or () for name in (failure.name, *failure.left_out)}
    if lost & set(needed):
        return []
    try:
        return [replace(finding, rule=rule.__name__, sources=tuple(needed)) for finding in rule(**needed)]
    except Exception as error:
        if failures is None:
            raise
        failures.append(Failure.of(rule.__name__, f"Rule {rule.__name__}", error))
        return []


def _needed(rule: Rule, results: Results) -> dict[str, Result]:
    return {name: results[name] for name in _results_of(rule)}


@cache
def _results_of(rule: Rule) -> tuple[str, ...]:
    """The Results that it names; thresholds have defaults."""
    return tuple(one.name for one in inspect.signature(rule).parameters.values() if one.default is one.empty)
