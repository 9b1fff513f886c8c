"""One cause is one finding, and the order is that of impact."""

import pytest

from tests import once
from traceanalyzer.findings import Finding, find
from traceanalyzer.findings.finding import folded, ordered
from traceanalyzer.meaning.vocabulary import SEVERITIES


def finding(rule, about=None, part_of=None):
    return Finding("low", rule, about=about, part_of=part_of, rule=rule)


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([("a", "x", None), ("b", None, "x")], [("a", ["b"])]),
        ([("b", None, "x"), ("a", "x", None), ("c", None, "x")], [("a", ["b", "c"])]),
        ([("b", None, "y"), ("a", "x", None)], [("b", []), ("a", [])]),
        # What is part of a part is a cause of its own.
        ([("a", "x", None), ("b", "y", "x"), ("c", None, "y")], [("a", ["b"]), ("c", [])]),
        # What tells of a cause is part of what is said before of the same cause.
        ([("a", "x", None), ("b", "x", "x"), ("c", None, "x")], [("a", ["b", "c"])]),
        ([("b", "x", "x"), ("c", None, "x")], [("b", ["c"])]),
        # Only the first is the one that others are part of.
        ([("a", "x", None), ("b", "x", None), ("c", None, "x")], [("a", ["c"]), ("b", [])]),
    ],
    ids=["one", "order stays", "nobody tells its cause", "no chains", "again", "by itself", "two of one cause"],
)
def test_folded(findings, expected):
    made = folded([finding(*words) for words in findings])
    assert [(item.rule, [inner.rule for inner in item.also]) for item in made] == expected


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


@pytest.mark.parametrize(("sign_ns", "steps", "first"), [(60, None, "b"), (40, None, "a"), (60, (3,), "a")])
def test_a_concrete_sign_that_makes_most_of_an_ideal_leads_unless_the_ideal_tells_the_steps(sign_ns, steps, first):
    lead = Finding("low", "a", rule="a", about="x", is_of_ideal=True, gain_ns=500, unprofiled_gain_ns=100, steps=steps)
    sign = Finding("low", "b", rule="b", part_of="x", is_to_do_first=True, gain_ns=sign_ns)
    (made,) = folded([lead, sign, Finding("low", "c", rule="c", part_of="x")])
    assert (made.rule, made.about, len(made.also)) == (first, "x", 2)


@pytest.mark.parametrize(
    ("is_bound", "tells_why", "grave"), [(True, False, "high"), (False, False, "medium"), (False, True, "high")]
)
def test_what_mending_gains_says_how_grave_a_cause_is(is_bound, tells_why, grave):
    lead = Finding("low", "a", rule="a", about="x", gain_ns=100, gain_is_bound=is_bound)
    (made,) = folded([lead, Finding("high", "b", rule="b", part_of="x", tells_why=tells_why)])
    assert made.severity == grave


@pytest.mark.parametrize(
    ("own", "of_lead", "is_part"),
    [
        ({"gain_ns": 201}, {}, False),
        ({"gain_ns": 200}, {}, True),
        ({"gain_ns": 201, "is_of_ideal": True}, {}, True),
        ({"gain_ns": 201, "gain_is_bound": True}, {}, True),
        ({"gain_ns": 201}, {"gain_is_bound": True}, True),
        ({"gain_ns": None}, {}, True),
        ({"gain_ns": 1}, {"gain_ns": None}, False),
        ({"gain_ns": 1, "unprofiled_gain_ns": 201}, {}, False),
    ],
)
def test_what_gains_over_twice_as_much_is_no_part(own, of_lead, is_part):
    lead = Finding("low", "a", rule="a", about="x", **{"gain_ns": 100, "gain_is_bound": False} | of_lead)
    sign = Finding("low", "b", rule="b", part_of="x", **{"gain_is_bound": False} | own)
    assert len(folded([lead, sign])) == (1 if is_part else 2)


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
