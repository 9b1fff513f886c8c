"""What is known of the runners' captures in `sample_traces` comes out of them, and nothing of the machine is in them."""

import gzip
import json
import re

import pytest

import traceanalyzer as ta
from tests import once
from tests.samples import RUNNERS, of_each_kind

KINETO = sorted(folder.name for folder in RUNNERS.iterdir() if any(folder.glob("rank_*/*.json.gz")))


def test_there_are_captures():
    assert len(KINETO) == 8


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("pytorch_ddp", {"all_reduce": 8}),
        pytest.param("simple_ddp", {"all_reduce": 37}, marks=pytest.mark.thorough),  # one a parameter
        pytest.param("zero2", {"all_gather": 5, "reduce_scatter": 5}, marks=pytest.mark.thorough),  # blocks + 1
        pytest.param("zero3", {"all_gather": 9, "reduce_scatter": 5}, marks=pytest.mark.thorough),  # 2 · blocks + 1
        ("zo_offload", {"all_reduce": 1}),
        pytest.param("zo_offload_sliced", {"all_gather": 4, "all_reduce": 1}, marks=pytest.mark.thorough),
        ("pytorch_ddp_nsys", {"all_reduce": 8}),
        ("pp_1f1b", {"recv": 1, "send": 1, "send_recv": 3}),  # 4 microbatches there and back, paired but for the ends
    ],
)
def test_every_complete_step_has_the_strategys_calls(name, calls):
    found = once.results(name)["calls"].to_frame()
    steps = found[(found["rank"] == 0) & found["step"].isin([3, 4])].groupby("step")["collective"]
    assert [step.value_counts().to_dict() for _, step in steps] == [calls, calls]


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        pytest.param("simple_ddp", 0, 0, marks=pytest.mark.thorough),
        ("pytorch_ddp", 75, 85),
        ("pytorch_ddp_nsys", 75, 90),
        pytest.param("zero2", 20, 50, marks=pytest.mark.thorough),
        pytest.param("zero3", 50, 60, marks=pytest.mark.thorough),
    ],
)
def test_overlap_is_the_strategys(name, least, most):
    overlap = once.results(name)["headline"].to_frame()["overlap_pct"]
    assert overlap.between(least, most).all()


@pytest.mark.parametrize("name", of_each_kind(KINETO))
def test_the_profiled_host_stays_ahead_of_the_gpu(name):
    """The defaults' batches: idle by host is under 5% of the complete steps."""
    idle = once.results(name)["idle"].to_frame()
    own = idle[idle["step"].isin([3, 4])].groupby("rank")[["host_ns", "window_ns"]].sum()
    assert (own["host_ns"] < 0.05 * own["window_ns"]).all()


@pytest.mark.parametrize("name", of_each_kind(["zo_offload", "zo_offload_sliced"]))
def test_what_is_uploaded_is_what_the_runner_counted(name):
    expected = json.loads((RUNNERS / name / "run.json").read_text())["transfer"][0]["uploaded_bytes_per_step"]
    copies = ta.copies(ta.load(RUNNERS / name, steps="3:5")).to_frame()
    uploads = copies[copies["direction"] == "HtoD"].groupby("rank")["size_bytes"].sum() / 3
    # And a batch of tokens.
    assert ((uploads - expected) < 1e6).all()
    assert (uploads > expected).all()
    assert (copies.loc[copies["direction"] == "HtoD", "source_memory"] == "pinned").all()


@pytest.mark.parametrize("name", of_each_kind(KINETO))
def test_every_analysis_of_one_step_adds_up(name):
    """Communication that was launched before the step and still runs in its window included."""
    results = ta.analyse(ta.load(RUNNERS / name, steps="3"), "phases", "breakdown")
    phases, breakdown = results["phases"].to_frame(), results["breakdown"].to_frame()
    whole = phases[phases["step"].isna()].groupby("rank")["total_ns"].sum()
    assert whole.tolist() == breakdown.sort_values("rank")["window_ns"].tolist()


def test_no_capture_names_its_machine():
    words = re.compile(rb'"/[a-z]+/|/(?:home|root|tmp|opt)/|nsight_systems|hostname|host_name|HOSTNAME|PATH=')
    files = [path for path in RUNNERS.rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        found = words.search(gzip.decompress(content) if path.suffix == ".gz" else content)
        assert found is None, (path, found)
