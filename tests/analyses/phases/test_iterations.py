"""Iterations of inference engines: what is one, which phase it is, how many tokens it computes."""

import pytest
from traceanalyzer.findings.hosts.launch_bound import launch_bound_iterations

from tests.host_builders import host_trace
from traceanalyzer.analyses.phases import micro_steps
from traceanalyzer.analyses.time import steps


def test_iterations_are_steps_numbered_by_place():
    ranges = [("execute_context_1(40)_generation_0(0)", 0, 10), ("execute_context_0(0)_generation_4(4)", 20, 30),
              ("execute_context_0(0)_generation_5(5)", 40, 50)]  # fmt: skip
    calls = [("cudaLaunchKernel", 1, 2), ("cudaLaunchKernel", 21, 22), ("cudaLaunchKernel", 41, 42)]
    trace = host_trace([("gemm", 5, 15, 1), ("gemm", 25, 30, 2), ("gemm", 45, 50, 3)], calls, ranges=ranges)
    assert trace.steps["step"].tolist() == [0, 1, 2]


def _decode(idle, *, call="cudaLaunchKernel", without_launch=0):
    """Three iterations of 100 ns, of which the GPU idles for so long."""
    ranges = [(f"execute_context_0(0)_generation_4({4 + i})", 100 * i, 100 * i + 90) for i in range(3)]
    calls = [(call, 100 * i + 1, 100 * i + 2) for i in range(3)]
    ops = [("gemm", 100 * i + 5, 105 + 100 * i - idle, i + 1) for i in range(3)]
    ops += [("gemm", 300 + i, 301 + i, -1) for i in range(without_launch)]
    return host_trace(ops, calls, ranges=ranges)


def _table(trace):
    return micro_steps.Iterations.of_ranks({0: micro_steps.iterations_per_rank(trace, steps.per_rank(trace))})


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (_decode(60), "rank 0's GPU idles 56.7 ns, 59 % of an iteration (1 operations, none of them from a graph)."),
        (_decode(20), None),
        (_decode(60, call="cudaGraphLaunch"), None),
        (_decode(60, without_launch=4), None),  # graphs whose launches are lost: what an iteration ran is not known
    ],
)  # fmt: skip
def test_launch_bound_decode_is_seen(trace, said):
    table = _table(trace)
    assert [finding.title for finding in launch_bound_iterations(table)] == (
        [f"Decode is bound by launches: {said}"] if said else []
    )
