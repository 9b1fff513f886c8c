"""How rules are asked: each with the Results that it names, and with the thresholds that a user sets."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from traceanalyzer.analyses import ANALYSES, Result, Results
from traceanalyzer.failures import Failure
from traceanalyzer.files.unnamed import give_back_grown
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.makers import BY_MAKER
from traceanalyzer.findings.programs import BY_PROGRAM
from traceanalyzer.findings.registry import RULES, Rule
from traceanalyzer.forks import all_aside

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
