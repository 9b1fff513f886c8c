"""CUDA graphs that were recorded as one operation: what they hold is unknown, and nothing is said of it."""

from functools import cache

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.findings import find
from traceanalyzer.model import make_trace
from traceanalyzer.selection import Selection, select


def with_graphs(ops, *, steps=()):
    """A rank whose operations that are called `graph` are CUDA graphs recorded whole."""
    trace = host_trace(
        ops,
        [("cudaGraphLaunch" if op[0] == "graph" else "cudaLaunchKernel", op[1] - 1, op[1]) for op in ops],
        ranges=steps,
    )
    is_graph = (trace.gpu_ops["name"] == "graph").to_numpy()
    table = trace.gpu_ops.assign(
        kind=trace.gpu_ops["kind"].astype("object").mask(is_graph, "unknown"),
        activity=trace.gpu_ops["activity"].astype("object").mask(is_graph, "graph"),
    )
    return select(make_trace(trace.meta, gpu_ops=table, api_calls=trace.api_calls, ranges=trace.ranges), Selection())


OPS = [("gemm", 0, 10, 1), ("graph", 10, 90, 2), ("nccl", 85, 95, 3), ("gemm", 98, 100, 4)]


@cache
def whole():
    """All Results of a rank of these."""
    return run([with_graphs(OPS)])


def test_their_time_is_a_part_of_its_own():
    (row,) = run([with_graphs(OPS)], ["breakdown"])["breakdown"].table.to_dict("records")
    assert {name: row[name] for name in ("compute_ns", "exposed_comm_ns", "opaque_ns", "idle_ns", "window_ns")} == {
        "compute_ns": 12, "exposed_comm_ns": 10, "opaque_ns": 75, "idle_ns": 3, "window_ns": 100,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["breakdown", "headline", "exposed_comm"])
def test_what_they_may_hold_is_not_available(name):
    (row,) = run([with_graphs(OPS)], [name])[name].rows()[:1]
    assert {row.get(figure) for figure in ("compute_ns", "comm_ns", "exposed_comm_ns", "overlap_pct")} == {None}
    assert row.get("window_ns", 100) == 100


def test_all_analyses_and_kinds_of_findings_take_them():
    steps = [("ProfilerStep#1", 0, 9), ("ProfilerStep#2", 9, 97)]
    results = run([with_graphs(OPS, steps=steps), with_graphs(OPS).renumbered(1, "test")])
    for result in results.values():
        result.rows()
    assert not [finding for finding in find(results) if finding.leads]
