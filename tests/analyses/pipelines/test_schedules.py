"""Schedules: recognised from messages, from ranges, or said to be unknown."""

from dataclasses import replace

import pandas as pd
import pytest

from tests import once
from tests.samples import sample
from tests.simulator.analysed import analysed
from tests.simulator.jobs import dualpipe, megatron, torch_schedules
from tests.simulator.jobs import schedules as made
from traceanalyzer.analyses import run
from traceanalyzer.analyses.pipelines import pipeline_schedule
from traceanalyzer.analyses.pipelines.pipeline_schedule import Schedule, expected_pct, schedule_of
from traceanalyzer.analyses.pipelines.shape import stages, with_absent


def round_robin(ranks):
    return lambda stage: stage % ranks


def folded(ranks):
    return lambda stage: min(stage, 2 * ranks - 1 - stage)


CASES = {
    "GPipe": (made.gpipe(4, 8), round_robin(4), 3, ("GPipe", 1, 8), 300 / 11),
    "1F1B": (made.one_f_one_b(4, 8), round_robin(4), 3, ("1F1B", 1, 8), 300 / 11),
    "1F1B of two ranks": (made.one_f_one_b(2, 24), round_robin(2), 1, ("1F1B", 1, 24), 4.0),
    "fewer microbatches than ranks": (made.one_f_one_b(4, 2), round_robin(4), 3, ("1F1B", 1, 2), 60.0),
    "one microbatch": (made.one_f_one_b(4, 1), round_robin(4), 3, ("one microbatch", 1, 1), 75.0),
    "two chunks on two ranks": (made.one_f_one_b(2, 8, 2), round_robin(2), 3, ("interleaved 1F1B", 2, 8), 100 / 17),
    "three chunks on four ranks": (
        made.one_f_one_b(4, 8, 3), round_robin(4), 11, ("interleaved 1F1B", 3, 8), 300 / 27),
    "looped": (made.looped_gpipe(2, 4, 2), round_robin(2), 3, ("looped GPipe", 2, 4), 100 / 9),
    "zero-bubble": (made.zero_bubble(4, 8), round_robin(4), 3, ("zero-bubble", 1, 8), 100 / 9),
    "V-shaped": (made.v_shaped(3, 4), folded(3), 5, ("V-shaped", 2, 4), 200 / 3),
}  # fmt: skip


@pytest.mark.parametrize("has_ranges", [False, True])
@pytest.mark.parametrize(("programs", "place", "last", "expected", "bubble_pct"), CASES.values(), ids=CASES)
def test_schedules(programs, place, last, expected, bubble_pct, has_ranges):
    messages, stretches = made.tables(programs, place, last, has_ranges=has_ranges)
    found = schedule_of(messages, stretches, list(programs), [0, 1])
    assert (found.name, found.stages_per_rank, found.microbatches, found.why_unknown) == (*expected, None)
    is_known = (
        has_ranges or found.name in pipeline_schedule.OF_KNOWN_BUBBLE
    )  # without numbers the lengths of passes are not told
    assert expected_pct(found, len(programs)) == (pytest.approx(bubble_pct) if is_known else None)
    assert found.played_pct == (pytest.approx(bubble_pct) if has_ranges else None)


@pytest.mark.parametrize("has_directions", [False, True])
def test_both_ends_feed_a_pipeline_of_two_ways(has_directions):
    messages, stretches = made.both_ways(4, 8)
    messages = messages if has_directions else messages.assign(direction=None)
    found = schedule_of(messages, stretches, [0, 1, 2, 3], [0, 1])
    lengths = stretches.groupby("phase")["compute_ns"].mean()
    idle = lengths["forward"] + lengths["backward"] / 2  # (S/2 − 1)(F + B/2)
    busy = 8 * lengths.sum()
    assert found == Schedule(pipeline_schedule.BOTH_WAYS, 2, 8, None, pytest.approx(100 * idle / (idle + busy)))
    unphased = schedule_of(messages, stretches.assign(phase="unattributed"), [0, 1, 2, 3], [0, 1])
    assert expected_pct(unphased, 4) is None


@pytest.mark.parametrize("are_apart", [False, True])
@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 8), (4, 20), (8, 20), (8, 16)])
def test_a_pipeline_of_two_ways_has_the_bubble_that_is_published(ranks, microbatches, are_apart):
    """DualPipe's (S/2 − 1)(F&B + B − 3W), from numbered passes and from messages."""
    passes = dualpipe.stretches(ranks, microbatches, {"F": 100, "I": 100, "W": 100, "B": 200}, are_apart=are_apart)
    found = schedule_of(pd.DataFrame(columns=["rank", "step", "is_send"]), passes, list(range(ranks)), [0, 1])
    assert (found.name, found.stages_per_rank, found.microbatches) == (pipeline_schedule.BOTH_WAYS, 2, microbatches)
    idle = (ranks / 2 - 1) * (300 + 200 - 300)
    assert found.played_pct == pytest.approx(100 * idle / (idle + microbatches * 300))


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
    assert found.played_pct == pytest.approx(100 * idle / (busy + idle))
    assert expected_pct(found, 4) == pytest.approx(found.played_pct)


@pytest.mark.parametrize(
    ("change", "steps", "why"),
    [
        (lambda messages: messages.assign(direction=None), [0, 1], pipeline_schedule.NO_DIRECTION),
        (lambda messages: messages, [], pipeline_schedule.NO_STEPS),
        (lambda messages: messages.drop(messages.index[messages["is_send"]][0]), [0, 1], pipeline_schedule.UNEVEN),
        # A rank that swallows activations.
        (
            lambda messages: messages[(messages["rank"] != 1) | ~messages["is_send"]],
            [0, 1],
            pipeline_schedule.NO_PATTERN,
        ),
    ],
)
def test_what_is_not_known_is_said(change, steps, why):
    messages, stretches = made.tables(made.one_f_one_b(4, 8), round_robin(4), 3)
    found = schedule_of(change(messages), stretches, [0, 1, 2, 3], steps)
    assert found == Schedule(why_unknown=why)
    assert expected_pct(found, 4) is None


def test_a_capture_with_two_stages_a_rank():
    results = once.results("pp_interleaved", ["pipelines", "pipeline_schedule"])
    (row,) = results["pipelines"].rows()
    assert (row["schedule"], row["stages"], row["stages_per_rank"], row["microbatches"]) == (
        "interleaved 1F1B",
        4,
        2,
        8,
    )
    assert row["expected_bubble_pct"] == pytest.approx(100 / 17)
    stretches = results["pipeline_schedule"].to_frame().query("step == 1")
    assert stretches.groupby("rank")["virtual_stage"].unique().map(sorted).tolist() == [[0, 2], [1, 3]]
    passes = stretches.groupby(["virtual_stage", "phase"])["microbatch"].apply(sorted)
    assert passes.tolist() == [list(range(8))] * 8


def test_the_same_capture_without_the_schedules_ranges():
    results = run(
        [without_ranges(trace) for trace in sample("pp_interleaved").ranks], ["pipelines", "pipeline_schedule"]
    )
    (row,) = results["pipelines"].rows()
    assert (row["schedule"], row["stages_per_rank"], row["microbatches"]) == ("interleaved 1F1B", 2, 8)
    assert results["pipeline_schedule"].to_frame()["virtual_stage"].isna().all()


def without_ranges(trace):
    is_own = trace.ranges["name"].astype("str").str.startswith("PP:").to_numpy()
    ranges = trace.ranges[~is_own].reset_index(drop=True)
    return replace(trace, ranges=ranges.assign(name=ranges["name"].cat.remove_unused_categories()))


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
    assert rows[0]["collective_wait_pct"] > 2
    assert rows[0]["bubble_pct"] + rows[0]["collective_wait_pct"] == pytest.approx(100 * 2 / 14, abs=1.5)
    assert {"pipeline (ranks 0, 2, 4)", "tied embeddings (ranks 0, 4)", "tensor and pipeline parallel (ranks 0, 2, 4)",
            "data parallel (ranks 0, 1)"} <= set(results["groups"].to_frame()["group_label"])  # fmt: skip


@pytest.mark.parametrize("lengths", [{"F": 337_000, "I": 782_000, "W": 282_000, "B": 1_064_000}])
def test_a_job_of_two_ways_is_recognised_by_its_messages(lengths):
    """Sends beside each other tell no direction, and hosts that run ahead post receives before the first pass ends."""
    _, results = analysed(dualpipe.job(4, 8, lengths), "pipelines")
    (row,) = results["pipelines"].rows()
    assert (row["schedule"], row["stages"], row["microbatches"]) == (pipeline_schedule.BOTH_WAYS, 8, 8)


def true_idle_pct(truth):
    """Of the passes of the first step alone, from its first kernel's start to its last one's end over all ranks."""
    passes = [[op for op in ops if op.instruction.name == "gemm"] for ops in truth.ops.values()]
    first = [op for own in passes for op in own[: len(own) // 3]]
    window_ns = max(op.end_ns for op in first) - min(op.start_ns for op in first)
    return 100 * (1 - sum(op.end_ns - op.start_ns for op in first) / (len(passes) * window_ns))


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1]])
@pytest.mark.parametrize("absent", [0, 1, 3])
@pytest.mark.parametrize("chunks", [1, 2])
def test_a_rank_without_a_trace_keeps_its_stage(order, absent, chunks):
    messages, stretches = made.tables(made.one_f_one_b(4, 8, chunks), round_robin(4), 4 * chunks - 1)
    names = dict(enumerate(order))
    placed = messages.assign(**{name: messages[name].map(names) for name in ("rank", "peer")})
    placed = with_absent(placed[placed["rank"] != order[absent]], [rank for rank in order if rank != order[absent]])
    assert stages(placed).sort_values("stage")["rank"].tolist() == order
    own = stretches.assign(rank=stretches["rank"].map(names))
    found = schedule_of(placed, own[own["rank"] != order[absent]], order, [0, 1], [order[absent]])
    assert (found.name, found.stages_per_rank, found.microbatches) == (
        "interleaved 1F1B" if chunks > 1 else "1F1B",
        chunks,
        8,
    )
