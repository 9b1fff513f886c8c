"""Thresholds of rules: each is asked, and rules that share one mean the same by it."""

from collections import defaultdict

import pytest

from tests import once
from tests.findings.needed import limits_of, needed_by
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
