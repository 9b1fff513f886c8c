"""What is said of communication."""

import re

import pytest
from traceanalyzer.findings.communication.exposed import (
    exposed_collective,
    little_overlap,
    many_small_collectives,
)
from traceanalyzer.findings.communication.links import low_bandwidth

from tests import once
from tests.findings.needed import needed_by
from tests.simulator import Group, Program, scenarios
from tests.simulator.analysed import analysed
from tests.simulator.jobs import tensor_parallel
from tests.simulator.workloads import job_of
from traceanalyzer.analyses import ANALYSES

MS = 1_000_000


def of_sample(name, *names):
    assert set(names) <= set(ANALYSES)
    return once.results(name, names)


def test_little_overlap_is_told_where_data_moves():
    names = needed_by(little_overlap)
    assert little_overlap(**of_sample("ddp", *names)) == []
    _, results = analysed(scenarios.hsdp(), *names)
    assert little_overlap(**results) == []


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
