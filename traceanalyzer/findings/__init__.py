"""What the figures say: rules that turn Results into findings with evidence and advice."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace

from traceanalyzer.analyses import Result
from traceanalyzer.findings import (
    balance,
    communication,
    copies,
    efficiency,
    experts,
    idle,
    in_turn,
    inference,
    late_ranks,
    pipeline,
    stragglers,
)
from traceanalyzer.findings.finding import SEVERITIES, Finding
from traceanalyzer.findings.folding import folded

__all__ = ["RULES", "Finding", "Rule", "find"]


Rule = Callable[..., list[Finding]]

RULES: tuple[Rule, ...] = (
    pipeline.pipeline_bubble,
    pipeline.pipeline_imbalance,
    stragglers.stragglers,
    in_turn.in_turn,
    late_ranks.work_of_their_own,
    balance.uneven_compute,
    experts.uneven_experts,
    communication.little_overlap,
    communication.low_bandwidth,
    communication.many_small_collectives,
    idle.host_bound,
    late_ranks.slow_hosts,
    idle.short_kernels,
    idle.synchronising_calls,
    idle.data_loader,
    inference.launch_bound_iterations,
    copies.pageable_copies,
    copies.serial_blocks,
    efficiency.tensor_cores_unused,
    efficiency.memory_bound_kernels,
    efficiency.low_mfu,
)
"""Each takes the Results that it names as parameters; thresholds are keyword arguments with defaults."""


def find(results: Mapping[str, Result]) -> tuple[Finding, ...]:
    """All findings, one for each cause, first those with most to gain; those of unknown gain last, severest first."""
    found = [finding for rule in RULES for finding in _of_rule(rule, results)]
    return tuple(sorted(folded(found), key=_impact))


def _impact(finding: Finding) -> tuple[bool, int, int]:
    return finding.gain_ns is None, -(finding.gain_ns or 0), SEVERITIES.index(finding.severity)


def _of_rule(rule: Rule, results: Mapping[str, Result]) -> list[Finding]:
    needed = _needed(rule, results)
    return [replace(finding, sources=tuple(needed)) for finding in rule(**needed)]


def _needed(rule: Rule, results: Mapping[str, Result]) -> dict[str, Result]:
    parameters = inspect.signature(rule).parameters.values()
    return {parameter.name: results[parameter.name] for parameter in parameters if parameter.default is parameter.empty}
