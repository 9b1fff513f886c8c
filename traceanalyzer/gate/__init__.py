"""Conditions on figures under which a build fails: `--fail-on`, for one run and for a comparison."""

from collections.abc import Sequence

from traceanalyzer.gate.grammar import Gate, parse, parse_file
from traceanalyzer.gate.judging import FAILED, INCONCLUSIVE, PASSED, SKIPPED, UNKNOWN, Outcome
from traceanalyzer.gate.of_comparison import check_comparison
from traceanalyzer.gate.of_run import check_names, check_run, lack_of_ranks

__all__ = [
    "FAILED", "INCONCLUSIVE", "PASSED", "SKIPPED", "UNKNOWN", "Gate", "Outcome",
    "check_comparison", "check_names", "check_run", "gravest", "lack_of_ranks", "parse", "parse_file",
]  # fmt: skip


def gravest(outcomes: Sequence[Outcome]) -> str:
    """The status that decides over the build: a failure, then what cannot be judged, then what noise leaves open."""
    found = {outcome.status for outcome in outcomes}
    return next((status for status in (FAILED, UNKNOWN, INCONCLUSIVE) if status in found), PASSED)
