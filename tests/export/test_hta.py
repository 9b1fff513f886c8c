"""HolisticTraceAnalysis over our tables, and beside our figures. It is an extra: these run where it is installed."""

import subprocess
import sys

import pandas as pd
import pytest

import traceanalyzer as ta
from tests.samples import RUNNERS, sample
from traceanalyzer.export import hta

HAS_HTA = pytest.mark.skipif("not __import__('importlib.util').util.find_spec('hta')", reason="hta is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # its own, of pandas


def test_without_it_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "hta", None)
    with pytest.raises(ta.UsageError, match=r"pip install '\.\[hta\]' in the clone"):
        ta.to_hta(sample("moe"))


@pytest.mark.parametrize("name", ["moe", "nsys_fsdp_full"])
def test_every_event_has_its_partner_and_step(name):
    trace = sample(name)[0]
    frame = hta._frame(trace, 0).set_index("index", drop=False)
    ops = frame[frame["stream"] >= 0]
    assert len(ops) == len(trace.gpu_ops)
    linked = ops[ops["index_correlation"] > 0]
    calls = frame.loc[linked["index_correlation"]]
    assert len(linked) == (trace.gpu_ops["launch"] >= 0).sum() > 0
    assert (calls["correlation"].to_numpy() == linked["correlation"].to_numpy()).all()
    assert (calls["iteration"].to_numpy() == linked["iteration"].to_numpy()).all()
    assert (ops["dur"] * 1e3).round().astype("int64").tolist() == (
        trace.gpu_ops["end_ns"] - trace.gpu_ops["start_ns"]
    ).tolist()


@pytest.fixture
def as_users_have_it():
    """pandas as it is before this package sets it up for a process of its own."""
    if pd.__version__.startswith("3"):
        yield
        return
    with pd.option_context("future.infer_string", False, "mode.copy_on_write", False):
        yield


@HAS_HTA
@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("name", ["pytorch_ddp", "simple_ddp", "zero3"])
def test_its_own_main_calls_work_with_the_pandas_that_the_extra_installs(name):
    from hta.trace_analysis import TraceAnalysis

    files = {rank: str(RUNNERS / name / f"rank_{rank}" / "capture.pt.trace.json.gz") for rank in (0, 1)}
    analysis = TraceAnalysis(trace_files=files, trace_dir="")
    assert len(analysis.get_temporal_breakdown(visualize=False)) == 2
    assert len(analysis.get_comm_comp_overlap(visualize=False)) == 2
    assert all(len(table) for table in analysis.get_gpu_kernel_breakdown(visualize=False))
    assert len(analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0])
    graph, is_found = analysis.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=1)
    assert is_found
    assert len(graph.critical_path_nodes)


@HAS_HTA
@pytest.mark.usefixtures("as_users_have_it")
@pytest.mark.parametrize("name", ["pytorch_ddp", "pytorch_ddp_nsys"])
def test_its_figures_are_ours_where_both_look_at_the_same(name):
    analysis = ta.to_hta(sample(name), include_last_profiler_step=True)
    theirs = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]
    ours = ta.breakdown(sample(name)).to_frame().set_index("rank")["overlap_pct"]
    assert theirs.to_numpy() == pytest.approx(ours.to_numpy(), abs=0.1)  # without what no step launched
    assert len(analysis.get_queue_length_summary(ranks=[0, 1]))


@HAS_HTA
@pytest.mark.parametrize("name", ["pytorch_ddp", "pytorch_ddp_nsys", "zo_offload"])
def test_every_difference_has_its_reason(name):
    from traceanalyzer.export.hta import REASONS, crosscheck

    files = {rank: RUNNERS / name / f"rank_{rank}" / "capture.pt.trace.json.gz" for rank in (0, 1)}
    table = crosscheck(sample(name), None if "nsys" in name else files)
    assert set(table["figure"]) == {"window_ns", "compute_ns", "non_compute_ns", "idle_ns", "overlap_pct"}
    assert table["unexplained"].dropna().abs().max() < 1e-6
    told = table[[*REASONS, "unexplained"]].sum(axis=1)
    assert told.to_numpy() == pytest.approx(table["difference"].fillna(0).to_numpy(), abs=1e-6)


IN_A_NOTEBOOK = """
import pandas as pd, traceanalyzer as ta
before = pd.get_option("mode.string_storage"), pd.get_option("future.infer_string")
traces = ta.load("sample_traces/zero3")
assert len(ta.find(traces)) and ta.what_if(traces, "comm free").lines()
assert not ta.kernels(traces).to_frame()["name"].eq("nan").any()
ta.compare("sample_traces/simple_ddp", "sample_traces/pytorch_ddp").save("{0}/both")
ta.report(traces).save("{0}/one")
ta.export(traces, "{0}/trace.pftrace")
assert before == (pd.get_option("mode.string_storage"), pd.get_option("future.infer_string"))
"""


@pytest.mark.skipif(pd.__version__.startswith("3"), reason="pandas 3 has its texts always")
def test_a_notebook_with_pandas_2_keeps_its_settings(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NOTEBOOK.format(tmp_path)],
        cwd=RUNNERS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "FutureWarning" not in done.stderr
    assert (tmp_path / "one" / "summary.html").is_file()
