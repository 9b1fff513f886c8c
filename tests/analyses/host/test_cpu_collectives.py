"""Collectives that the CPU carries out: whose they are, and since when the host waits in them."""

from tests.host_builders import host_trace
from traceanalyzer.analyses.host.cpu_collectives import cpu_collectives

MAIN, GLOO, ASIDE = 1, 9, 5


def of(ranges, host_ops):
    """Name, start, since and end of each; the main thread launches a product before."""
    trace = host_trace([("gemm", 5, 9, 1)], [("cudaLaunchKernel", 1, 2, MAIN)], ranges=ranges, host_ops=host_ops)
    return [tuple(row) for row in cpu_collectives(trace)[["name", "start_ns", "since_ns", "end_ns"]].to_numpy()]


def test_one_that_is_waited_for_at_once_and_one_beside_other_work():
    ranges = [("gloo:barrier", 20, 40, GLOO), ("gloo:all_reduce", 60, 90, GLOO)]
    ops = [("c10d::barrier", 18, 22, MAIN), ("c10d::allreduce_", 58, 61, MAIN), ("aten::mm", 65, 75, MAIN)]
    assert of(ranges, ops) == [("gloo:barrier", 20, 20, 40), ("gloo:all_reduce", 60, 75, 90)]


def test_one_that_ends_beside_work_is_not_waited_for():
    ops = [("c10d::allreduce_", 18, 21, MAIN), ("aten::mm", 25, 75, MAIN)]
    assert of([("gloo:all_reduce", 20, 40, GLOO)], ops) == [("gloo:all_reduce", 20, 40, 40)]


def test_what_another_thread_calls_holds_up_nobody():
    assert of([("gloo:all_gather", 20, 40, GLOO)], [("c10d::allgather_", 18, 21, ASIDE)]) == []


def test_a_monitored_barrier_is_one_and_no_messages():
    ranges = [("gloo:recv", 21, 35, MAIN), ("gloo:send", 36, 38, MAIN), ("gloo:barrier", 60, 70, GLOO)]
    ops = [("c10d::monitored_barrier_", 20, 40, MAIN), ("c10d::barrier", 58, 61, MAIN)]
    assert of(ranges, ops) == [("gloo:monitored_barrier", 20, 20, 40), ("gloo:barrier", 60, 60, 70)]
