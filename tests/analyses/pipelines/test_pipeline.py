"""Pipelines: which ranks, in which order, the bubble, the schedule."""

from dataclasses import replace

import pandas as pd
import pytest

from tests import once
from tests.host_builders import host_trace
from tests.samples import sample
from tests.simulator.analysed import analysed
from tests.simulator.jobs.tensor_parallel import chunked_tensor
from traceanalyzer.analyses import run
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.pipelines.pipeline import pipelines_across as summarise
from traceanalyzer.analyses.pipelines.shape import stages, transfers, with_absent
from traceanalyzer.model.schema import COUNTERS, conform


def moves(*rows):
    return pd.DataFrame(rows, columns=["rank", "step", "start_ns", "is_send", "peer"])


SEND, RECEIVE = True, False

CASES = {
    "a chain of three": (
        [(0, 1, 0, SEND, 1), (1, 1, 0, RECEIVE, 0), (1, 1, 1, SEND, 2), (2, 1, 0, RECEIVE, 1)],
        [0, 1, 2], [[0, 1, 2]]),
    "the first stage is the highest rank": (
        [(1, 1, 0, SEND, 0), (0, 1, 0, RECEIVE, 1), (0, 1, 5, SEND, 1)], [0, 1], [[1, 0]]),
    "two pipelines side by side": (
        [(0, 1, 0, SEND, 2), (2, 1, 0, RECEIVE, 0), (1, 1, 0, SEND, 3), (3, 1, 0, RECEIVE, 1)],
        [0, 1, 2, 3], [[0, 2], [1, 3]]),
    "a rank between two was not captured": (
        [(0, 1, 0, SEND, 1), (2, 1, 0, RECEIVE, 1)], [0, 2], [[0, 1, 2]]),
    "the first rank of two was not captured": ([(1, 1, 0, RECEIVE, 0), (1, 1, 1, SEND, 0)], [1], [[0, 1]]),
    "nobody sends": ([], [0, 1], []),
    "one rank serves all others": ([(0, 1, at, RECEIVE, at) for at in (1, 2, 3)], [0, 1, 2, 3], []),
    "the middle of three has two neighbours": (
        [(0, 1, 0, SEND, 1), (1, 1, 0, RECEIVE, 0), (1, 1, 1, SEND, 2), (2, 1, 0, RECEIVE, 1), (2, 1, 5, SEND, 1)],
        [0, 1, 2], [[0, 1, 2]]),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "ranks", "expected"), CASES.values(), ids=CASES)
def test_order_of_stages(rows, ranks, expected):
    table = stages(with_absent(moves(*rows), ranks))
    found = [own.sort_values("stage")["rank"].tolist() for _, own in table.groupby("pipeline")]
    assert found == expected


def calls(**columns):
    fixed = {"rank": 3, "call": 0, "gpu_op": 0, "step": 1, "start_ns": 0, "end_ns": 1, "collective": "send_recv",
             "group_ranks": None}  # fmt: skip
    return pd.DataFrame([fixed | columns])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"peers": "send 1, recv 1"}, [(True, 1), (False, 1)]),
        ({"peers": "send 1", "group_ranks": "1,3"}, [(True, 3)]),
        ({"peers": "send 1", "group_ranks": "not known"}, [(True, 1)]),
        ({"peers": None}, []),
        ({"peers": "send 1", "collective": "all_to_all"}, []),
    ],
)
def test_transfers(columns, expected):
    table = transfers(calls(**columns))
    assert list(zip(table["is_send"], table["peer"], strict=True)) == expected


def stage(rank, compute, idle, wait):
    return {"rank": rank, "pipeline": 0, "stage": rank, "ranks": 4, "absent_ranks": None, "basis": "steps 1, 2", "steps": 2, "window_ns": 1_000,
            "compute_ns": compute, "idle_ns": idle, "p2p_calls": 4, "p2p_ns": 300, "p2p_exposed_ns": 300,
            "p2p_wait_ns": wait, "collective_wait_ns": 10, "schedule": "1F1B", "stages_per_rank": 1, "microbatches": 4,
            "expected_bubble_pct": 300 / 7, "why_unknown": None}  # fmt: skip


def test_bubble_and_balance_of_four_stages():
    rows = [stage(0, 600, 100, 250), stage(1, 600, 100, 250), stage(2, 600, 100, 250), stage(3, 1_000, 0, 0)]
    table = pd.DataFrame(rows).astype({"steps": "Int64", "microbatches": "Int64", "p2p_wait_ns": "Int64"})
    pipeline = Pipeline(table)
    assert pipeline.to_frame()["bubble_pct"].tolist() == [35.0, 35.0, 35.0, 0.0]
    (whole,) = summarise({}, pipeline).rows()
    told = whole["stages"], whole["bottleneck_stage"], whole["bubble_pct"], whole["collective_wait_pct"]
    assert told == (4, 3, 26.25, 1.0)
    # Mean 700; deviations 100, 100, 100, 300: population variance 30,000.
    assert whole["compute_cv"] == pytest.approx(30_000**0.5 / 700)
    assert whole["compute_max_over_mean"] == pytest.approx(1_000 / 700)


def test_a_wait_that_is_not_known_makes_the_bubble_unknown():
    table = pd.DataFrame([stage(0, 600, 100, pd.NA)]).astype({"p2p_wait_ns": "Int64", "microbatches": "Int64"})
    assert Pipeline(table).rows()[0]["bubble_ns"] is None


def test_the_sample_is_a_1f1b_of_four_microbatches():
    results = once.results("pp", ["pipeline", "pipelines", "pipeline_schedule", "exposed_comm"])
    frame = results["pipeline"].to_frame()
    assert frame[["rank", "stage", "microbatches", "p2p_calls"]].to_numpy().tolist() == [[0, 0, 4, 15], [1, 1, 4, 15]]
    assert frame["expected_bubble_pct"].tolist() == [20.0, 20.0]
    # All communication of this job is point-to-point: the waits are those of the same steps.
    waits = results["exposed_comm"].to_frame().query("step in (2, 3, 4)").groupby("rank")["exposed_wait_ns"].sum()
    assert frame["p2p_wait_ns"].tolist() == waits.tolist()
    assert (frame["bubble_ns"] == frame["idle_ns"] + frame["p2p_wait_ns"]).all()
    assert results["pipelines"].rows()[0]["bottleneck_rank"] == 1
    schedule = results["pipeline_schedule"].to_frame()
    order = schedule[schedule["step"] == 2].groupby("rank")[["phase", "microbatch"]].apply(
        lambda own: " ".join(f"{phase[0].upper()}{number}" for phase, number in own.to_numpy())
    )  # fmt: skip
    assert order.tolist() == ["F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]


def test_without_its_peer_a_stage_knows_no_waits():
    (row,) = run(sample("pp").ranks[:1], ["pipeline"])["pipeline"].rows()
    assert (row["p2p_calls"], row["p2p_exposed_ns"] > 0, row["p2p_wait_ns"], row["bubble_ns"]) == (15, True, None, None)


def test_other_jobs_are_no_pipelines():
    results = once.results("moe", ["pipeline", "pipelines", "pipeline_schedule"])
    assert [len(result) for result in results.values()] == [0, 0, 0]


def with_memory(rank, *allocated):
    """A rank whose allocator had given out so many bytes, one after the other."""
    trace = host_trace([("gemm", 0, 60)], rank=rank)
    table = {"time_ns": range(len(allocated)), "name": "memory_allocated_bytes", "value": allocated}
    return replace(trace, counters=conform(pd.DataFrame(table), COUNTERS))


def test_balance_of_memory_is_of_the_peaks():
    rows = run([with_memory(0, 30, 100, 50), with_memory(1, 300)], ["balance"])["balance"].rows()
    (row,) = [row for row in rows if row["figure"] == "peak_allocated_bytes"]
    assert (row["mean_bytes"], row["std_bytes"], row["max_rank"], row["cv"], row["max_over_mean"]) == (
        200,
        100,
        1,
        0.5,
        1.5,
    )
    assert (row["mean_ns"], row["basis"]) == (None, "[memory] events of the capture")


@pytest.mark.parametrize("description", [pytest.param("tp", marks=pytest.mark.thorough), "default_pg"])
def test_parts_that_go_round_are_no_pipeline(description):
    """Each call sends a part to the next rank and receives one from the rank before: none is the first stage."""
    job = chunked_tensor(4, 3)
    groups = {group: replace(group, description=description) for group in job.groups}
    programs = tuple(
        replace(one, instructions=[
            replace(each, comm=each.comm and replace(each.comm, group=groups[each.comm.group])) for each in one.instructions
        ])
        for one in job.programs
    )  # fmt: skip
    _, results = analysed(replace(job, programs=programs, groups=tuple(groups.values())), "pipelines")
    assert not len(results["pipelines"])
