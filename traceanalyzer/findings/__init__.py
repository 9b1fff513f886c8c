"""What the figures say: rules that turn Results into findings with evidence and advice."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.findings.finding import Finding, Findings, named_ranks
    from traceanalyzer.findings.registry import (
        RULES,
        Rule,
        find,
        kinds_of_rules,
        results_of_rules,
        thresholds_of_rules,
        with_limits,
    )

__all__ = [
    "RULES",
    "Finding",
    "Findings",
    "Rule",
    "find",
    "kinds_of_rules",
    "named_ranks",
    "results_of_rules",
    "thresholds_of_rules",
    "with_limits",
]

_HOMES = {
    "Finding": "finding",
    "Findings": "finding",
    "RULES": "registry",
    "Rule": "registry",
    "find": "registry",
    "named_ranks": "finding",
    "kinds_of_rules": "registry",
    "results_of_rules": "registry",
    "thresholds_of_rules": "registry",
    "with_limits": "registry",
}


def __getattr__(name: str) -> Any:
    """What is named above, when it is asked for: a command reads traces first, and rules are a hundred modules."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
