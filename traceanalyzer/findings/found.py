"""All that is found in a run: what the rules say, one finding for each cause, in the order in which it is read."""

from dataclasses import replace
from typing import Any

from traceanalyzer.analyses import Results
from traceanalyzer.failures import Failure
from traceanalyzer.findings.asking import of_rules, with_limits
from traceanalyzer.findings.capture_limits import within_limits
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.folding import folded
from traceanalyzer.findings.makers import in_words, in_words_of, maker_of
from traceanalyzer.findings.order import ordered
from traceanalyzer.findings.programs import PLAIN, is_of_plain_program
from traceanalyzer.model.text_storage import texts_in_python


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
        told = [
            in_words_of(maker, in_words(words, _by_gain(item)) if words else _by_gain(item)) for item in folded(held)
        ]
        return tuple(ordered(told))


def _by_gain(finding: Finding) -> Finding:
    """Nothing to gain is nothing to do first: such a finding is of low severity, with its signs as they are."""
    if finding.expected_ns != 0 or finding.is_about_capture or finding.severity == "info":
        return finding
    return replace(finding, severity="low")
