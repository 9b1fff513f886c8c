"""A rank that does nothing but copy is bound by its copies, and the link's limit is named."""

import pytest

import traceanalyzer as ta
from tests.builders import rank_trace
from tests.findings.needed import needed_by
from tests.host_builders import host_trace
from tests.nsys_builders import export, gid, read_all, write_sqlite
from tests.samples import SAMPLES
from traceanalyzer.analyses import run
from traceanalyzer.findings.devices import copies

MS = 1_000_000


def found(traces):
    return copies.copy_bound(**run(traces, needed_by(copies.copy_bound)))


def test_a_broadcast_by_two_uploads_fills_the_link():
    (one,) = found(ta.load(SAMPLES / "streams" / "broadcast1.json.gz").ranks)
    title = one.title.replace("\u202f", " ")
    assert title.startswith(
        "Both ranks are bound by copies: for 100 % of the time nothing else runs; most of it host to device"
    )
    assert (
        "from pinned memory, 268 MB in the capture at 55.4 GB/s of the 63 GB/s that its link carries that way." in title
    )
    assert one.recommendation.startswith("Move fewer bytes over the link, which is full ")
    # The program computes nothing: nothing could hide the copies.
    assert title.endswith("Nothing computes there that could hide them: what they can gain cannot be told.")
    assert one.gain_ns is None
    assert "computed" not in one.recommendation


@pytest.mark.parametrize(
    ("copy_ns", "said"),
    [
        (60, "Rank 0 is bound by copies: for 60 % of the time nothing else runs"),
        (40, "On rank 0 for 40 % of the time nothing but copies runs"),
        (9, None),
    ],
)
def test_half_of_the_window_binds_and_a_tenth_is_worth_hiding(copy_ns, said):
    findings = found([rank_trace([("compute", 0, 100 - copy_ns), ("copy", 100 - copy_ns, 100)])])
    assert [one.title.startswith(said) for one in findings] == ([True] if said else [])
    assert all(one.gain_ns == copy_ns and one.is_of_ideal == (copy_ns < 50) for one in findings)


@pytest.mark.parametrize(
    ("launch_ms", "step_ms", "said"),
    [(5, 90, "Hidden, a mean step is at most 26.0 ms shorter"), (70, 100, "As recorded the hosts decide")],
)
def test_what_hiding_gains_depends_on_the_hosts(launch_ms, step_ms, said):
    """A copy of 30 ms, then a product, launched while that runs, or 40 ms after it; then the host waits for both."""
    begins = [step_ms * MS * step for step in range(4)]
    steps = [(f"ProfilerStep#{place}", start, start + step_ms * MS) for place, start in enumerate(begins)]
    calls, ops, held = [], [], []
    for start in begins:
        late, end = start + launch_ms * MS, start + (step_ms - 1) * MS
        calls += [("cudaMemcpyAsync", start, start + MS), ("cudaLaunchKernel", late, late + MS)]
        held += [("aten::copy_", start, start + MS), ("aten::mm", start + 2 * MS, late + MS)]
        ops.append(("HtoD", start + MS, start + 31 * MS, len(calls) - 1))
        ops.append(("gemm", max(late, start + 30 * MS) + MS, end, len(calls)))
        calls.append(("cudaDeviceSynchronize", late + 2 * MS, end))
    (one,) = found([host_trace(ops, calls, host_ops=held, ranges=steps)])
    assert said in one.title


def test_a_gpu_whose_link_is_not_known_has_no_limit():
    (one,) = found([rank_trace([("copy", 0, 100)])])
    assert "GB/s that" not in one.title
    assert one.caveat is None


def test_copies_beside_graphs_that_are_recorded_whole_bind_nobody(tmp_path):
    """What these graphs run is not known, so that no share of copies is."""
    graph = {"start": 400, "end": 900, "deviceId": 0, "streamId": 7, "correlationId": 9, "globalPid": gid(100),
             "graphId": 3, "graphExecId": 4}  # fmt: skip
    tables = export() | {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [graph]}
    del tables["NVTX_EVENTS"]  # no steps: the whole capture is looked at
    traces = read_all(write_sqlite(tmp_path / "whole.sqlite", tables))
    assert run(traces, ["headline"])["headline"].to_frame()["exposed_copy_pct"].isna().all()
    assert len(run(traces, ["copies"])["copies"])
    assert found(traces) == []
