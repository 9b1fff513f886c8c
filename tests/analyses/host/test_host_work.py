"""What the CPU does at the top of each thread's stack, and whether the GPU idles meanwhile."""

import pytest

from tests.builders import host
from tests.host_builders import host_trace
from traceanalyzer.analyses.host import cpu_time
from traceanalyzer.analyses.host.cpu_time import HostWork

STEPS = [("ProfilerStep#0", 0, 100), ("ProfilerStep#1", 100, 200), ("ProfilerStep#2", 200, 300)]

LAUNCHES = [("cudaLaunchKernel", 1, 2), ("cudaLaunchKernel", 101, 102), ("cudaLaunchKernel", 201, 202)]

OPS = [("gemm", 10, 40, 1), ("gemm", 110, 140, 2), ("gemm", 210, 240, 3)]


def rows(trace, *columns):
    table = HostWork(HostWork.of_ranks({0: cpu_time.per_rank(trace)}).to_frame()).to_frame()
    return table[list(columns)].to_numpy(na_value=None).tolist()


def work(events=(), ranges=(), ops=OPS, calls=LAUNCHES, steps=STEPS):
    return host_trace(ops, calls, host_ops=events, ranges=[*steps, *ranges])


@pytest.mark.parametrize(
    ("events", "ranges", "expected"),
    [
        # an optimizer on the CPU: 30 of its 60 ns beside the product
        ([], [("Optimizer.step", 20, 80), ("Optimizer.step", 120, 180), ("Optimizer.step", 220, 290)],
         [["range", "Optimizer.step", 3, 63, 36]]),
        ([("aten::mul", 30, 40, 1)], [("Optimizer.step", 20, 80)], [["range", "Optimizer.step", 1, 20, 13]]),
        ([("aten::mm", 50, 60, 1), ("aten::t", 52, 55, 1)], [], [["operator", "aten::mm", 1, 3, 3]]),
        # a range around the whole step says no more than the step
        ([], [("train", 1, 99), ("forward", 5, 15)], [["range", "forward", 1, 3, 0]]),
        # of a name all do or none: what lies in it is told of all steps
        ([], [("forward", 5, 95), ("log", 10, 80), ("forward", 105, 145), ("log", 110, 130)], [["range", "log", 2, 30, 13]]),
        # what runs beyond the step's end is cut there
        ([], [("late", 190, 230)], [["range", "late", 1, 3, 3]]),
        ([], [("gloo:all_reduce", 50, 70, 9)], [["collective", "gloo:all_reduce", 1, 7, 7]]),
    ],
)  # fmt: skip
def test_top_of_the_stack_by_complete_step(events, ranges, expected):
    found = rows(work(events, ranges), "what", "name", "calls", "host_per_step_ns", "idle_per_step_ns")
    assert found == expected


def test_without_gpu_work_all_steps_count_and_idle_is_not_known():
    trace = work(ranges=[("forward", 20, 50), ("forward", 220, 250)], ops=(), calls=())
    assert rows(trace, "name", "calls", "host_per_step_ns", "idle_per_step_ns") == [["forward", 2, 20, None]]


def gloo(start, sizes, **more):
    """As PyTorch 2.11 annotates gloo's collectives: each input a tensor."""
    said = {"Input Dims": sizes, "Input type": ["float"] * len(sizes), "Input Strides": [[1]] * len(sizes)} | more
    return host(start, 5, name="gloo:all_reduce", cat="user_annotation", thread=9, **said)
