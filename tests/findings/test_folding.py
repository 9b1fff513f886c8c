"""One cause is one finding, and the order is that of impact."""

import pytest

from tests.samples import sample
from traceanalyzer.analyses import run
from traceanalyzer.findings import Finding, find
from traceanalyzer.findings.folding import folded


def finding(rule, about=None, part_of=None):
    return Finding(rule, "low", rule, about=about, part_of=part_of)


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([("a", "x", None), ("b", None, "x")], [("a", ["b"])]),
        ([("b", None, "x"), ("a", "x", None), ("c", None, "x")], [("a", ["b", "c"])]),
        ([("b", None, "y"), ("a", "x", None)], [("b", []), ("a", [])]),
        # What is part of a part is a cause of its own.
        ([("a", "x", None), ("b", "y", "x"), ("c", None, "y")], [("a", ["b"]), ("c", [])]),
        # Only the first is the one that others are part of.
        ([("a", "x", None), ("b", "x", None), ("c", None, "x")], [("a", ["c"]), ("b", [])]),
    ],
    ids=["one", "order stays", "nobody tells its cause", "no chains", "two of one cause"],
)
def test_folded(findings, expected):
    made = folded([finding(*words) for words in findings])
    assert [(item.rule, [inner.rule for inner in item.also]) for item in made] == expected


@pytest.mark.parametrize(
    ("traces", "expected"),
    [
        ("ddp", [("straggler", ["host_bound"]), ("short_kernels", [])]),
        ("ddp_straggler", [("straggler", [])]),
        ("pp", [("pipeline_bubble", ["pipeline_imbalance", "straggler", "straggler"]), ("tensor_cores_unused", [])]),
        ("moe", [("uneven_compute", [])]),
        # Its stages wait because one host is late: that the stages are uneven as well is another cause.
        (
            "pp_host_bound",
            [("straggler", ["pipeline_bubble", "host_bound"]), ("pipeline_imbalance", []), ("short_kernels", [])],
        ),
    ],
)
def test_each_cause_is_said_once(traces, expected):
    found = find(run(sample(traces).ranks))
    assert [(item.rule, [inner.rule for inner in item.also]) for item in found] == expected
    costs = [item.cost_ns for item in found]
    assert costs == sorted(costs, key=lambda cost: (cost is None, -(cost or 0)))
