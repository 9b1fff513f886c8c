"""Who is late, when, by what, and what mending it gains: the sentences."""

import pytest

from tests import once
from tests.findings.needed import needed_by
from tests.simulator import scenarios, workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from traceanalyzer.findings.stragglers.stragglers import late_ranks

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
                "waits 56.5 ms a step for it inside all-reduce. Mended, a mean step is 13.8 ms shorter (an estimated 39.1 ms shorter without the profiler)."
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


def test_a_little_lateness_in_most_steps_does_not_hide_where_the_time_goes():
    faults = (Fault("compute", MS // 2, (1,), (0, 1, 3, 4, 5)), Fault("compute", 30 * MS, (1,), (2,)))
    (found,) = said(workloads.ddp(2, 6, faults))
    assert found.title.startswith("In every step (nine tenths of it in step 2) rank 1 computes ")


@pytest.mark.parametrize(("ranks", "steps"), [(4, 9), pytest.param(8, 9, marks=pytest.mark.thorough)])
def test_ranks_that_take_turns_are_one_finding(ranks, steps):
    (found,) = said(scenarios.ddp(ranks, steps, in_turn_ns=2_000_000))
    assert found.title.startswith(f"Ranks 0 to {ranks - 1} in turn, each in other steps, compute ")
    assert "most of it forward_gemm" in found.title  # no shapes: it may be unequal work
    assert found.gain_ns == pytest.approx(2 * MS, rel=0.05)


def test_two_causes_of_one_rank_are_two_episodes():
    faults = (Fault("data", 6 * MS, (1,), (1, 2)), Fault("eval", 8 * MS, (1,), (4,)))
    first, second = said(workloads.ddp(4, 7, faults))
    assert (first.cause, first.steps, second.cause, second.steps) == ("data", (1, 2), "compute", (4,))
    assert first.about == second.part_of, "one card"


def test_equal_ranks_are_left_alone():
    assert said(workloads.ddp(4, 4)) == []


def test_of_graded_loads_the_rank_that_has_most_is_named_and_what_even_ones_gain():
    faults = (Fault("compute", 1 * MS, (1,)), Fault("compute", 3 * MS, (2,)), Fault("compute", 5 * MS, (3,)))
    (found,) = said(workloads.ddp(4, 4, faults))
    assert found.worst_rank == 3
    assert "; rank 3 most, " in found.title
    assert "Dealt out evenly over all ranks, a mean step is about 2." in found.recommendation
