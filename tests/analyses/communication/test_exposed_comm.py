"""Exposed communication splits exactly, on hand-made traces and on every sample."""

import pandas as pd
import pytest

import traceanalyzer as ta
from tests import once
from tests.builders import rank_trace
from tests.samples import OF_EACH_KIND, SAMPLES, sample
from tests.simulator import Capture, scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses import run

PARTS = ["exposed_transfer_ns", "exposed_wait_ns", "exposed_unmatched_ns"]


@pytest.mark.parametrize(
    ("early", "late", "parts"),
    [
        ([("comm", 0, 100)], [("comm", 80, 100)], (20, 80, 0)),
        ([("compute", 0, 30), ("comm", 10, 100)], [("comm", 80, 100)], (20, 50, 0)),
        ([("comm", 0, 100), ("compute", 70, 95)], [("comm", 80, 100)], (5, 70, 0)),
        ([("comm", 0, 100), ("comm", 200, 260)], [("comm", 80, 100)], (20, 80, 60)),
    ],
    ids=["bare", "compute hides wait", "compute hides both", "one unmatched"],
)
def test_order_is_compute_transfer_wait(early, late, parts):
    traces = [rank_trace(ops, rank=rank) for rank, ops in enumerate((early, late))]
    frame = run(traces, ["exposed_comm"])["exposed_comm"].to_frame()
    assert tuple(frame.loc[frame["rank"] == 0, PARTS].iloc[0]) == parts


def check(results):
    frame = results["exposed_comm"].to_frame()
    assert (frame[PARTS].sum(axis=1) == frame["exposed_comm_ns"]).all()
    assert (frame[PARTS] >= 0).all().all()
    whole = frame[frame["step"].isna()].set_index("rank")
    waits = results["waits"].to_frame()
    lengths = (waits["end_ns"] - waits["start_ns"]).groupby(waits["rank"]).sum()
    assert lengths.reindex(whole.index, fill_value=0).tolist() == whole["exposed_wait_ns"].tolist()
    breakdown = results["breakdown"].to_frame().set_index("rank")
    assert breakdown["exposed_comm_ns"].to_dict() == whole["exposed_comm_ns"].to_dict()


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_parts_add_up_on_every_sample(name):
    check(once.results(name, ["exposed_comm", "waits", "breakdown"]))


@pytest.mark.parametrize(
    "job",
    [pytest.param(scenarios.hsdp(slow_compute_ns={1: 200_000}), marks=pytest.mark.thorough), scenarios.pipeline(3)],
    ids=["hsdp", "pp"],
)
def test_parts_add_up_on_simulated_jobs(job):
    check(analysed(job, "exposed_comm", "waits", "breakdown", how=Capture(dropped={1: (2,)}))[1])


def test_ddp_is_a_wait_for_a_late_host():
    rows = ta.exposed_comm(sample("ddp")).to_frame()
    whole = rows[(rows["rank"] == 1) & rows["step"].isna()].iloc[0]
    assert whole[PARTS].tolist() == [7_337_965, 128_880_196, 1_536_759]
    assert whole["exposed_comm_ns"] == 137_754_920


@pytest.mark.parametrize(
    ("name", "rank", "cause"), [("ddp", 0, "host"), ("ddp_straggler", 1, "compute"), ("pp", 1, None)]
)
def test_stragglers_of_samples(name, rank, cause):
    first = once.results(name, ["stragglers"])["stragglers"].to_frame().iloc[0]
    assert first["rank"] == rank
    assert first["cause"] == cause or (pd.isna(first["cause"]) and cause is None)


def test_selected_steps_keep_their_waits():
    def of_steps(results):
        frame = results["exposed_comm"].to_frame()
        return frame[frame["step"].isin([2, 3])].reset_index(drop=True)

    selected = ta.load(SAMPLES / "fsdp_full", steps="2:3")
    results = run(selected.ranks, ["exposed_comm", "waits", "breakdown"])
    pd.testing.assert_frame_equal(of_steps(results), of_steps(once.results("fsdp_full", ["exposed_comm"])))
    frame = results["exposed_comm"].to_frame()
    assert (frame[PARTS].sum(axis=1) == frame["exposed_comm_ns"]).all()
