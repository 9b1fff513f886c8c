"""Iterations of inference engines: what is one, which phase it is, how many tokens it computes."""

from tests.host_builders import host_trace


def test_iterations_are_steps_numbered_by_place():
    ranges = [("execute_context_1(40)_generation_0(0)", 0, 10), ("execute_context_0(0)_generation_4(4)", 20, 30),
              ("execute_context_0(0)_generation_5(5)", 40, 50)]  # fmt: skip
    calls = [("cudaLaunchKernel", 1, 2), ("cudaLaunchKernel", 21, 22), ("cudaLaunchKernel", 41, 42)]
    trace = host_trace([("gemm", 5, 15, 1), ("gemm", 25, 30, 2), ("gemm", 45, 50, 3)], calls, ranges=ranges)
    assert trace.steps["step"].tolist() == [0, 1, 2]
