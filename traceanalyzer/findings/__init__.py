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
    hosts,
    idle,
    lateness,
    pipeline,
    slow_hosts,
)
from traceanalyzer.findings.finding import SEVERITIES, Finding
from traceanalyzer.findings.folding import folded

__all__ = ["RULES", "Finding", "Rule", "find"]


Rule = Callable[..., list[Finding]]

RULES: tuple[Rule, ...] = (
    pipeline.pipeline_imbalance,
    pipeline.pipeline_bubble,
    lateness.late_ranks,
    balance.uneven_compute,
    communication.little_overlap,
    communication.low_bandwidth,
    communication.many_small_collectives,
    hosts.host_bound,
    slow_hosts.slow_hosts,
    idle.short_kernels,
    idle.synchronising_calls,
    idle.data_loader,
    copies.pageable_copies,
    copies.serial_blocks,
    efficiency.tensor_cores_unused,
    efficiency.memory_bound_kernels,
    efficiency.low_mfu,
)
"""Each takes the Results that it names as parameters; thresholds are keyword arguments with defaults."""


def find(results: Mapping[str, Result]) -> tuple[Finding, ...]:
    """All findings, one for each cause: severest first, of those what gains most; an unknown gain outranks none."""
    found = [finding for rule in RULES for finding in _of_rule(rule, results)]
    return tuple(sorted(folded(found), key=_impact))


def _impact(finding: Finding) -> tuple[int, bool, int]:
    """Severest first, since severity is by gain; of those what gains most, an unknown gain behind the known ones."""
    return SEVERITIES.index(finding.severity), finding.gain_ns is None, -(finding.gain_ns or 0)


def _of_rule(rule: Rule, results: Mapping[str, Result]) -> list[Finding]:
    needed = _needed(rule, results)
    return [replace(finding, sources=tuple(needed)) for finding in rule(**needed)]


def _needed(rule: Rule, results: Mapping[str, Result]) -> dict[str, Result]:
    parameters = inspect.signature(rule).parameters.values()
    return {parameter.name: results[parameter.name] for parameter in parameters if parameter.default is parameter.empty}
