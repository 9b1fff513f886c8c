"""Every gap is cut into causes that add up to it; cases are literal, sums are checked on real captures."""

import pytest

from tests.host_builders import host_trace
from tests.samples import FEW, sample
from traceanalyzer.analyses import run
from traceanalyzer.analyses.host import idle as host_idle
from traceanalyzer.analyses.host.idle import PARTS
from traceanalyzer.model import RankMeta
from traceanalyzer.selection import Selection, select

US = 1_000

FIRST = ("gemm", 0, 10 * US, 1)
"""Ends at 10 µs; every case's gap begins there, and 100 µs later at 110 µs the second operation starts."""
LAUNCH_FIRST = ("cudaLaunchKernel", -5 * US, -1 * US)


def split(calls, *, ops=None, host_ops=(), ranges=()):
    ops = ops or [FIRST, ("gemm", 110 * US, 120 * US, 2)]
    trace = host_trace(ops, [LAUNCH_FIRST, *calls], host_ops=host_ops, ranges=ranges)
    gaps = host_idle.find(trace)
    table = host_idle.parts(trace, gaps, trace.window.start_ns, trace.window.end_ns)
    return {name.removesuffix("_ns"): int(value) // US for name, value in table.sum().items() if value}


CASES = {
    "the host is late": ([("cudaLaunchKernel", 90 * US, 100 * US)], {}, {"host": 90, "launch": 10}),
    "launched long before: 50 µs of ordering, then unknown": (
        [("cudaLaunchKernel", 1 * US, 5 * US)], {}, {"launch": 50, "unknown": 50}),
    "launched within the gap, starts late": (
        [("cudaLaunchKernel", 10 * US, 20 * US)], {}, {"host": 10, "launch": 50, "unknown": 40}),
    "the call returns after its operation started": (
        [("cudaLaunchKernel", 100 * US, 300 * US)], {}, {"host": 100}),
    "a synchronising call first": (
        [("cudaLaunchKernel", 80 * US, 90 * US), ("cudaStreamSynchronize", 0, 40 * US)], {},
        {"sync": 30, "host": 50, "launch": 20}),
    "a synchronising call of another thread while this one works": (
        [("cudaLaunchKernel", 80 * US, 90 * US), ("cudaDeviceSynchronize", 0, 40 * US, 2),
         ("cudaLaunchKernel", 200 * US, 210 * US, 2)],
        {"host_ops": [("aten::mm", 0, 95 * US, 1)]}, {"host": 80, "launch": 20}),
    "data loading, and synchronisation inside it": (
        [("cudaLaunchKernel", 80 * US, 90 * US), ("cudaEventSynchronize", 20 * US, 30 * US)],
        {"ranges": [("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 10 * US, 50 * US)]},
        {"sync": 10, "data": 30, "host": 40, "launch": 20}),
    "data loading by the user's own range": (
        [("cudaLaunchKernel", 80 * US, 90 * US)], {"ranges": [("## data ##", 10 * US, 50 * US)]},
        {"data": 40, "host": 40, "launch": 20}),
    "a range that merely mentions data": (
        [("cudaLaunchKernel", 80 * US, 90 * US)], {"ranges": [("update_metadata", 10 * US, 50 * US)]},
        {"host": 80, "launch": 20}),
}  # fmt: skip


@pytest.mark.parametrize(("calls", "host", "expected"), CASES.values(), ids=CASES)
def test_causes_of_one_gap(calls, host, expected):
    assert split(calls, **host) == expected


@pytest.mark.parametrize(
    ("name", "copy", "memory", "expected"),
    [
        ("cudaMemcpyAsync", "DtoH", "pageable", {"sync": 5, "host": 75, "launch": 20}),
        ("cudaMemcpyAsync", "HtoD", "pageable", {"sync": 5, "host": 75, "launch": 20}),
        ("cudaMemcpyAsync", "DtoH", "pinned", {"host": 80, "launch": 20}),
        ("cudaMemcpy", "DtoH", "pinned", {"sync": 5, "host": 75, "launch": 20}),
    ],
)
def test_a_copy_that_blocks_is_a_synchronising_call_once_it_runs(name, copy, memory, expected):
    ops = [(copy, 0, 10 * US, 1, 7, memory), ("gemm", 110 * US, 120 * US, 2)]
    trace = host_trace(ops, [(name, -5 * US, 15 * US), ("cudaLaunchKernel", 80 * US, 90 * US)])
    table = host_idle.parts(trace, host_idle.find(trace), 0, 120 * US)
    assert {key.removesuffix("_ns"): int(value) // US for key, value in table.sum().items() if value} == expected


@pytest.mark.parametrize("name", FEW)
def test_causes_add_up_to_the_breakdowns_idle_time_on_samples(name):
    for trace in sample(name).ranks:
        results = run([trace], ["idle", "breakdown", "steps", "gaps"])
        idle, steps = results["idle"].to_frame(), results["steps"].to_frame()
        assert (idle[list(PARTS)].sum(axis=1) == idle["idle_ns"]).all()
        whole = idle[idle["step"].isna()]
        assert whole["idle_ns"].tolist() == results["breakdown"].to_frame()["idle_ns"].tolist()
        known = steps[steps["idle_ns"].notna()] if len(steps) else steps
        assert idle["idle_ns"][idle["step"].notna()].tolist() == known["idle_ns"].tolist()
        gaps = results["gaps"].to_frame()
        gaps = gaps[
            trace.window.holds(gaps["start_ns"].to_numpy())
        ]  # others are of a step outside the capture's window
        assert int(gaps["length_ns"].sum()) + int(whole["between_kernels_ns"].iloc[0]) == int(whole["idle_ns"].iloc[0])


def test_data_that_the_program_of_jax_waits_for_is_its_gpus_reason():
    ops, calls = [("gemm", 0, 10_000, 1), ("gemm", 90_000, 99_000, 2)], [("launch", 0, 1), ("launch", 85_000, 86_000)]
    ranges = [("step 0", 0, 99_000, 9), ("DataLoader.__next__", 20_000, 70_000, 9)]
    data = {}
    for of in ("xplane", "kineto"):
        trace = host_trace(ops, calls, ranges=ranges, meta=RankMeta(0, "test", ("test.pb",), of, device=0))
        trace = select(trace, Selection("step *"))
        gaps = host_idle.find(trace)
        data[of] = host_idle.parts(trace, gaps, 0, 99_000)["data_ns"].tolist()
    assert data == {"xplane": [50_000], "kineto": [0]}
