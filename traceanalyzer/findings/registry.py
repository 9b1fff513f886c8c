"""Every rule, and how rules are asked."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from traceanalyzer.analyses import ANALYSES, Result, Results
from traceanalyzer.analyses.integrity.checks import SHIFTED
from traceanalyzer.analyses.integrity.integrity import untrue_ranks
from traceanalyzer.analyses.replay.changes import Change, Changeable, read_change
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.failures import Failure
from traceanalyzer.files.unnamed import give_back_grown
from traceanalyzer.findings import capture, pipelines, uneven_stages
from traceanalyzer.findings.basis import as_bound, without_gains
from traceanalyzer.findings.communication import experts, exposed, links, redundant
from traceanalyzer.findings.devices import copies, kernels, memory, unfused
from traceanalyzer.findings.finding import Finding, folded, named_ranks, ordered, sentences
from traceanalyzer.findings.hosts import cpu_work, idle, launch_bound, slow_hosts
from traceanalyzer.findings.savings import CUTS, Saves, saves_of
from traceanalyzer.findings.stragglers import stragglers
from traceanalyzer.findings.uneven import balance, hidden, slower_gpus
from traceanalyzer.findings.vendor_terms import (
    BY_MAKER,
    BY_PROGRAM,
    PLAIN,
    in_words,
    in_words_of,
    is_of_plain_program,
    maker_of,
)
from traceanalyzer.forks import all_aside
from traceanalyzer.meaning.vocabulary import INFO
from traceanalyzer.model.tables import texts_in_python

# Every rule.


Rule = Callable[..., list[Finding]]

RULES: tuple[Rule, ...] = (
    capture.recorded_apart,
    capture.missing_straggler,
    capture.absent_stage,
    capture.unmatched_calls,
    capture.ambiguous_calls,
    capture.clock_step,
    capture.warm_up,
    capture.late_start,
    slower_gpus.slower_at_first,
    capture.silent_rank,
    capture.lost_operations,
    capture.no_complete_step,
    capture.whole_graphs,
    capture.cut_files,
    slower_gpus.shared_gpu,
    capture.impossible_times,
    capture.shared_numbers,
    idle.unknown_idle,
    launch_bound.blocking_launches,
    slow_hosts.slow_hosts,
    slow_hosts.eager_hosts,
    slow_hosts.busy_hosts,
    slower_gpus.other_gpus,
    slower_gpus.shared_gpus,
    pipelines.outside_microbatches,
    uneven_stages.pipeline_imbalance,
    pipelines.pipeline_bubble,
    stragglers.late_ranks,
    balance.uneven_compute,
    slower_gpus.slower_alone,
    balance.uneven_steps,
    balance.longer_steps,
    balance.waits_within_steps,
    balance.ranks_without_work,
    balance.ranks_without_compute,
    experts.uneven_experts,
    stragglers.other_work,
    stragglers.work_beside,
    copies.other_copies,
    redundant.redundant_exchanges,
    redundant.gathered_again,
    redundant.more_exchanges,
    links.slow_pieces,
    exposed.little_overlap,
    exposed.exposed_collective,
    exposed.contention,
    links.low_bandwidth,
    exposed.log_of_another_run,
    exposed.many_small_collectives,
    launch_bound.first_calls,
    launch_bound.launch_bound_iterations,
    idle.drained_queues,
    launch_bound.host_bound,
    cpu_work.cpu_work,
    slow_hosts.last_to_cpu_collectives,
    slow_hosts.late_to_cpu_collectives,
    cpu_work.checked_gradients,
    cpu_work.checked_values,
    cpu_work.many_launches,
    cpu_work.compiling,
    cpu_work.slow_operators,
    launch_bound.autograd_functions,
    cpu_work.silent_hosts,
    idle.short_kernels,
    launch_bound.gpus_in_turn,
    idle.synchronising_calls,
    idle.data_loader,
    hidden.hidden_late,
    copies.small_copies,
    copies.copy_bound,
    copies.pageable_copies,
    copies.serial_blocks,
    copies.copies_at_times,
    kernels.tensor_cores_unused,
    kernels.double_precision,
    kernels.layout_conversions,
    unfused.written_out_attention,
    unfused.written_out_norms,
    unfused.unfused_optimizer,
    kernels.dense_embedding_gradients,
    kernels.sums_on_few_rows,
    kernels.one_hot_products,
    kernels.memory_bound_kernels,
    kernels.low_mfu,
    kernels.recomputed_activations,
    memory.memory_growth,
    memory.low_headroom,
    memory.allocator_retries,
    memory.uneven_memory,
)
"""Each takes the Results that it names as parameters; thresholds are keyword arguments with defaults."""


# How rules are asked: each with the Results that it names, and with the thresholds that a user sets.


_MOST = 4
"""Processes that share the rules: each takes some milliseconds."""

_OF_EPISODES = "late_gain_pct"


def thresholds_of_rules() -> dict[str, Any]:
    """Every threshold of a rule, by parameter name, with its default; rules with one of the same name mean the same."""
    return {one.name: one.default for rule in RULES for one in _parameters(rule) if one.default is not one.empty}


def kinds_of_rules() -> dict[str, Any]:
    """The same with the type of each."""
    return {one.name: one.annotation for rule in RULES for one in _parameters(rule) if one.default is not one.empty}


def results_of_rules() -> tuple[str, ...]:
    """Analyses whose Results rules name, and those by which the words of their advice are chosen."""
    named = {one.name for rule in RULES for one in _parameters(rule) if one.default is one.empty} | {
        *BY_MAKER,
        *BY_PROGRAM,
    }
    return tuple(name for name in ANALYSES if name in named)


def with_limits(results: Results, thresholds: Mapping[str, Any]) -> Results:
    """The Results for rules and for whoever speaks beside them, episodes with what is worth mending by these."""
    if _OF_EPISODES not in thresholds or "episodes" not in results:
        return results
    return results | {"episodes": replace(results["episodes"], worth_pct=thresholds[_OF_EPISODES])}


def of_rules(
    results: Results, failures: list[Failure] | None, processes: int, thresholds: Mapping[str, Any]
) -> list[list[Finding]]:
    """What each rule finds; what fails in a fork is tried again here, where it is noted."""
    shares = max(1, min(processes, _MOST))
    lost = list(failures or ())

    def tried(share: int) -> dict[int, list[Finding]]:
        found: dict[int, list[Finding]] = {}
        for place in range(share, len(RULES), shares):
            noted = lost.copy()
            made = _of_rule(RULES[place], results, noted, thresholds)
            found |= {place: made} if noted == lost else {}
        return found

    begun = all_aside([partial(tried, share) for share in range(1, shares)], processes=processes)
    own = {place: _of_rule(RULES[place], results, failures, thresholds) for place in range(0, len(RULES), shares)}
    for wait in begun:
        own |= wait()
    return [
        own[place] if place in own else _of_rule(rule, results, failures, thresholds)
        for place, rule in enumerate(RULES)
    ]


def _of_rule(
    rule: Rule, results: Results, failures: list[Failure] | None, thresholds: Mapping[str, Any]
) -> list[Finding]:
    needed = _needed(rule, results)
    lost = {name for failure in failures or () for name in (failure.name, *failure.left_out)}
    if lost & set(needed):
        return []
    given = {one.name: thresholds[one.name] for one in _parameters(rule) if one.name in thresholds}
    give_back_grown()
    try:
        return [replace(finding, rule=rule.__name__, sources=tuple(needed)) for finding in rule(**needed, **given)]
    except Exception as error:
        if failures is None:
            raise
        failures.append(Failure.of(rule.__name__, f"Rule {rule.__name__}", error))
        return []


def _needed(rule: Rule, results: Results) -> dict[str, Result]:
    """The Results that it names; thresholds have defaults."""
    return {one.name: results[one.name] for one in _parameters(rule) if one.default is one.empty}


@cache
def _parameters(rule: Rule) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(rule).parameters.values())


# What findings may say where the capture tells less than it seems to: some of them nothing, others a bound.


def within_limits(findings: list[Finding], results: Results) -> list[Finding]:
    """Those that hold of what was recorded, and as far as they do; their titles are said for good."""
    held = _held_to_capture(_of_same_steps(_of_whole_files(_of_one_capture(findings), results), results))
    return [_said(item) for item in held]


def _said(finding: Finding) -> Finding:
    """With its headline, and why without what is gained, which stands in a field of its own."""
    said = sentences(without_gains(finding.title))
    summary = finding.summary or sentences(str(finding.title))[0]
    rest = " ".join(said if finding.summary else said[1:])
    return replace(finding, title=str(finding.title), summary=summary, reason=finding.reason or rest)


def _of_one_capture(findings: list[Finding]) -> list[Finding]:
    """Without what holds ranks against each other, and without gains, where they were not recorded together."""
    if not any(item.rule == capture.recorded_apart.__name__ for item in findings):
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
    without = capture.spoilt_ranks(results["headline"], results["integrity"])
    if any(item.rule == capture.lost_operations.__name__ for item in findings):
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


_BY_STEP = tuple(rule.__name__ for rule in (balance.uneven_steps, balance.waits_within_steps))
"""Rules that hold each step of a rank against the same one of others."""


def _is_of_files(finding: Finding) -> bool:
    """It says what the capture cannot tell, and does not rest on the time of hosts."""
    return finding.is_about_capture and not finding.is_of_hosts


_OF_TIMES = tuple(
    rule.__name__
    for rule in (
        capture.warm_up,
        capture.late_start,
        capture.clock_step,
        capture.no_complete_step,
        capture.missing_straggler,
        capture.absent_stage,
        capture.unmatched_calls,
        idle.unknown_idle,
    )
)
"""Rules about the capture that rest on its times, over all ranks: damaged ones tell nothing."""


_SPOILING = tuple(
    rule.__name__
    for rule in (
        capture.warm_up,
        capture.late_start,
        capture.clock_step,
        capture.missing_straggler,
        capture.absent_stage,
        capture.silent_rank,
        capture.lost_operations,
    )
)
"""Rules that find means, waits or lengths to be other than the job's."""


_COMPARING = tuple(rule.__name__ for rule in (balance.uneven_compute, balance.uneven_steps, slow_hosts.slow_hosts,
                                              slow_hosts.busy_hosts, memory.uneven_memory,
                                              redundant.more_exchanges))  # fmt: skip
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


# All that is found in a run: what the rules say, one finding for each cause, in the order in which it is read.


def find(
    results: Results, failures: list[Failure] | None = None, *, processes: int = 1, **thresholds: Any
) -> tuple[Finding, ...]:
    """All findings, one for each cause: severest first, of those what gains most (`ordered`).

    With a list of what could not be computed, rules that need it are left out, and rules that fail are added to it.
    With `processes` forks of this one look for a share of them, where it can be forked. Thresholds are those of rules,
    by parameter name (`thresholds_of_rules`).
    """
    with texts_in_python():
        results = with_limits(results, thresholds)
        found = [finding for made in of_rules(results, failures, processes, thresholds) for finding in made]
        held = within_limits(found, results)
        maker, words = maker_of(results), PLAIN if is_of_plain_program(results) else {}
        told = [in_words_of(maker, in_words(words, item) if words else item) for item in folded(held)]
        engine = results["replay"].engine if "replay" in results else None
        return tuple(ordered(_weighed(item, engine, results) for item in told))


# What each finding saves, and so how severe it is.


_SHORTENED: Mapping[str, Changeable] = {
    kernels.__name__: "compute",
    unfused.__name__: "compute",
    cpu_work.__name__: "host",
}
"""Rules whose gain is the time that their cause takes of a rank: what part of the job is so much shorter without it."""


def _weighed(finding: Finding, engine: Engine | None, results: Results) -> Finding:
    """The finding with what its change saves; a fact where nothing can be replayed for it."""
    if finding.is_about_capture:
        return finding
    changes = _changes_of(finding, results) if engine is not None else ()
    if engine is None or not (changes or _is_replayed(finding)):
        return replace(finding, severity=INFO, saves=None)
    if not _stands_for(engine, changes, finding):
        gain_ns = finding.gain_ns or 0
        low_ns = max(0, gain_ns - (finding.gain_error_ns or 0))
        saves = Saves(engine.before_ns, gain_ns, low_ns, max(gain_ns, finding.gain_most_ns or 0), is_unprofiled=False)
        return replace(finding, severity=saves.severity, saves=saves, changes=())
    delayed_ns = (finding.gain_most_ns or 0) - (finding.gain_ns or 0) if finding.gain_most_ns else 0
    is_once = finding.steps is not None and len(finding.steps) == 1 and (engine.windows.steps or 0) > 1
    is_ideal = finding.is_of_ideal or not finding.changes
    is_bound = finding.gain_is_bound and not is_ideal
    saves = saves_of(engine, changes, is_ideal=is_ideal, is_bound=is_bound, delayed_ns=delayed_ns, is_once=is_once)
    return replace(finding, severity=saves.severity, saves=saves, changes=tuple(map(str, changes)))


def _stands_for(engine: Engine, changes: tuple[Change, ...], finding: Finding) -> bool:
    """Whether replaying the changes gives what the rule says is gained; else the rule replayed another change."""
    if not changes or finding.gain_is_bound or finding.is_of_ideal or finding.gain_ns is None:
        return bool(changes)
    own_ns = engine.gains([changes])[0].gain_ns
    return 100 * abs(own_ns - finding.gain_ns) < CUTS[-1][0] * engine.before_ns


def _is_replayed(finding: Finding) -> bool:
    """Whether its gain is a replay's, of a change that nobody can write down."""
    return finding.gain_ns is not None and not finding.gain_is_bound and not finding.changes


def _changes_of(finding: Finding, results: Results) -> tuple[Change, ...]:
    """What it changes: as its rule replays it, else its part of the job shorter by the time that its cause takes."""
    if finding.changes:
        return tuple(map(read_change, finding.changes))
    module = next((rule.__module__ for rule in RULES if rule.__name__ == finding.rule), "")
    needs = results["step_needs"].table
    if module not in _SHORTENED or not finding.gain_ns or not len(needs):
        return ()
    part = _SHORTENED[module]
    column = {"compute": "compute_ns", "host": "needed_host_ns"}[part]
    rank = next(iter((*finding.ranks, *finding.named)), int(needs["rank"].iloc[0]))
    own_ns = float(needs.loc[needs["rank"] == rank, column].astype("float64").mean())
    return (Change(part, round(max(0.0, 1 - finding.gain_ns / own_ns), 4)),) if own_ns > 0 else ()
