"""What is said of communication."""

import re

import pytest

from tests import once
from tests.findings.needed import needed_by
from tests.simulator import Capture, Group, Program, scenarios
from tests.simulator.analysed import analysed
from tests.simulator.jobs import data_parallel, gradients, other_libraries, tensor_parallel
from tests.simulator.program import COMPUTE_STREAM
from tests.simulator.workloads import job_of, layer_of
from traceanalyzer.analyses import ANALYSES
from traceanalyzer.findings.capture import PARTNERS
from traceanalyzer.findings.communication.exposed import (
    EXPOSED,
    exposed_collective,
    little_overlap,
    many_small_collectives,
)
from traceanalyzer.findings.communication.links import low_bandwidth
from traceanalyzer.meaning.columns import time_text

MS = 1_000_000


def of_sample(name, *names):
    assert set(names) <= set(ANALYSES)
    return once.results(name, names)


def test_little_overlap_is_told_where_data_moves():
    names = needed_by(little_overlap)
    assert little_overlap(**of_sample("ddp", *names)) == []
    _, results = analysed(scenarios.hsdp(), *names)
    assert little_overlap(**results) == []


def hidden_behind(host_ns, moved_ns=2 * MS, *, steps=4, has_steps=True):
    """What is said of a job that reduces after its compute, and whose hosts need so long before they launch it."""
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        program.host(host_ns)
        made = program.kernel("gemm", 2 * MS)
        sent = program.collective("all_reduce", world, 10_000_000, moved_ns, after=(made,))
        program.kernel("adam", MS, after=(sent,))

    job = job_of(2, steps, step, (world,), jitter=0, ends_synced=not host_ns, has_steps=has_steps)
    _, results = analysed(job, *needed_by(little_overlap))
    return little_overlap(**results)


def test_overlap_is_worth_what_the_replay_says():
    (found,) = hidden_behind(0)  # three of five milliseconds compute
    assert found.gain_ns == pytest.approx(2 * MS, rel=0.1)
    assert f"With all of it hidden a mean step is at most {time_text(found.gain_ns)} shorter" in found.title
    assert "while no compute runs, most of it in all-reduces (0 % of communication is hidden)" in found.title


def test_what_horovod_exchanges_is_hidden_by_its_settings():
    names = needed_by(little_overlap)
    _, results = analysed(other_libraries.horovod(2, 3), *names, how=Capture(arguments="none"))
    (found,) = little_overlap(**results)
    assert "HOROVOD_FUSION_THRESHOLD" in found.recommendation


def test_slow_links_that_would_gain_most_of_it_take_it_in():
    (fast,), (slow,) = hidden_behind(0, moved_ns=MS // 4), hidden_behind(0)  # 20 MB at 80 and 10 GB/s of 450
    assert (fast.part_of, slow.part_of) == (None, "rate of links")


def test_overlap_that_hosts_hide_is_worth_what_it_gains_without_them():
    (found,) = hidden_behind(20 * MS, steps=8)
    assert (found.gain_ns, found.severity) == (pytest.approx(2 * MS / 8, rel=0.01), "low"), "of the last step alone"
    assert found.title.endswith(
        " Hosts decide a step's length: if they took no time, hiding it would make one of "
        "5.00 ms at most 2.00 ms shorter."
    )
    assert found.recommendation.startswith("Once hosts launch sooner, start ")
    assert hidden_behind(20 * MS, moved_ns=MS // 2) == [], "2 % of a step"
    (of_capture,) = hidden_behind(32 * MS, steps=8, has_steps=False)
    assert "Hosts decide the capture's length: if they took no time, hiding it would make its " in of_capture.title


def test_waits_are_not_low_bandwidth():
    assert low_bandwidth(**of_sample("ddp", "collectives", "calls", "replay", "places", "episodes", "call_waits")) == []


def test_slow_links_are():
    # 18 MB in 150 µs are 120 GB/s of an H200's 450.
    _, results = analysed(
        scenarios.ddp(2, elements=9_000_000), "collectives", "calls", "replay", "places", "episodes", "call_waits"
    )
    (found,) = low_bandwidth(**results)
    assert found.title.startswith("Large all-reduces, data parallel (ranks 0, 1), reach ")
    assert found.severity == "low"
    assert "shorter" not in found.title, "compute hides them"


def test_collectives_that_are_slow_are_one_finding_with_the_gain_of_all():
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        made = program.kernel("gemm", 2 * MS)
        for name, moved_ns in (("all_gather", MS), ("all_reduce", 2 * MS)):
            made = program.collective(name, world, 10_000_000, moved_ns, after=(made,))
        program.kernel("adam", MS, after=(made,))

    job = job_of(2, 4, step, (world,), jitter=0)
    (found,) = low_bandwidth(**analysed(job, *needed_by(low_bandwidth))[1])
    # 20 MB at 180 GB/s take 0.11 ms in the all-reduce; of the all-gather half of them are moved.
    assert found.gain_ns == pytest.approx((2 - 0.11 + 1 - 0.06) * MS, rel=0.03)
    assert re.fullmatch(
        r"Large all-reduces, group of 2 ranks \(0, 1\), reach 10 GB/s, 2 % of the links' 450 GB/s; "
        r"all-gathers, group of 2 ranks \(0, 1\), reach 10 GB/s, 2 % of the links' 450 GB/s\. At 180 GB/s, which "
        r"healthy jobs reach, with all of them a mean step is 2\.\d+ ms shorter\.",
        found.title,
    )
    assert {row["collective"] for row in found.evidence} == {"all_gather", "all_reduce"}
    (exposed,) = exposed_collective(**analysed(job, *needed_by(exposed_collective))[1])
    assert exposed.part_of == found.about


_OF_SMALL = tuple(needed_by(many_small_collectives))


def test_small_collectives_that_a_step_waits_for_are_told_however_few():
    """48 of 8 elements stand in the way; of the 24 larger ones none is told."""
    _, results = analysed(tensor_parallel.many_scales(), *_OF_SMALL)
    (found,) = many_small_collectives(**results)
    assert "runs 48 all-reduces of at most 1 MiB a step" in found.title
    assert found.gain_ns == pytest.approx(48 * 16_000, rel=0.15)  # and what their ends differ by


@pytest.mark.parametrize(
    "made",
    [{"elements": 1_000}, {"elements": 4_000_000}],
    ids=["beside compute", "large"],
)
def test_collectives_that_gain_nothing_or_are_large_are_no_news_however_many(made):
    _, results = analysed(scenarios.ddp(2, buckets=60, **made), *_OF_SMALL)
    assert many_small_collectives(**results) == []


@pytest.mark.parametrize(("layers", "is_said"), [(30, True), pytest.param(1, False, marks=pytest.mark.thorough)])
def test_the_collective_that_nothing_runs_beside_is_named(layers, is_said):
    _, results = analysed(
        gradients.serial(steps=4, layers=layers),
        *needed_by(exposed_collective),
    )
    found = exposed_collective(**results)
    assert len(found) == is_said
    for item in found:
        assert item.title.startswith(f"All-reduces ({layers} a step) run while nothing computes for ")
        assert item.gain_ns == pytest.approx(layers * 150_000, rel=0.1)


@pytest.mark.parametrize(("compute_ns", "is_said"), [(0, False), (200_000, False), (900_000, True)])
def test_a_benchmark_of_collectives_has_nothing_to_hide_them_behind(compute_ns, is_said):
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        if compute_ns:
            layer_of(program, "aten::mm", "gemm", compute_ns, 9_000)
        for _ in range(10):
            program.collective("all_reduce", world, 64_000_000, 900_000, stream=COMPUTE_STREAM)

    _, results = analysed(job_of(2, 4, step, (world,), jitter=0), *needed_by(exposed_collective))
    assert bool(exposed_collective(**results)) is is_said


def test_steps_that_alone_hold_a_collective_are_named():
    """Parameters that are averaged in every third step only."""
    _, results = analysed(
        data_parallel.averaging(),
        *needed_by(exposed_collective),
    )
    (found,) = exposed_collective(**results)
    assert found.steps == (2, 5)
    assert "of each of steps 2 and 5, and hardly in others" in found.title
    assert found.is_of_ideal


def test_a_collective_that_is_quick_in_other_steps_is_a_fault_and_no_ideal():
    world = Group("0", (0, 1))

    def step(program: Program, number: int) -> None:
        made = program.kernel("gemm", 2 * MS)
        sent = program.collective("all_reduce", world, 1_000_000, (60 if number == 2 else 1) * MS, after=(made,))
        program.kernel("adam", MS, after=(sent,))

    names = needed_by(exposed_collective)
    (found,) = exposed_collective(**analysed(job_of(2, 6, step, (world,)), *names)[1])
    assert (found.steps, found.is_of_ideal) == ((2,), False)


def test_small_collectives_of_few_steps_are_counted_there_and_timed_in_a_mean_step():
    def step(program: Program, number: int) -> None:
        program.kernel("gemm", MS)
        for _ in range(60 if number % 3 == 2 else 0):
            program.collective("all_reduce", world, 1000, 50_000)

    world = Group("0", (0, 1))
    _, results = analysed(job_of(2, 7, step, (world,), jitter=0), *_OF_SMALL)
    (found,) = many_small_collectives(**results)
    assert "runs 60 all-reduces of at most 1 MiB in each of " in found.title
    assert " of a mean step. If small collectives" in found.title
    assert found.gain_ns < 60 * 50_000 / 2


@pytest.mark.parametrize(("missing", "part_of"), [((), EXPOSED), ((1,), PARTNERS)])
def test_what_may_be_a_wait_for_ranks_that_are_not_here_is_part_of_what_is_said_of_these(missing, part_of):
    names = needed_by(exposed_collective)
    _, results = analysed(gradients.serial(ranks=2, steps=3), *names, how=Capture(missing=missing))
    (found,) = exposed_collective(**results)
    assert found.part_of == part_of
