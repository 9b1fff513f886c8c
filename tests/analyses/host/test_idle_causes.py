"""Every gap is cut into causes that add up to it; cases are literal, sums are checked on real captures."""

import pytest

from tests.builders import rank_trace
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


def test_an_operation_without_launch_has_unknown_cause():
    assert split([], ops=[FIRST, ("gemm", 110 * US, 120 * US)]) == {"unknown": 100}


@pytest.mark.parametrize(("length", "expected"), [(4_999, "between_kernels"), (5_000, "unknown")])
def test_gaps_under_5_us_are_between_kernels(length, expected):
    trace = host_trace([("gemm", 0, 10), ("gemm", 10 + length, 9_999)], [])
    gaps = host_idle.find(trace)
    table = host_idle.parts(trace, gaps, 0, 9_999)
    assert {name: int(value) for name, value in table.sum().items() if value} == {f"{expected}_ns": length}


@pytest.mark.parametrize(
    ("ops", "idle_ns"),
    [
        ([("gemm", 0, 0), ("gemm", 90, 100), ("gemm", 150, 150)], 140),
        ([("gemm", 0, 0), ("gemm", 100, 100)], 100),
        ([("gemm", 7, 7)], 0),
    ],
)
def test_operations_without_duration_bound_the_window_but_fill_nothing(ops, idle_ns):
    (row,) = run([host_trace(ops)], ["idle"])["idle"].rows()
    assert (row["idle_ns"], row["between_kernels_ns"]) == (idle_ns, idle_ns)


def test_another_thread_speaks_where_the_launching_one_records_nothing():
    """Autograd's thread launches; before its first operator the main thread was in `.item()`."""
    calls = [("cudaLaunchKernel", 80 * US, 90 * US, 2), ("cudaStreamSynchronize", 5 * US, 60 * US, 1)]
    host_ops = [("autograd::engine::evaluate_function: AddBackward0", 40 * US, 95 * US, 2)]
    assert split(calls, host_ops=host_ops) == {"sync": 30, "host": 50, "launch": 20}


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


@pytest.mark.parametrize(
    ("called_us", "returns_us", "since_us"),
    [(40, 115, 40), (105, 115, 110), (40, 50, 50)],
    ids=["its stream is busy", "its stream is idle", "it returns before the copy"],
)
def test_a_copy_that_waits_for_its_stream_blocks_from_its_call_on(called_us, returns_us, since_us):
    ops = [("gemm", 0, 100 * US, 1), ("DtoH", 110 * US, 112 * US, 2, 7, "pageable")]
    calls = [("cudaLaunchKernel", -9 * US, -5 * US), ("cudaMemcpyAsync", called_us * US, returns_us * US)]
    rows, since = host_idle.blocking(host_trace(ops, calls))
    assert (rows.tolist(), since.tolist()) == ([1], [since_us * US])


def test_a_gap_is_cut_at_the_window():
    trace = host_trace(
        [FIRST, ("gemm", 110 * US, 120 * US, 2)], [LAUNCH_FIRST, ("cudaLaunchKernel", 90 * US, 100 * US)]
    )
    table = host_idle.parts(trace, host_idle.find(trace), 60 * US, 105 * US)
    assert table.iloc[0].to_dict() == {
        "sync_ns": 0, "data_ns": 0, "host_ns": 40 * US, "launch_ns": 5 * US, "unknown_ns": 0, "between_kernels_ns": 0
    }  # fmt: skip


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
        assert int(gaps["length_ns"].sum()) + int(whole["between_kernels_ns"].iloc[0]) == int(whole["idle_ns"].iloc[0])


def test_selected_steps_only():
    trace = rank_trace(
        [("compute", 10, 20, 1), ("compute", 40, 60, 11), ("compute", 90, 95, 21)],
        steps=[(0, 10), (10, 20), (20, 30)], wanted="1",
    )  # fmt: skip
    idle = run([trace], ["idle"])["idle"].to_frame()
    assert idle[["step", "window_ns", "idle_ns"]].astype("object").where(idle["step"].notna(), None).to_numpy().tolist() == [
        [None, None, None], [1, 40, 20]
    ]  # fmt: skip
    assert idle["idle_ns"].tolist() == [20, 20]


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
