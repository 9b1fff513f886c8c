"""Thresholds of rules: each is asked, rules that share one mean the same by it, and none is asked past what is set."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests import once
from tests.findings.needed import limits_of, needed_by
from traceanalyzer import findings
from traceanalyzer.findings import RULES

CAPTURES = ("ddp", "moe", "pp", "pp_host_bound", "zo_offload", "nsys_naive")

BEYOND = 1e12


def test_rules_that_share_a_threshold_have_one_default_for_it():
    defaults = defaultdict(set)
    for rule in RULES:
        for name, default in limits_of(rule).items():
            defaults[name].add((type(default), default))
    assert {name: found for name, found in defaults.items() if len(found) > 1} == {}
    assert len(defaults) > 50


@pytest.mark.parametrize(
    ("name", "limit", "value"),
    [
        ("slow_hosts", "slow_host_times", BEYOND),
        ("late_ranks", "late_gain_pct", BEYOND),
        ("host_bound", "host_idle_pct", BEYOND),
        ("short_kernels", "short_kernels_pct", BEYOND),
        ("short_kernels", "host_idle_pct", BEYOND),
        ("exposed_collective", "exposed_collective_pct", BEYOND),
        ("exposed_collective", "exposed_mean_pct", BEYOND),
        ("pipeline_imbalance", "uneven_stages_times", BEYOND),
        ("pipeline_bubble", "bubble_pct", BEYOND),
        ("tensor_cores_unused", "matrix_pct", BEYOND),
        ("memory_bound_kernels", "memory_bound_pct", BEYOND),
        ("memory_bound_kernels", "busy_pct", BEYOND),
        ("little_overlap", "unhidden_transfer_pct", BEYOND),
        ("little_overlap", "little_overlap_pct", -BEYOND),
    ],
)
def test_a_rule_is_silent_below_its_threshold(name, limit, value):
    rule = next(rule for rule in RULES if rule.__name__ == name)
    needed = needed_by(rule)
    given = [{one: once.results(capture)[one] for one in needed} for capture in CAPTURES]
    spoke = [sources for sources in given if rule(**sources)]
    assert spoke, "else nothing is tested"
    assert [rule(**sources, **{limit: value}) for sources in spoke] == [[]] * len(spoke)


OF_ITS_OWN = {
    "PCIE_MOST_GBPS": "the caveat says what PCIe 5.0 carries",
    "HOST_PCT": "in `who_waits` it is of a wait, not of idle time",
    "UNEVEN": "of experts' loads it is another one than of memory",
    "LEAST_COST_PCT": "of waits for a rank it is another one than of calls for memory",
    "LEAST_BYTES": "of gradients it is another one than of memory",
}
"""Why a limit that is some rule's default is used as it is nevertheless."""


def used_as_they_are(trees, rules):
    """Names of the defaults of rules' thresholds that are read anywhere but as a default."""
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    defaults = {id(one): one.id for each in functions for one in each.args.kw_defaults if isinstance(one, ast.Name)}
    limits = {defaults[id(one)] for each in functions if each.name in rules for one in each.args.kw_defaults
              if id(one) in defaults}  # fmt: skip
    inside = [node for each in functions for node in ast.walk(each) if isinstance(node, ast.Name)]
    return {node.id for node in inside if node.id in limits and id(node) not in defaults}


def test_what_is_set_goes_to_all_that_ask_for_it():
    trees = [ast.parse(path.read_text()) for path in Path(findings.__file__).parent.rglob("*.py")]
    assert used_as_they_are(trees, {rule.__name__ for rule in RULES}) == {*OF_ITS_OWN}


def test_a_limit_that_is_used_as_it_is_is_found():
    helped = "def speaks(*, least_pct=LEAST):\n    return own(least_pct)\ndef own(pct):\n    return {}"
    assert used_as_they_are([ast.parse(helped.format("pct > LEAST"))], {"speaks"}) == {"LEAST"}
    assert used_as_they_are([ast.parse(helped.format("pct > 3"))], {"speaks"}) == set()
