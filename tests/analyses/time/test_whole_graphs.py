"""CUDA graphs that were recorded as one operation: what they hold is unknown, and nothing is said of it."""

import base64
import json
import zlib
from functools import cache

import pytest

from tests.host_builders import host_trace
from traceanalyzer.analyses import run
from traceanalyzer.findings import find
from traceanalyzer.gate import check_run, parse
from traceanalyzer.model import make_trace
from traceanalyzer.report import words
from traceanalyzer.report.contents import Report
from traceanalyzer.report.timeline import timeline_data
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


@pytest.mark.parametrize("name", ["breakdown", "headline", "overlap", "exposed_comm", "graphs"])
def test_what_they_may_hold_is_not_available(name):
    (row,) = run([with_graphs(OPS)], [name])[name].rows()[:1]
    assert {row.get(figure) for figure in ("compute_ns", "comm_ns", "exposed_comm_ns", "overlap_pct")} == {None}
    assert row.get("window_ns", 100) == 100 or name == "graphs"


def test_all_analyses_and_rules_take_them():
    steps = [("ProfilerStep#1", 0, 9), ("ProfilerStep#2", 9, 97)]
    results = run([with_graphs(OPS, steps=steps), with_graphs(OPS).renumbered(1, "test")])
    for result in results.values():
        result.rows()
    assert not [finding.rule for finding in find(results) if finding.rule in ("uneven_compute", "little_overlap")]


@pytest.mark.parametrize(
    "text", ["exposed_comm_pct > 5", "compute_pct < 1", "exposed_comm_ns > 1 s", "overlap_pct < 0"]
)
def test_a_gate_on_what_is_unknown_is_not_available(text):
    (outcome,) = check_run([parse(text)], whole(), "run")
    assert outcome.status == "cannot be judged"


def test_a_gate_on_idle_time_holds():
    (outcome,) = check_run([parse("idle_pct > 5")], whole(), "run")
    assert outcome.status == "passed"


def test_the_verdict_does_not_say_that_all_is_well():
    results = whole()
    said = " ".join(words.verdict_sentences(Report("run", results), words.split(results)))
    assert "75\u202f% of it CUDA graphs" in said.replace(" %", "\u202f%")
    assert "computes for" not in said
    assert "Nothing stands out" not in said


def test_a_window_without_them_is_as_ever():
    (row,) = run([with_graphs([OPS[0], OPS[3]])], ["headline"])["headline"].rows()
    assert (row["compute_ns"], row["opaque_ns"], row["exposed_comm_pct"]) == (12, 0, 0.0)


def test_a_stream_that_runs_them_is_of_no_known_kind():
    (row,) = run([with_graphs([("graph", 0, 80, 1), ("gemm", 80, 100, 2)])], ["streams"])["streams"].rows()
    assert (row["busy_ns"], row["unknown_ns"], row["compute_ns"], row["role"]) == (100, 80, None, "mixed")
    (row,) = run([with_graphs([("graph", 0, 80, 1)])], ["streams"])["streams"].rows()
    assert row["role"] == "unknown"


def test_what_overlaps_inside_them_is_not_said():
    trace = with_graphs([("graph", 0, 80, 1), ("gemm", 80, 100, 2), ("nccl", 70, 90, 3)])
    assert {row["of"] for row in run([trace], ["stream_pairs"])["stream_pairs"].rows()} <= {"stream"}
    plain = with_graphs([("gemm", 80, 100, 1), ("nccl", 70, 90, 2)])
    assert "class" in {row["of"] for row in run([plain], ["stream_pairs"])["stream_pairs"].rows()}


def test_the_timeline_has_them_in_a_lane_of_their_own():
    data = timeline_data(whole())
    meta = json.loads(zlib.decompress(base64.b64decode(data.meta)))
    assert {kind for _, _, kind in meta["names"]} == {"compute", "comm", "unknown"}
