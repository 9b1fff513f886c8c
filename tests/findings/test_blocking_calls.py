"""Calls that block the CPU until its GPU is done."""

from tests.asked import said_of
from tests.findings.of_job import said
from tests.host_builders import host_trace
from tests.simulator import workloads as usual
from tests.simulator.jobs import reads


def test_each_collective_is_waited_for():
    (one,) = said(reads.blocking(), "blocking_calls")
    assert one.headline == "Blocking calls: the CPU waits for the GPU 17 times per step."
    assert (
        one.why
        == "cudaStreamSynchronize drains rank 2's launch queue: its GPU is idle 1.10 ms/step in and after these calls."
    )
    assert one.fix == ("Avoid cudaStreamSynchronize; read values (.item(), .cpu(), print) every N steps.")
    assert 400_000 < one.saves.low_ns < 1_100_000 < one.saves.high_ns, "a quarter of all waits for the lower end"


def test_a_wait_at_the_end_of_each_step_costs_little():
    assert not said(usual.ddp(ranks=2, steps=4), "blocking_calls")


def test_a_timer_around_each_layer():
    calls, ops, operators = [], [], []
    begins = [step * 20_000_000 for step in range(3)]
    for begin in begins:
        for layer in range(40):
            start = begin + layer * 400_000
            calls += [
                ("cudaLaunchKernel", start, start + 5_000),
                ("cudaDeviceSynchronize", start + 6_000, start + 220_000),
            ]
            operators.append(("aten::mm", start - 1_000, start + 5_500))
            ops.append(("nvjet_hsh_128x256", start + 10_000, start + 215_000, len(calls) - 1))
    steps = [(f"ProfilerStep#{number}", begin, begin + 20_000_000) for number, begin in enumerate(begins)]
    found = said_of(host_trace(ops, calls, host_ops=operators, ranges=steps))
    (one,) = [finding for finding in found if finding.kind == "blocking_calls"]
    assert one.headline == "Blocking calls: the CPU waits for the GPU 40 times per step."
    assert one.fix == "Remove torch.cuda.synchronize() from the step: time with CUDA events, or every N steps."
    assert one.saves.likely_ns > 2_500_000
