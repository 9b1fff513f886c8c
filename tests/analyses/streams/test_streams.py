"""Roles of streams, what runs together, copies by direction: literal cases and the stream samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceanalyzer as ta
from tests.host_builders import host_trace
from tests.samples import SAMPLES
from traceanalyzer.analyses import run
from traceanalyzer.analyses.streams.streams import pair_times
from traceanalyzer.analyses.time.intervals import Intervals


def case(name):
    return ta.load([SAMPLES / "streams" / f"{name}.json.gz"]).ranks


def frame(traces, name):
    return run(traces, [name])[name].to_frame()


@pytest.mark.parametrize(
    ("ops", "role"),
    [
        ([("gemm", 0, 95), ("memset", 95, 100)], "compute"),
        ([("gemm", 0, 85), ("memset", 85, 100)], "mixed"),
        ([("nccl", 0, 10)], "communication"),
        ([("HtoD", 0, 10)], "upload"),
        ([("DtoH", 0, 10)], "download"),
        ([("PtoP", 0, 10)], "exchange"),
    ],
)
def test_role_follows_from_content(ops, role):
    assert frame([host_trace(ops)], "streams")["role"].tolist() == [role]


def test_dependency_is_the_time_that_a_launched_operation_waits_while_others_run():
    ops = [("gemm", 0, 10_000, 1), ("HtoD", 0, 30_000, 2, 8), ("gemm", 32_000, 40_000, 3)]
    calls = [("cudaLaunchKernel", -9, -8), ("cudaMemcpyAsync", -7, -6), ("cudaLaunchKernel", 11_000, 12_000)]
    streams = frame([host_trace(ops, calls)], "streams").set_index("stream")
    # Launched at 12 µs, started at 32 µs; the copy ran until 30 µs.
    assert streams["dependency_ns"].to_dict() == {7: 18_000, 8: 0}


def test_short_turnarounds_are_no_dependency():
    ops = [("gemm", 0, 10_000, 1), ("HtoD", 0, 30_000, 2, 8), ("gemm", 14_999, 40_000, 3)]
    calls = [("cudaLaunchKernel", -9, -8), ("cudaMemcpyAsync", -7, -6), ("cudaLaunchKernel", -5, -4)]
    assert frame([host_trace(ops, calls)], "streams")["dependency_ns"].sum() == 0


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=6)


@settings(deadline=None, max_examples=50)
@given(st.lists(spans, min_size=1, max_size=4))
def test_pair_times_are_intersections(groups):
    unions = [Intervals.of([a for a, _ in group], [a + n for a, n in group]) for group in groups]
    expected = [[(first & second).clip(5, 60).total_ns for second in unions] for first in unions]
    assert pair_times(unions, 5, 60).tolist() == expected


def test_pair_times_do_not_depend_on_the_chunks_in_which_they_are_summed():
    starts = np.arange(50_000) * 10
    unions = [Intervals(starts, starts + 6), Intervals(starts + 4, starts + 9), Intervals(starts[::2], starts[::2] + 1)]
    assert pair_times(unions, 0, 500_000).tolist() == [
        [300_000, 100_000, 25_000], [100_000, 250_000, 0], [25_000, 0, 25_000]
    ]  # fmt: skip


def test_copies_by_direction_and_memory():
    ops = [("HtoD", 0, 10), ("HtoD", 20, 40, -1, 7, "pageable"), ("DtoH", 5, 15, -1, 8), ("gemm", 0, 8, -1, 9)]
    rows = frame([host_trace(ops)], "copies").set_index(["direction", "source_memory"])
    figures = rows[["copies", "size_bytes", "total_ns", "exposed_ns", "with_compute_ns", "with_other_copies_ns"]]
    assert {key: values.tolist() for key, values in figures.iterrows()} == {
        ("HtoD", "pinned"): [1, 100, 10, 2, 8, 5],
        ("HtoD", "pageable"): [1, 200, 20, 20, 0, 0],
        ("DtoH", "device"): [1, 100, 10, 7, 3, 5],
    }
    assert rows["rate_gbps"].tolist() == [10.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("name", "rates", "together_pct"),
    [
        ("broadcast1", {"HtoD": 55.4}, None),
        ("broadcast2", {"HtoD": 55.5, "PtoP": 313.5}, 0.0),
        ("broadcast3", {"HtoD": 55.0, "PtoP": 350.0}, 94.07),
    ],
)
def test_three_ways_to_broadcast(name, rates, together_pct):
    """From the host to every GPU; host, GPU 0, peer; the same in chunks that overlap."""
    traces = case(name)[:1]
    copies = frame(traces, "copies").set_index("direction")["rate_gbps"]
    assert {key: round(float(value), 1) for key, value in copies.items()} == rates
    pairs = frame(traces, "stream_pairs").set_index(["of", "first", "second"])["both_pct"]
    together = pairs.get(("class", "upload", "exchange"))
    assert together is None if together_pct is None else together == pytest.approx(together_pct, abs=0.01)


@pytest.mark.parametrize(
    ("name", "roles", "upload_under_compute_pct"),
    [
        ("offload_naive", {"mixed"}, 0.0),
        ("offload_overlap", {"compute", "upload", "download"}, 90.8),
    ],
)
def test_offloading_with_and_without_streams_of_its_own(name, roles, upload_under_compute_pct):
    traces = case(name)
    assert set(frame(traces, "streams")["role"]) == roles
    pairs = frame(traces, "stream_pairs").set_index(["of", "first", "second"])["both_pct"]
    assert pairs["class", "compute", "upload"] == pytest.approx(upload_under_compute_pct, abs=0.05)
