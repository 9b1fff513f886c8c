"""What the figures say: facts, the changes that fix them, and what these save."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traceanalyzer.findings.conclude import find, results_of_kinds
    from traceanalyzer.findings.finding import Finding, Findings, named_ranks

__all__ = ["Finding", "Findings", "find", "named_ranks", "results_of_kinds"]

_HOMES = {
    "Finding": "finding",
    "Findings": "finding",
    "find": "conclude",
    "named_ranks": "finding",
    "results_of_kinds": "conclude",
}


def __getattr__(name: str) -> Any:
    """What is named above, imported when it is asked for: a command reads traces first."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
