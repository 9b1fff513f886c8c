"""Pipelines: which ranks, in which order, the bubble, the schedule."""

import pandas as pd
import pytest

from tests import once
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.pipelines.pipeline import pipelines_across as summarise

SEND, RECEIVE = True, False


def calls(**columns):
    fixed = {"rank": 3, "call": 0, "gpu_op": 0, "step": 1, "start_ns": 0, "end_ns": 1, "collective": "send_recv",
             "group_ranks": None}  # fmt: skip
    return pd.DataFrame([fixed | columns])


def stage(rank, compute, idle, wait):
    return {"rank": rank, "pipeline": 0, "stage": rank, "ranks": 4, "absent_ranks": None, "basis": "steps 1, 2", "steps": 2, "window_ns": 1_000,
            "compute_ns": compute, "idle_ns": idle, "p2p_wait_ns": wait, "schedule": "1F1B", "stages_per_rank": 1, "microbatches": 4,
            "expected_bubble_pct": 300 / 7, "why_unknown": None}  # fmt: skip


def test_bubble_and_balance_of_four_stages():
    rows = [stage(0, 600, 100, 250), stage(1, 600, 100, 250), stage(2, 600, 100, 250), stage(3, 1_000, 0, 0)]
    table = pd.DataFrame(rows).astype({"steps": "Int64", "microbatches": "Int64", "p2p_wait_ns": "Int64"})
    pipeline = Pipeline(table)
    assert pipeline.to_frame()["bubble_pct"].tolist() == [35.0, 35.0, 35.0, 0.0]
    (whole,) = summarise(pipeline).rows()
    assert (whole["stages"], whole["bubble_pct"]) == (4, 26.25)
    # Mean 700; deviations 100, 100, 100, 300: population variance 30,000.
    assert whole["compute_cv"] == pytest.approx(30_000**0.5 / 700)


def test_the_sample_is_a_1f1b_of_four_microbatches():
    results = once.results("pp", ["pipeline", "pipeline_schedule", "exposed_comm"])
    frame = results["pipeline"].to_frame()
    assert frame[["rank", "stage", "microbatches"]].to_numpy().tolist() == [[0, 0, 4], [1, 1, 4]]
    assert frame["expected_bubble_pct"].tolist() == [20.0, 20.0]
    # All communication of this job is point-to-point: the waits are those of the same steps.
    waits = results["exposed_comm"].to_frame().query("step in (2, 3, 4)").groupby("rank")["exposed_wait_ns"].sum()
    assert frame["p2p_wait_ns"].tolist() == waits.tolist()
    assert (frame["bubble_ns"] == frame["idle_ns"] + frame["p2p_wait_ns"]).all()
    schedule = results["pipeline_schedule"].to_frame()
    order = schedule[schedule["step"] == 2].groupby("rank")[["phase", "microbatch"]].apply(
        lambda own: " ".join(f"{phase[0].upper()}{number}" for phase, number in own.to_numpy())
    )  # fmt: skip
    assert order.tolist() == ["F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]


def test_other_jobs_are_no_pipelines():
    results = once.results("moe", ["pipeline", "pipelines", "pipeline_schedule"])
    assert [len(result) for result in results.values()] == [0, 0, 0]
