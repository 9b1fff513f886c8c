"""Schedules: recognised from messages, from ranges, or said to be unknown."""

import pandas as pd
import pytest

from tests.simulator.analysed import analysed
from tests.simulator.jobs import dualpipe, megatron, torch_schedules
from traceanalyzer.analyses.pipelines import pipeline
from traceanalyzer.analyses.pipelines.pipeline import schedule_of


def folded(ranks):
    return lambda stage: min(stage, 2 * ranks - 1 - stage)


@pytest.mark.parametrize("are_apart", [False, True])
@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 8), (4, 20), (8, 20), (8, 16)])
def test_a_pipeline_of_two_ways_has_the_bubble_that_is_published(ranks, microbatches, are_apart):
    """DualPipe's (S/2 − 1)(F&B + B − 3W), from numbered passes and from messages."""
    passes = dualpipe.stretches(ranks, microbatches, {"F": 100, "I": 100, "W": 100, "B": 200}, are_apart=are_apart)
    found = schedule_of(pd.DataFrame(columns=["rank", "step", "is_send"]), passes, list(range(ranks)), [0, 1])
    assert (found.name, found.stages_per_rank, found.microbatches) == (pipeline.BOTH_WAYS, 2, microbatches)
    idle = (ranks / 2 - 1) * (300 + 200 - 300)
    assert found.expected_bubble_pct == pytest.approx(100 * idle / (idle + microbatches * 300))


@pytest.mark.parametrize("microbatches", [8, 16])
@pytest.mark.parametrize(
    ("made_by", "name", "inputs", "weights", "idle"),
    [
        ("ScheduleInterleaved1F1B", "interleaved 1F1B", 100, 100, 3 * 300),  # (S−1)(F+B)
        ("ScheduleInterleavedZeroBubble", "zero-bubble", 100, 100, 3 * 100),  # ZB1P's (S−1)(F+B−2W)
        ("ScheduleInterleavedZeroBubble", "zero-bubble", 120, 60, 3 * 160),
        ("ScheduleZBVZeroBubble", "zero-bubble, V-shaped", 100, 100, 3 * 100),
        ("ScheduleZBVZeroBubble", "zero-bubble, V-shaped", 120, 60, 3 * 120),
        # DualPipeV's (S−1)(F&B+B−3W) of S ranks, a forward pass and the backward one beside it taking F + B.
        ("ScheduleDualPipeV", "V-shaped, forward beside backward (DualPipeV)", 100, 100, 3 * 200),
    ],
)
def test_pytorchs_schedules_have_the_bubbles_that_are_published(made_by, name, inputs, weights, idle, microbatches):
    """B = I + W of passes forward (F = 100), backward of inputs and of weights, and whole backward."""
    pytest.importorskip("torch.distributed.pipelining.schedules")
    lengths = {"F": 100, "I": inputs, "W": weights, "B": inputs + weights}
    passes = torch_schedules.stretches(torch_schedules.actions(made_by, 4, 2, microbatches), lengths)
    found = schedule_of(pd.DataFrame(columns=["rank", "step", "is_send"]), passes, [0, 1, 2, 3], [0, 1])
    assert (found.name, found.stages_per_rank, found.microbatches) == (name, 2, microbatches)
    busy = 2 * microbatches * (100 + inputs + weights)
    assert found.expected_bubble_pct == pytest.approx(100 * idle / (busy + idle))


@pytest.mark.parametrize(
    ("made_by", "name"),
    [
        ("ScheduleDualPipeV", "V-shaped, forward beside backward (DualPipeV)"),
        ("ScheduleInterleavedZeroBubble", "zero-bubble"),
    ],
)
def test_a_job_waits_as_long_as_its_schedule_makes_it(made_by, name):
    pytest.importorskip("torch.distributed.pipelining.schedules")
    job = torch_schedules.job(made_by, 4, 8, {"F": 500_000, "I": 500_000, "W": 500_000, "B": 1_000_000})
    truth, results = analysed(job, "pipelines")
    (row,) = results["pipelines"].rows()
    assert (row["schedule"], row["stages"], row["microbatches"]) == (name, 8, 8)
    assert row["expected_bubble_pct"] == pytest.approx(true_idle_pct(truth), abs=1.5)
    assert row["bubble_pct"] == pytest.approx(row["expected_bubble_pct"], abs=4)


def test_megatrons_interleaved_schedule_sends_and_receives_in_one_call():
    _, results = analysed(megatron.interleaved(), "pipelines", "groups")
    rows = results["pipelines"].rows()
    assert [(row["ranks"], row["schedule"], row["stages"], row["microbatches"]) for row in rows] == [
        ("0,2,4", "interleaved 1F1B", 6, 6), ("1,3,5", "interleaved 1F1B", 6, 6)]  # fmt: skip
    assert rows[0]["expected_bubble_pct"] == pytest.approx(100 * 2 / 14)
    # What it waits at the end of a step lies in collectives of tied embeddings and of the gradients' norm.
    assert rows[0]["bubble_pct"] < rows[0]["expected_bubble_pct"] - 2
    assert {"pipeline (ranks 0, 2, 4)", "tied embeddings (ranks 0, 4)", "tensor and pipeline parallel (ranks 0, 2, 4)",
            "data parallel (ranks 0, 1)"} <= set(results["groups"].to_frame()["group_label"])  # fmt: skip


def true_idle_pct(truth):
    """Of the passes of the first step alone, from its first kernel's start to its last one's end over all ranks."""
    passes = [[op for op in ops if op.instruction.name == "gemm"] for ops in truth.ops.values()]
    first = [op for own in passes for op in own[: len(own) // 3]]
    window_ns = max(op.end_ns for op in first) - min(op.start_ns for op in first)
    return 100 * (1 - sum(op.end_ns - op.start_ns for op in first) / (len(passes) * window_ns))
