"""A host that runs ahead waits for room in the queue: that is none of its own time."""

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses.host.api_calls import FULL_QUEUE, into_full_queue

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
