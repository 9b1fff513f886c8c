"""A host that runs ahead waits for room in the queue: that is none of its own time."""

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.analyses.host.launches import FULL_QUEUE, into_full_queue

AHEAD = FULL_QUEUE + 100


def ahead_of_its_gpu(slow_ns, unrecorded=0):
    """Launches of 1 µs, operations of 1 ms: the last launch takes `slow_ns`; the first `unrecorded` came before the capture."""
    calls = [("cudaLaunchKernel", 2_000 * number, 2_000 * number + 1_000) for number in range(unrecorded, AHEAD)]
    last = calls[-1][1] + 10_000
    calls.append(("cudaLaunchKernel", last, last + slow_ns))
    launch = [-1] * unrecorded + [number + 1 for number in range(AHEAD + 1 - unrecorded)]
    ops = [("gemm", 1_000_000 * (row + 1), 1_000_000 * (row + 2), number) for row, number in enumerate(launch)]
    return host_trace(ops, calls, ranges=[("ProfilerStep#0", 0, last + slow_ns)])


@pytest.mark.parametrize(("slow_ns", "is_full"), [(5_000_000, True), (20_000, False)])
def test_a_slow_launch_into_a_full_queue(slow_ns, is_full):
    assert into_full_queue(ahead_of_its_gpu(slow_ns))[-1] == is_full


def test_what_was_queued_before_the_capture_began_fills_the_queue_too():
    assert into_full_queue(ahead_of_its_gpu(5_000_000, unrecorded=AHEAD // 2))[-1]


def test_the_host_needs_nothing_of_that_time():
    table = run([ahead_of_its_gpu(5_000_000)], ["step_needs"])["step_needs"].to_frame()
    assert table["needed_host_ns"].tolist() == [2_000 * (AHEAD - 1) + 10_000]


def test_a_slow_launch_into_an_empty_queue_is_work():
    trace = host_trace([("gemm", 6_000_000, 7_000_000, 1)], [("cudaLaunchKernel", 0, 5_000_000)])
    assert not into_full_queue(trace).any()


def test_a_slow_launch_is_work_where_the_gpu_keeps_up():
    calls = [("cudaLaunchKernel", 2_000 * number, 2_000 * number + 500) for number in range(AHEAD)]
    ops = [("gemm", start + 600, start + 1_600, number) for number, (_, start, _) in enumerate(calls, 1)]
    last = 2_000 * AHEAD
    trace = host_trace(
        [*ops, ("gemm", last + 50_000, last + 60_000, AHEAD + 1)], [*calls, ("cudaLaunchKernel", last, last + 40_000)]
    )
    assert not into_full_queue(trace).any()


def test_operations_whose_launch_is_not_recorded_fill_no_queue():
    ops = [("gemm", 6_000, 7_000, 1), *(("gemm", 8_000 + row, 8_001 + row, -1) for row in range(2 * AHEAD))]
    calls = [("cudaLaunchKernel", 0, 5_000), ("cudaLaunchKernel", 7_000, 5_000_000)]
    assert not into_full_queue(host_trace([*ops, ("gemm", 6_000_000, 7_000_000, 2)], calls)).any()
