"""One cause is one finding, and the order is that of impact."""

import pytest

from tests import once
from traceanalyzer.findings import Finding, find
from traceanalyzer.findings.finding import ordered
from traceanalyzer.findings.savings import Saves


@pytest.mark.parametrize(
    ("traces", "expected"),
    [
        ("ddp", [("host_bound", ["slow_hosts", "many_launches", "short_kernels"])]),
        ("ddp_straggler", [("late_ranks", ["other_work"])]),
        (
            "pp",
            [
                ("tensor_cores_unused", []),
                ("pipeline_imbalance", ["pipeline_bubble"]),
            ],
        ),
        ("moe", [("late_ranks", ["uneven_experts", "other_work", "exposed_collective"])]),
        # Both hosts need as long to launch by the recording alone: uneven stages, another cause, gain more without it.
        (
            "pp_host_bound",
            [("pipeline_imbalance", ["pipeline_bubble"]), ("host_bound", ["short_kernels"])],
        ),
    ],
)
def test_each_cause_is_said_once(traces, expected):
    found = find(once.results(traces))
    assert [(item.rule, [inner.rule for inner in item.also]) for item in found] == expected
    order = [-item.saves.low_ns for item in found if item.leads]
    assert order == sorted(order)


def saving(low_ns, high_ns=100):
    return Saves(before_ns=1_000, likely_ns=low_ns, low_ns=low_ns, high_ns=high_ns, is_unprofiled=True)


def test_they_are_read_in_this_order():
    """By the lower end of what they save, the narrower first; then facts, the capture, and what gains nothing."""
    expected = [
        Finding("high", "", saves=saving(100, 200), rule="most for sure"),
        Finding("medium", "", saves=saving(50, 90), rule="narrow"),
        Finding("medium", "", saves=saving(50, 900), rule="wide"),
        Finding("info", "", gain_ns=900, ranks=(1,), rule="fact of a rank"),
        Finding("info", "", gain_ns=950, rule="fact"),
        Finding("high", "", is_about_capture=True, rule="capture"),
        Finding("info", "", saves=saving(0, 5), rule="nothing"),
    ]
    for shown in (expected, expected[::-1], sorted(expected, key=lambda item: item.rule)):
        assert [item.rule for item in ordered(shown)] == [item.rule for item in expected]
    assert ordered(expected[3:])[0].rule == "capture", "it leads where nothing saves anything"
