"""Steps: who belongs to one, its window, what is partial or of no step."""

import dataclasses

import pandas as pd
import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.errors import UsageError
from traceanalyzer.model import make_trace
from traceanalyzer.selection import Selection, select

# Launched at 1 and 11 in step 0, at 21 in step 1, at 31 in step 2; the first operation was launched before the capture.
OPS = [
    ("compute", 0, 5),
    ("compute", 10, 20, 1),
    ("comm", 15, 30, 11),
    ("compute", 40, 50, 21),
    ("compute", 60, 70, 31),
]
STEPS = [(0, 20), (20, 30), (30, 40)]


def rows(trace):
    return run([trace], ["steps"])["steps"].rows()


def test_an_operation_belongs_to_the_step_that_launched_it():
    assert [(row["step"], row["operations"]) for row in rows(rank_trace(OPS, steps=STEPS))] == [
        (0, 2), (1, 1), (2, 1), (None, 1),
    ]  # fmt: skip


def test_a_steps_parts_add_up_to_its_window():
    for row in rows(rank_trace(OPS, steps=STEPS))[:-1]:
        parts = row["compute_ns"] + row["exposed_comm_ns"] + row["exposed_copy_ns"] + row["idle_ns"]
        assert parts == row["window_ns"]


def test_no_step_of_a_file_that_is_cut_off_is_complete():
    trace = rank_trace(OPS, steps=STEPS)
    cut = select(dataclasses.replace(trace, meta=dataclasses.replace(trace.meta, is_truncated=True)), Selection())
    assert [row["is_partial"] for row in rows(cut)] == [True, True, True, None]
    assert not any(row["is_complete"] for row in rows(cut))


def test_headline_is_of_complete_steps_that_all_ranks_share():
    other = rank_trace(OPS, steps=STEPS, rank=1)
    only_step_1 = dataclasses.replace(other, steps=other.steps.assign(is_partial=[True, False, True]))
    results = run([rank_trace(OPS, steps=STEPS), only_step_1], ["headline"])
    found = results["headline"].rows()
    assert [(row["basis"], row["steps"], row["window_ns"]) for row in found] == [("step 1", 1, 20), ("step 1", 1, 20)]
    assert found[0]["step_std_ns"] is None


def test_headline_without_steps_is_of_the_whole_capture():
    row = run([rank_trace(OPS)], ["headline"])["headline"].rows()[0]
    assert (row["basis"], row["steps"], row["step_mean_ns"], row["window_ns"]) == ("whole capture", None, None, 70)


@pytest.mark.parametrize(
    ("wanted", "window_ns", "compute_ns", "kernels"),
    [
        ("all", 70, 35, 5),
        ("last", 20, 10, 1),
        ("0", 25, 10, 2),
        ("0:1", 45, 20, 3),
        ("1:", 40, 20, 2),
        (":0", 25, 10, 2),
    ],
)
def test_selected_steps_clip_the_window_and_count_their_own_operations(wanted, window_ns, compute_ns, kernels):
    results = run([rank_trace(OPS, steps=STEPS, wanted=wanted)], ["breakdown", "kernels"])
    row = results["breakdown"].rows()[0]
    assert (row["window_ns"], row["compute_ns"]) == (window_ns, compute_ns)
    assert sum(kernel["calls"] for kernel in results["kernels"].rows()) == kernels


@pytest.mark.parametrize("wanted", ["7", "5:6"])
def test_steps_that_the_capture_lacks_are_refused(wanted):
    with pytest.raises(UsageError, match="it has 0, 1 and 2"):
        rank_trace(OPS, steps=STEPS, wanted=wanted)


@pytest.mark.parametrize("wanted", ["", "two", "1-2", "-1"])
def test_malformed_steps_are_refused(wanted):
    with pytest.raises(UsageError, match="--steps"):
        Selection(steps=wanted)


def test_named_ranges_mark_steps():
    trace = rank_trace(OPS)
    ranges = pd.DataFrame(
        {"start_ns": [0, 0, 25], "end_ns": [22, 10, 45], "name": ["train 1", "train 1 inner", "train 2"]}
    )
    named = make_trace(trace.meta, gpu_ops=trace.gpu_ops, api_calls=trace.api_calls, ranges=ranges)
    found = rows(select(named, Selection(step_range="train*")))
    assert [(row["step"], row["operations"]) for row in found] == [(1, 3), (2, 1), (None, 1)]
    with pytest.raises(UsageError, match="names no range"):
        select(named, Selection(step_range="epoch*"))
