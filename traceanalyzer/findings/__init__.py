"""What the figures say: rules that turn Results into findings with evidence and advice."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from traceanalyzer.analyses import Result


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a reader should know or change.

    Attributes:
        rule: the rule's name.
        severity: `high`, `medium`, `low` or `info`.
        title: one sentence with its numbers.
        evidence: the rows behind it, as `Result.rows()` gives them.
        recommendation: what to do.
        caveat: when it may not hold.
        cost_ns: GPU time a step (or of the capture, without steps) that it costs; orders findings.
        interval_ns: where in the timeline to look.
    """

    rule: str
    severity: str
    title: str
    evidence: tuple[Mapping[str, Any], ...] = ()
    recommendation: str | None = None
    caveat: str | None = None
    cost_ns: int | None = None
    interval_ns: tuple[int, int] | None = None


Rule = Callable[..., list[Finding]]

RULES: tuple[Rule, ...] = ()
"""Each takes the Results that it names as parameters."""


def find(results: Mapping[str, Result]) -> tuple[Finding, ...]:
    """All findings, costliest first."""
    found = [finding for rule in RULES for finding in rule(**_needed(rule, results))]
    return tuple(sorted(found, key=lambda finding: -(finding.cost_ns or 0)))


def _needed(rule: Rule, results: Mapping[str, Result]) -> dict[str, Result]:
    return {name: results[name] for name in inspect.signature(rule).parameters}
