"""Who is late, when, by what, and what mending it gains: the sentences."""

import pytest
from traceanalyzer.findings.stragglers.stragglers import late_ranks

from tests import once
from tests.findings.needed import needed_by
from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault

MS = 1_000_000
NEEDED = needed_by(late_ranks)


def said(job):
    _, results = analysed(job, *NEEDED)
    return late_ranks(**results)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (
            "ddp_straggler",
            (
                "Rank 1 computes 75.7 ms a step, rank 0 18.4 ms, most of it aten::mm of [8192, 8192] × [8192, 8192]: rank 0 "
                "waits 56.5 ms a step for it inside all-reduce. Mended, a mean step is 13.7 ms shorter (an estimated 38.9 ms shorter without the profiler)."
            ),
        ),
        (
            "moe",
            (
                "Rank 0 computes 6.39 ms a step, rank 1 2.85 ms, most of it aten::mm: rank 1 "
                "waits 3.55 ms a step for it inside all-to-all. Mended, a mean step is 2.08 ms shorter."
            ),
        ),
    ],
)
def test_who_is_late_and_what_mending_it_gains(name, title):
    (found,) = late_ranks(**once.results(name, NEEDED))
    assert found.title == title
    assert found.severity == "high"
    assert found.recommendation
    assert not found.gain_is_bound
    assert {row["rank"] for row in found.evidence} == {0, 1}


def test_no_one_of_two_hosts_is_blamed_for_what_two_hosts_differ_by():
    """Rank 0's needs 1.58 times as long as rank 1's; of a hundred healthy jobs one has two that differ by 1.73."""
    assert not late_ranks(**once.results("ddp", NEEDED))


def test_uneven_stages_are_not_late():
    assert late_ranks(**once.results("pp", NEEDED)) == []


@pytest.mark.parametrize(
    ("steps", "begins", "severity", "has_gain"),
    [
        pytest.param(None, "Rank 2 copies for ", "high", True, marks=pytest.mark.thorough),
        pytest.param((1,), "In step 1 rank 2 copies for ", "medium", True, marks=pytest.mark.thorough),
        ((0, 1), "In steps 0 and 1 rank 2 copies for ", "medium", True),
        ((4,), "In step 4, the capture's last, rank 2 copies for ", "medium", True),
    ],
)
def test_lateness_of_some_steps_names_them(steps, begins, severity, has_gain):
    (found,) = said(workloads.ddp(4, 5, (Fault("copy", 3 * MS, (2,), steps),)))
    assert found.title.startswith(begins)
    assert ("Mended" in found.title) == has_gain == (found.gain_ns is not None)
    assert found.severity == severity
    assert found.steps == steps
    if steps is None or has_gain:
        assert found.gain_ns == pytest.approx(3 * MS * len(steps or range(5)) / 5, rel=0.05)


def test_equal_ranks_are_left_alone():
    assert said(workloads.ddp(4, 4)) == []
