"""Calls that block when they are first made, and never again."""

import pytest

from tests.asked import said_of
from tests.host_builders import host_trace
from traceanalyzer.analyses import run

MS = 1_000_000


def cold(first_ms, *, kernels=30, later=20, call="cudaLaunchKernel", has_steps=False):
    """Each kernel's first launch takes so long, later ones 10 µs; each kernel runs for 1 ms."""
    calls, ops, begins, now = [], [], [], 0
    for turn in range(later + 1):
        begins.append(now)
        for kernel in range(kernels):
            took = first_ms * MS if not turn and kernel else 10_000
            calls.append((call, now, now + took))
            now += took
            ops.append((f"gemm{kernel}" if call == "cudaLaunchKernel" else "HtoD", now, now + MS, len(calls)))
            now += MS
    ranges = [("ProfilerStep#1", 0, begins[1]), ("ProfilerStep#2", begins[1], now)] if has_steps else []
    return host_trace(ops, calls, ranges=ranges)


@pytest.mark.parametrize("has_steps", [True, False], ids=["steps", "no steps"])
def test_kernel_modules_that_load_are_no_launches_to_spare(has_steps):
    found = said_of(cold(33, has_steps=has_steps))
    (first,) = [item for item in found if item.rule == "first_calls"]
    assert "kernel modules load in 29 calls, most of cudaLaunchKernel. The GPU idles 957 ms" in first.title
    assert first.is_about_capture
    assert found[0] == first or found[0].is_about_capture
    assert not {"host_bound", "short_kernels", "synchronising_calls", "slow_operators"} & {item.rule for item in found}


def test_launches_that_always_take_as_long_are_no_first_calls():
    trace = cold(33, later=0)
    assert not len(run([trace], ["first_calls"])["first_calls"]), "no call has a peer"
    assert "first_calls" not in {item.rule for item in said_of(cold(0.05))}


def test_one_long_call_of_few_is_told_with_its_time():
    calls = [("cudaLaunchKernel", 0, 10_000), ("hipMemcpyWithStream", MS, 500 * MS)]
    calls += [("hipMemcpyWithStream", (501 + at) * MS, (501 + at) * MS + 20_000) for at in range(3)]
    ops = [
        ("gemm", 20_000, 30_000, 1),
        *(("HtoD", end - 5_000, end, at + 2) for at, (_, _, end) in enumerate(calls[1:])),
    ]
    (first,) = [item for item in said_of(host_trace(ops, calls)) if item.rule == "first_calls"]
    assert "hipMemcpyWithStream blocks the CPU once, 1 ms into the recording. The GPU idles 499 ms" in first.title
