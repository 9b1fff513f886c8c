"""Launch delays, the launch queue and its series, short kernels, synchronising calls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.host_builders import host_trace
from tests.samples import RUNS, sample
from traceanalyzer.analyses import run
from traceanalyzer.analyses.host.launches import launch_queue

# Three kernels; the second and third wait in the queue while the first one runs.
OPS = [("gemm", 10, 50, 1), ("gemm", 50, 70, 2), ("gemm", 70, 100, 3)]
CALLS = [("cudaLaunchKernel", 0, 5), ("cudaLaunchKernel", 10, 20), ("cudaLaunchKernel", 20, 40)]


def one(name, trace):
    (row,) = run([trace], [name])[name].rows()
    return row


def test_figures_of_a_rank():
    row = one("launches", host_trace(OPS, CALLS))
    # Second waits 20 to 50, third 40 to 70: 60 of the window's 90, in which one waits 20..40 and 50..70, two 40..50.
    assert row["empty_queue_ns"] == 40
    assert row["host_bound_pct"] == pytest.approx(100 * 40 / 90)
    assert row["queue_mean"] == pytest.approx(60 / 90)
    assert (row["queue_max"], row["queue_median"]) == (2, 1)
    assert (row["delay_median_ns"], row["delay_max_ns"]) == (40, 50)


@pytest.mark.parametrize(
    ("durations", "under_5", "under_10"), [([4_999, 5_000, 9_999, 10_000], 1, 3), ([20_000], 0, 0)]
)
def test_short_kernels(durations, under_5, under_10):
    starts = np.cumsum([0, *durations])
    row = one("launches", host_trace([("gemm", a, a + n) for a, n in zip(starts, durations, strict=False)], []))
    assert (row["kernels"], row["kernels_under_5us"], row["kernels_under_10us"]) == (len(durations), under_5, under_10)
    assert row["operations_without_launch"] == len(durations)
    assert row["queue_max"] is row["delay_median_ns"] is row["host_bound_pct"] is None


@pytest.mark.parametrize(("returns_us", "awaited"), [(101, 1), (99, 0)], ids=["waits for it", "returns before"])
def test_a_launch_that_returns_when_its_kernel_has_ended_waited_for_it(returns_us, awaited):
    trace = host_trace(
        [("gemm", 10_000, 100_000, 1), ("short", 110_000, 112_000, 2), ("nccl", 120_000, 190_000)],
        [("cudaLaunchKernel", 0, returns_us * 1000), ("cudaLaunchKernel", 105_000, 113_000)],
    )
    (row,) = run([trace], ["launches"])["launches"].rows()
    assert (row["awaitable_kernels"], row["awaited_kernels"], row["awaited_pct"]) == (1, awaited, 100.0 * awaited)


def test_copies_are_no_kernels():
    assert one("launches", host_trace([("gemm", 0, 10), ("HtoD", 10, 12)], []))["kernels"] == 1


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=10))
def test_queue_agrees_with_every_tick(work):
    calls = [("cudaLaunchKernel", start, start + 3) for start, _, _ in work]
    ops = [("gemm", start + wait, start + wait + n, number) for number, (start, wait, n) in enumerate(work, 1)]
    trace = host_trace(ops, calls)
    queue, window = launch_queue(trace), trace.window
    depth = np.array(
        [sum(min(a + 3, a + w) <= tick < a + w for a, w, _ in work) for tick in range(window.start_ns, window.end_ns)]
    )
    assert (queue.waiting_ns, queue.empty_ns) == (depth.sum(), (depth == 0).sum())
    edges = window.start_ns + np.arange(6) * window.length_ns // 5
    if window.length_ns < 5:
        return
    waiting, highest = queue.binned(edges[:-1], edges[1:])
    for number in range(5):
        ticks = depth[edges[number] - window.start_ns : edges[number + 1] - window.start_ns]
        assert (waiting[number], highest[number]) == (ticks.sum(), ticks.max())


@pytest.mark.parametrize("name", RUNS)
def test_the_series_adds_up_to_the_mean(name):
    for trace in sample(name).ranks:
        series = run([trace], ["queue_depth"])["queue_depth"].to_frame()
        row = one("launches", trace)
        total = float((series["mean_depth"] * series["length_ns"]).sum())
        assert total == pytest.approx(row["queue_mean"] * row["window_ns"])
        assert series["max_depth"].max() == row["queue_max"]
        assert int(series["length_ns"].sum()) == row["window_ns"]


def test_a_synchronising_call_costs_the_idle_time_in_it():
    ops = [("gemm", 0, 100, 1), ("gemm", 300, 310, 2), ("gemm", 310, 400, 3), ("gemm", 500, 510, 5)]
    calls = [("cudaLaunchKernel", -10, -5), ("cudaLaunchKernel", 280, 290), ("cudaLaunchKernel", 290, 300),
             ("cudaStreamSynchronize", 50, 150), ("cudaLaunchKernel", 300, 305),
             ("cudaStreamSynchronize", 310, 350), ("cudaDeviceSynchronize", 500, 900)]  # fmt: skip
    trace = host_trace(ops, calls, host_ops=[("aten::item", 40, 160, 1)], ranges=[("## log ##", 30, 170)])
    rows = run([trace], ["sync_calls"])["sync_calls"].rows()
    expected = {"calls": 1, "host_ns": 100, "idle_in_call_ns": 50, "idle_after_ns": 150, "cost_ns": 50}
    assert {key: rows[0][key] for key in expected} == expected
    assert (rows[0]["operator"], rows[0]["range"]) == ("aten::item", "## log ##")
    # The second one returns while the GPU works; the last one only after the last operation.
    assert [(row["host_ns"], row["cost_ns"]) for row in rows[1:]] == [(40, 0)]
