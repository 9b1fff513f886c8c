"""Findings about memory's limits."""

from dataclasses import replace

import pytest

from tests.builders import rank_trace
from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.findings.devices.memory import allocator_retries, low_headroom, uneven_memory

GIB = 1 << 30


def ranks(*reserved, device=80 * GIB):
    traces = [rank_trace([("compute", 0, 9)], rank=rank) for rank in range(len(reserved))]
    traces = [replace(trace, meta=replace(trace.meta, device_bytes=device)) for trace in traces]
    memory = {
        rank: {"peak_allocated_bytes": size - GIB, "peak_reserved_bytes": size} for rank, size in enumerate(reserved)
    }
    return run(traces, ["memory", "memory_fit"], run_memory=memory)


@pytest.mark.parametrize(("reserved", "severity"), [(60, None), (74, "medium"), (79, "high")])
def test_little_is_left(reserved, severity):
    results = ranks(50 * GIB, reserved * GIB)
    found = low_headroom(results["memory"], results["memory_fit"])
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert all("Rank 1" in one.title for one in found)
    assert all("of its GPU's 85.9 GB at its peak: " in one.title for one in found)


def test_an_unknown_gpu_is_no_finding():
    results = ranks(79 * GIB, device=None)
    assert low_headroom(results["memory"], results["memory_fit"]) == []


@pytest.mark.parametrize(("peaks", "is_said"), [((40, 41), False), ((20, 40), True)])
def test_one_rank_decides(peaks, is_said):
    found = uneven_memory(ranks(*(size * GIB for size in peaks))["memory"])
    assert bool(found) == is_said
    assert all("Rank 1 decides" in one.title for one in found)
    assert all("need 41.9 GB at the peak, the ranks' mean is 31.1 GB, the least 20.4 GB." in one.title for one in found)


def stepped(calls):
    """Two steps of 100 ns and an open one; `calls` are (name, start, end)."""
    steps = [(f"ProfilerStep#{number}", 100 * number, 100 * number + 99) for number in range(3)]
    launches = [("cudaLaunchKernel", 100 * number + 5, 100 * number + 6) for number in range(3)]
    ops = [("gemm", 100 * number + 10, 100 * number + 90, number + 1) for number in range(3)]
    return run(
        [host_trace(ops, [*launches, *calls], ranges=steps)],
        ["memory_calls", "headline", "steps", "episodes", "replay"],
    )


def test_memory_taken_anew_in_every_step():
    results = stepped([("cudaMalloc", 20, 25), ("cudaFree", 30, 35), ("cudaFree", 120, 140)])
    rows = {(row["step"], row["name"]): (row["calls"], row["host_ns"]) for row in results["memory_calls"].rows()}
    assert rows == {(0, "cudaMalloc"): (1, 5), (0, "cudaFree"): (1, 5), (1, "cudaFree"): (1, 20)}
    (found,) = allocator_retries(**results)
    assert found.gain_ns == 0, "the GPU has enough to do meanwhile"
    assert "2 cudaFree, 1 cudaMalloc in 3 steps" in found.title
    assert "expandable_segments" in found.recommendation
