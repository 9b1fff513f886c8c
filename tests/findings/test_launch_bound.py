"""GPUs that wait for kernel launches."""

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.jobs import launches


def test_small_kernels_wait_for_launches():
    (one,) = said(launches.small_kernels(), "launch_bound")
    assert one.headline == "CPU-bound: the GPUs wait for kernel launches 53% of the profiled step."
    assert one.why == (
        "Launching a step takes rank 1's CPU 4.23 ms (other ranks: 4.22 to 4.23 ms) for 1.00 ms of GPU compute: "
        "303 launches, most by aten::add (300)."
    )
    assert one.fix == (
        'torch.compile(model, mode="reduce-overhead"), or CUDA graphs around the repeated part; '
        "if that fails, larger micro-batches."
    )
    assert one.what_if == "analyze-traces what-if FOLDER --host 2x"
    assert one.evidence[-1]["kernels_under_10us_pct"] > 90


def test_a_job_whose_cpus_are_ahead_is_not_launch_bound():
    assert not said(usual.ddp(ranks=2, steps=4), "launch_bound")
