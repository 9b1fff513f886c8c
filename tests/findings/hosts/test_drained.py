"""Hosts that wait for their GPUs in the middle of a step."""

import re

import pytest

from tests.findings.needed import needed_by
from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import reads
from tests.simulator.program import Group, Job, Program
from traceanalyzer.findings.hosts.idle import drained_queues

NEEDED = tuple(needed_by(drained_queues))


def job(*, synced, host_us=300, kernel_us=1000, operators=1):
    """Two ranks, six blocks a step: the host works before each kernel, and may wait for the GPU after each block."""
    group, programs = Group("0", (0, 1)), []
    for rank in range(2):
        program = Program(rank)
        for step in range(5):
            with program.range(f"ProfilerStep#{step}"):
                for block in range(6):
                    with program.range(f"block_{block}"):
                        for _ in range(operators):
                            program.host(host_us * 1000 // operators, "aten::linear")
                        last = program.kernel("gemm", kernel_us * 1000)
                        if synced(block):
                            program.sync("cudaStreamSynchronize")
                program.collective("all_reduce", group, 1000, 100_000, after=(last,))
        programs.append(program)
    return Job(tuple(programs), (group,))


def told(**made):
    _, results = analysed(job(**made), *NEEDED)
    return drained_queues(**results)


def test_calls_that_drain_the_queue_are_named_with_what_the_job_gains_without_them():
    (found,) = told(synced=lambda _: True)
    said = r"Both hosts wait for their GPUs 6 times a step \(cudaStreamSynchronize in block_\d and 5 other places\)"
    assert re.match(said, found.title)
    # Six times 0.3 ms of launching, which would lie behind the GPU's 6.1 ms a step.
    assert found.gain_ns == pytest.approx(6 * 300_000, rel=0.05)


def test_a_queue_that_stays_short_is_told_beside_data_that_would_be_hidden():
    """GPUs idle little right after such a call, and between the short kernels that follow: the job gains all of it."""
    _, results = analysed(reads.between_short_kernels(faults=(Fault("read", 0, (0, 1)),)), *NEEDED)
    (found,) = drained_queues(**results)
    assert found.gain_ns > 6 * 200_000
    assert found.title.startswith("Both hosts wait for their GPUs 6 times a step")


def test_what_recording_made_of_them_is_said():
    (found,) = told(synced=lambda _: True, operators=60)
    # To write down 60 operators takes the host 3.2 µs each, of 0.3 ms a block.
    assert found.gain_ns == pytest.approx(6 * 300_000, rel=0.05)
    assert found.unprofiled_gain_ns == pytest.approx(6 * (300_000 - 60 * 3_200), rel=0.1)
    assert re.search(r"1\.\d+ ms shorter \(an estimated \d+ µs shorter without the profiler\)\.$", found.title)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param({"synced": lambda _: False}, marks=pytest.mark.thorough),
        # one wait at the end of a step, of a host that is far ahead
        {"synced": lambda block: block == 5, "host_us": 10},
        # what binds is the host, with these waits or without them
        {"synced": lambda block: block == 0, "host_us": 3000, "kernel_us": 10},
    ],
    ids=["none", "once", "host-bound"],
)
def test_nothing_is_said_where_they_cost_nothing(made):
    assert told(**made) == []


def test_what_the_host_does_after_waiting_is_named_by_the_rule_about_hosts():
    faults = (Fault("gc", 10_000_000, (0, 1, 2, 3), (2,)),)
    _, results = analysed(workloads.ddp(4, 6, faults, layers=6), *NEEDED)
    assert drained_queues(**results) == []


def test_hosts_that_wait_for_little_are_not_among_those_that_wait():
    """All synchronise at the end of a step; rank 2 alone in each layer."""
    _, results = analysed(reads.masking(faults=(Fault("nonzero", 3_000_000, (2,)),)), *NEEDED)
    (found,) = drained_queues(**results)
    assert found.title.startswith(
        "Rank 2's host waits for its GPU 10.8 times a step (cudaStreamSynchronize in aten::nonzero"
    )
