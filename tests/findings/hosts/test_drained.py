"""Hosts that wait for their GPUs in the middle of a step."""

import re

import pytest
from traceanalyzer.findings.hosts.idle import drained_queues

from tests.findings.needed import needed_by
from tests.simulator.analysed import analysed
from tests.simulator.program import Group, Job, Program

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
