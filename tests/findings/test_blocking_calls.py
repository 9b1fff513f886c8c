"""Calls that block the CPU until its GPU is done."""

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.jobs import reads


def test_each_collective_is_waited_for():
    (one,) = said(reads.blocking(), "blocking_calls")
    assert one.headline == "Blocking calls: the CPU waits for the GPU 16.8 times per step."
    assert (
        one.why
        == "cudaStreamSynchronize drains rank 2's launch queue: its GPU is idle 1.10 ms/step in and after these calls."
    )
    assert one.fix == ("Avoid cudaStreamSynchronize in the step; read values (.item(), .cpu(), print) every N steps.")
    assert 400_000 < one.saves.low_ns < 1_100_000 < one.saves.high_ns, "a quarter of all waits for the lower end"


def test_a_wait_at_the_end_of_each_step_costs_little():
    assert not said(usual.ddp(ranks=2, steps=4), "blocking_calls")
