"""Conditions on figures under which a build fails: `--fail-on`, for one run and for a comparison."""

from collections.abc import Sequence

from traceanalyzer.gate.figures import check_names
from traceanalyzer.gate.grammar import Gate, parse, parse_file
from traceanalyzer.gate.lacks import lack_of_ranks
from traceanalyzer.gate.of_comparison import check_comparison
from traceanalyzer.gate.of_run import check_run
from traceanalyzer.gate.outcomes import FAILED, INCONCLUSIVE, NOT_AVAILABLE, PASSED, SKIPPED, Outcome

__all__ = [
    "FAILED", "INCONCLUSIVE", "NOT_AVAILABLE", "PASSED", "SKIPPED", "Gate", "Outcome",
    "check_comparison", "check_names", "check_run", "has_failed", "is_inconclusive", "lack_of_ranks", "parse",
    "parse_file",
]  # fmt: skip


def has_failed(outcomes: Sequence[Outcome]) -> bool:
    """Whether the build fails: a condition holds, or its figure is not there."""
    return any(outcome.status in (FAILED, NOT_AVAILABLE) for outcome in outcomes)


def is_inconclusive(outcomes: Sequence[Outcome]) -> bool:
    """Whether nothing fails, but some condition cannot be told from noise."""
    return not has_failed(outcomes) and any(outcome.status == INCONCLUSIVE for outcome in outcomes)
