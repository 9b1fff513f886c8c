"""One cause is one finding, and the order is that of impact."""

import pytest

from tests import once
from traceanalyzer.findings import Finding, find
from traceanalyzer.findings.finding import ordered
from traceanalyzer.meaning.vocabulary import SEVERITIES


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
    order = [
        (SEVERITIES.index(item.severity), item.is_of_ideal, item.gain_ns is None, -(item.gain_ns or 0))
        for item in found
    ]
    assert order == sorted(order)


def test_they_are_read_in_this_order():
    """First what the capture cannot tell, but not that hosts are late by the recording alone; then by severity."""
    expected = [
        Finding("info", "", is_about_capture=True, rule="capture"),
        Finding("high", "", gain_ns=5, rule="severe"),
        Finding("high", "", rule="severe, of unknown gain"),
        Finding("high", "", gain_ns=100, is_of_ideal=True, rule="severe ideal"),
        Finding("medium", "", gain_ns=80, unprofiled_gain_ns=91, gain_is_bound=False, rule="most without the profiler"),
        Finding("medium", "", gain_ns=95, unprofiled_gain_ns=90, gain_is_bound=False, rule="for sure"),
        Finding("medium", "", gain_ns=95, rule="at most"),
        Finding("medium", "", gain_ns=99, is_of_ideal=True, rule="ideal"),
        Finding("medium", "", gain_ns=0, gain_is_bound=False, ranks=(1,), rule="nothing to gain"),
        Finding("low", "", gain_ns=500, is_about_capture=True, is_of_hosts=True, rule="hosts, as recorded"),
        Finding("low", "", gain_ns=400, rule="slight"),
        Finding("info", "", gain_ns=900, rule="told"),
    ]
    for shown in (expected, expected[::-1], sorted(expected, key=lambda item: item.rule)):
        assert [item.rule for item in ordered(shown)] == [item.rule for item in expected]
