"""Summaries of API calls, copies, gaps, utilisation, projections and metrics, on literals."""

import pandas as pd
import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import ANALYSES, run
from traceanalyzer.model import RankMeta, make_trace
from traceanalyzer.selection import Selection, select

OURS = ("cuda_api", "memory_ops", "sync_copies", "gpu_gaps", "gpu_utilization", "nvtx_projection", "gpu_metrics")


def trace_of(rank=0, steps="all", **tables):
    frames = {name: pd.DataFrame(rows) for name, rows in tables.items()}
    return select(make_trace(RankMeta(rank, "test", ("x",), "nsys"), **frames), Selection(steps=steps))


def api(start, end, name="cudaLaunchKernel", correlation=-1, thread=1):
    return {"start_ns": start, "end_ns": end, "name": name, "correlation": correlation, "thread": thread}


def op(start, end, *, activity="kernel", correlation=-1, name="gemm", kind="compute", stream=7, **more):
    return {"start_ns": start, "end_ns": end, "activity": activity, "correlation": correlation, "name": name,
            "kind": kind, "stream": stream} | more  # fmt: skip


def copy(start, end, *, direction="HtoD", memories=("pinned", "device"), size=100, correlation=-1):
    return op(start, end, activity="memcpy", kind="copy", name=f"Memcpy {direction}", correlation=correlation,
              direction=direction, source_memory=memories[0], target_memory=memories[1], bytes=size)  # fmt: skip


def named(start, end, name, *, thread=1, domain=None):
    return {"start_ns": start, "end_ns": end, "name": name, "thread": thread, "domain": domain}


def plain(name, trace, *columns, **options):
    frame = run([trace], [name], **options)[name].to_frame()[list(columns)].astype(object)
    return list(frame.where(frame.notna(), None).itertuples(index=False, name=None))


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("ops", [[], [("compute", 0, 10)]])
def test_each_survives_a_rank_without_anything(name, ops):
    result = run([rank_trace(ops), rank_trace([], rank=1)], [name])[name]
    frame = result.to_frame()
    assert list(frame.columns) == list(result.columns)
    assert not frame.duplicated(list(result.keys)).any()


@pytest.mark.parametrize("name", OURS)
def test_each_column_has_a_definition_and_keys_are_columns(name):
    result = ANALYSES[name].across({})
    assert set(result.keys) <= set(result.columns)
    assert all(column.definition.endswith((".", ".)")) for column in result.columns.values())


def test_cuda_api():
    trace = trace_of(api_calls=[api(0, 10), api(20, 50), api(100, 160, "cudaFree")], gpu_ops=[op(0, 1)])
    columns = ("name", "calls", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns", "share_pct")
    assert plain("cuda_api", trace, *columns) == [
        ("cudaFree", 1, 60, 60.0, 60.0, 60, 60, None, 60.0),
        ("cudaLaunchKernel", 2, 40, 20.0, 20.0, 10, 30, pytest.approx(200**0.5), 40.0),
    ]


def test_memory_ops():
    memset = op(60, 61, activity="memset", kind="copy", name="Memset (Device)", bytes=8)
    trace = trace_of(gpu_ops=[copy(0, 10), copy(20, 40, size=300), copy(50, 53, direction="DtoD"), memset, op(70, 99)])
    columns = ("operation", "calls", "total_ns", "total_bytes", "mean_bytes", "max_bytes", "bandwidth_gb_per_s")
    assert plain("memory_ops", trace, *columns) == [
        ("HtoD", 2, 30, 400, 200.0, 300, pytest.approx(400 / 30)),
        ("DtoD", 1, 3, 100, 100.0, 100, pytest.approx(100 / 3)),
        ("memset", 1, 1, 8, 8.0, 8, 8.0),
    ]


@pytest.mark.parametrize(
    ("call", "memories", "problem"),
    [
        ("cudaMemcpy", ("pinned", "device"), "synchronous"),
        ("cuMemcpyHtoD_v2", ("pageable", "device"), "synchronous"),
        ("cudaMemcpyAsync", ("pageable", "device"), "pageable"),
        ("cudaMemcpy2DAsync", ("device", "pageable"), "pageable"),
        ("cudaMemcpyAsync", ("pinned", "device"), None),
        ("cudaGraphLaunch", ("pageable", "device"), None),
    ],
)
def test_sync_copies(call, memories, problem):
    trace = trace_of(
        gpu_ops=[copy(10, 30, memories=memories, correlation=5)], api_calls=[api(0, 40, call, correlation=5)]
    )
    found = plain("sync_copies", trace, "problem", "api_call", "calls", "total_bytes", "gpu_ns", "host_ns")
    assert found == ([] if problem is None else [(problem, call, 1, 100, 20, 40)])


def test_gaps():
    trace = trace_of(
        gpu_ops=[op(0, 10, name="a"), op(5, 8, name="b"), op(30, 40, name="c", correlation=1), op(45, 60, name="d"),
                 op(100, 110, name="e", correlation=2)],
        api_calls=[api(12, 25, correlation=1), api(50, 55, "cudaGraphLaunch", correlation=2)],
    )  # fmt: skip
    columns = ("start_ns", "gap_ns", "before", "after", "launch", "launched_after_ns")
    assert plain("gpu_gaps", trace, *columns, min_gap_ns=5) == [
        (60, 40, "d", "e", "cudaGraphLaunch", -5),
        (10, 20, "a", "c", "cudaLaunchKernel", 15),
        (40, 5, "c", "d", None, None),
    ]
    assert len(plain("gpu_gaps", trace, "start_ns", min_gap_ns=5, most_gaps=1)) == 1
    assert plain("gpu_gaps", trace, "start_ns", min_gap_ns=41) == []


def test_the_gaps_of_a_rank_are_its_idle_time():
    trace = rank_trace([("compute", 0, 10), ("comm", 4, 30), ("copy", 50, 70), ("compute", 71, 75)])
    gaps = sum(length for (length,) in plain("gpu_gaps", trace, "gap_ns", min_gap_ns=1))
    assert gaps == run([trace], ["breakdown"])["breakdown"].table["idle_ns"].iloc[0] == 21


def test_utilisation():
    trace = rank_trace([("compute", 0, 30), ("comm", 20, 50), ("copy", 90, 100)])
    columns = ("bin", "start_ns", "bin_ns", "busy_ns", "busy_pct", "compute_ns", "exposed_comm_ns", "exposed_copy_ns")
    assert plain("gpu_utilization", trace, *columns, bins=4) == [
        (0, 0, 25, 25, 100.0, 25, 0, 0),
        (1, 25, 25, 25, 100.0, 5, 20, 0),
        (2, 50, 25, 0, 0.0, 0, 0, 0),
        (3, 75, 25, 10, 40.0, 0, 0, 10),
    ]


@pytest.mark.parametrize(("length", "bins"), [(100, 7), (3, 60), (1_000_003, 60)])
def test_stretches_add_up_to_the_window(length, bins):
    trace = rank_trace([("compute", 0, 1), ("compute", length - 1, length)])
    assert sum(length_ns for (length_ns,) in plain("gpu_utilization", trace, "bin_ns", bins=bins)) == length


def test_projection():
    trace = trace_of(
        gpu_ops=[op(100, 120, correlation=1), op(110, 150, correlation=2, stream=8), op(200, 210, correlation=3),
                 op(300, 310, correlation=4)],
        api_calls=[api(1, 2, correlation=1), api(3, 4, correlation=2), api(12, 13, correlation=3),
                   api(14, 15, correlation=4, thread=2)],
        ranges=[named(0, 10, "outer"), named(2, 5, "inner", domain="mine"), named(10, 20, "outer"),
                named(20, 30, "empty")],
    )  # fmt: skip
    columns = ("domain", "name", "ranges", "calls", "operations", "host_ns", "total_ns", "min_ns", "max_ns")
    assert plain("nvtx_projection", trace, *columns) == [
        (None, "outer", 2, 2, 3, 20, 60, 10, 50),  # thread 2 is not its own
        ("mine", "inner", 1, 1, 1, 3, 40, 40, 40),
    ]


def test_metrics():
    samples = [(5, "SMs Active", 10.0), (15, "SMs Active", 20.0), (16, "SMs Active", float("nan")),
               (99, "SMs Active", 90.0), (15, "memory_allocated_bytes", 7.0)]  # fmt: skip
    counters = [{"time_ns": time, "name": name, "value": value} for time, name, value in samples]
    trace = trace_of(gpu_ops=[op(0, 20)], counters=counters)
    assert plain("gpu_metrics", trace, "counter", "samples", "mean", "min", "max") == [
        ("SMs Active", 2, 15.0, 10.0, 20.0)
    ]
