"""GPUs that wait for kernel launches."""

from tests.findings.of_job import results_of, said
from tests.simulator import workloads as usual
from tests.simulator.jobs import launches
from tests.simulator.program import Program
from tests.simulator.workloads import job_of, layer_of


def test_small_kernels_wait_for_launches():
    (one,) = said(launches.small_kernels(), "launch_bound")
    assert one.headline == "Launch gaps: the GPUs wait for kernel launches 53% of the profiled step."
    assert one.why == (
        "Launching a step takes rank 1's CPU 4.23 ms (other ranks: 4.22 to 4.23 ms) for 1.00 ms of GPU compute: "
        "303 launches, aten::add most often (300)."
    )
    assert one.fix == (
        'torch.compile(model, mode="reduce-overhead"), or CUDA graphs around the repeated part; '
        "if that fails, larger micro-batches."
    )
    assert one.what_if == "analyze-traces what-if FOLDER --cpu 2x"
    assert one.evidence[-1]["kernels_under_10us_pct"] > 90


def test_a_job_whose_cpus_are_ahead_is_not_launch_bound():
    assert not said(usual.ddp(ranks=2, steps=4), "launch_bound")


def test_cpus_that_only_keep_up_do_not_bound_a_step():
    def step(program: Program, _: int) -> None:
        for _ in range(40):
            layer_of(program, "aten::linear", "forward_gemm", 98_000, 103_000)

    bottleneck = results_of(job_of(1, 4, step, ()))["bottleneck"]
    assert bottleneck.shares["CPU-bound"] > 90
    assert bottleneck.bound is None
