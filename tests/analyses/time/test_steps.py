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


def test_windows_keep_their_nanoseconds_beside_a_step_without_operations():
    """As the steps of a rank that waits for one that hangs; a float would hold such times to 256 ns."""
    since_1970 = 1_795_265_771_693_924_601
    ops = [(kind, since_1970 + start, since_1970 + end, since_1970 + launch) for kind, start, end, launch in OPS[1:]]
    steps = [(since_1970 + start, since_1970 + end) for start, end in [*STEPS, (40, 50)]]
    found = rows(rank_trace(ops, steps=steps))
    assert [row["window_ns"] for row in found] == [30, 20, 20, None, None]
    assert found[0]["start_ns"] == since_1970
    assert rank_trace(ops, steps=steps).steps["end_ns"].isna().tolist() == [False, False, False, True]


def test_a_window_runs_from_the_ranges_start_and_the_earlier_launches_end_to_the_next_one():
    found = rows(rank_trace(OPS, steps=STEPS))
    assert [row["start_ns"] for row in found] == [5, 30, 50, None]
    assert [row["window_ns"] for row in found] == [25, 20, 20, None]
    assert [row["is_complete"] for row in found] == [True, True, True, None]
    assert found[0]["idle_ns"] == 5


def test_one_recorded_step_is_complete_with_what_its_host_does_before_and_after():
    (own, _) = rows(rank_trace([("compute", 30, 40, 20)], steps=[(0, 50)]))
    assert (own["is_complete"], own["start_ns"], own["window_ns"], own["idle_ns"]) == (True, 0, 50, 40)
    idle = run([rank_trace([("compute", 30, 40, 20)], steps=[(0, 50)])], ["idle"])["idle"].to_frame()
    assert idle["idle_ns"].tolist() == [0, 40]


@pytest.mark.parametrize(
    ("ops", "windows"),
    [
        # The copy of step 1 runs before step 0's first kernel.
        ([("copy", 11, 14, 10), ("compute", 15, 20, 5), ("compute", 30, 40, 16)], [(0, 20), (20, 40)]),
        # A side stream has come to step 2 while step 0 still computes.
        (
            [("comm", 11, 13, 10), ("comm", 21, 23, 20), ("compute", 15, 40, 5), ("compute", 40, 50, 12),
             ("compute", 50, 60, 26)],
            [(0, 40), (40, 50), (50, 60)],
        ),
        # What the earlier step still copies belongs to it; what was launched before all delays the first one.
        (
            [("copy", 10, 28, 5), ("compute", 10, 20, 6), ("compute", 21, 30, 16), ("compute", 1, 4)],
            [(4, 28), (28, 30)],
        ),
        # The host is late with step 1: its data belong to it.
        ([("compute", 2, 6, 1), ("compute", 18, 22, 17)], [(0, 10), (10, 22)]),
        # All that step 1 launched ran while step 0 did, and step 2 had begun on the host: it has no time of its own.
        ([("copy", 11, 14, 10), ("compute", 6, 25, 5), ("compute", 30, 40, 25)], [(0, 25), (None, None), (25, 40)]),
    ],
)  # fmt: skip
def test_what_runs_ahead_neither_begins_nor_lengthens_a_step(ops, windows):
    trace = rank_trace(sorted(ops, key=lambda op: op[1]), steps=[(0, 10), (10, 20), (20, 30)][: len(windows)])
    found = [(row["start_ns"], row["window_ns"] and row["start_ns"] + row["window_ns"]) for row in rows(trace)]
    assert found[: len(windows)] == windows
    idle = run([trace], ["idle"])["idle"]
    assert (idle.to_frame()["idle_ns"] >= 0).all()


def test_a_step_whose_operations_were_lost_lengthens_no_other():
    """The host runs ahead: its first kernel begins when it has launched the last."""
    ops = [("compute", 100 + 10 * step, 110 + 10 * step, 10 * step + 1) for step in range(5)]
    whole = rank_trace(ops, steps=[(10 * step, 10 * step + 10) for step in range(5)])
    held = whole.gpu_ops[whole.gpu_ops["start_ns"] != 110]
    cut = make_trace(whole.meta, gpu_ops=held, api_calls=whole.api_calls, ranges=whole.ranges)
    found = rows(select(cut, Selection()))
    assert [row["window_ns"] for row in found] == [110, None, 20, 10, 10, None]
    assert [row["is_complete"] for row in found] == [True, False, False, True, True, None]


def test_a_steps_parts_add_up_to_its_window():
    for row in rows(rank_trace(OPS, steps=STEPS))[:-1]:
        parts = row["compute_ns"] + row["exposed_comm_ns"] + row["exposed_copy_ns"] + row["idle_ns"]
        assert parts == row["window_ns"]


def test_no_step_of_a_file_that_is_cut_off_is_complete():
    trace = rank_trace(OPS, steps=STEPS)
    cut = select(dataclasses.replace(trace, meta=dataclasses.replace(trace.meta, is_truncated=True)), Selection())
    assert [row["is_partial"] for row in rows(cut)] == [True, True, True, None]
    assert not any(row["is_complete"] for row in rows(cut))


def test_a_launch_without_an_operation_makes_its_step_partial():
    trace = rank_trace(OPS, steps=STEPS)
    lost = pd.DataFrame(
        {"start_ns": [22], "end_ns": [23], "name": ["cudaLaunchKernel"], "thread": 1, "correlation": 99}
    )
    calls = pd.concat([trace.api_calls.astype({"name": "str"}), lost], ignore_index=True)
    cut = select(make_trace(trace.meta, gpu_ops=trace.gpu_ops, api_calls=calls, ranges=trace.ranges), Selection())
    assert [row["is_partial"] for row in rows(cut)] == [False, True, True, None]
    assert [row["is_complete"] for row in rows(cut)] == [True, False, False, None]


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
    with pytest.raises(UsageError, match="it has 0, 1, 2"):
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


@pytest.mark.parametrize(
    ("wanted", "steps", "label"),
    [
        ("complete", (0, 1, 2), "steps 0 to 2"), ("1,2", (1, 2), "steps 1 to 2"), ("1", (1,), "step 1"), ("last", (2,), "step 2"),
        ("0:1", (0, 1), "steps 0 to 1"),
    ],
)  # fmt: skip
def test_selections_of_steps(wanted, steps, label):
    window = rank_trace(OPS, steps=STEPS, wanted=wanted).window
    assert (window.steps, window.label) == (steps, label)


@pytest.mark.parametrize(
    ("wanted", "is_said"),
    [
        ("0:99", True), ("1,7", True), ("0:2", False), ("1:", False), (":1", False), ("0,1", False), ("2", False),
        ("last", False), ("complete", False), ("all", False),
    ],
)  # fmt: skip
def test_steps_that_only_some_are_there_of_are_said(wanted, is_said):
    notes = rank_trace(OPS, steps=STEPS, wanted=wanted).meta.notes
    said = f"--steps {wanted} asks for more than the capture has (steps 0 to 2): what it has of it is used."
    assert notes == ((said,) if is_said else ())


@pytest.mark.parametrize(
    ("wanted", "stretches"),
    [("0,2", ((5, 30), (50, 70))), ("0,1", ((5, 50),)), ("0", ((5, 30),)), ("0,1,2", ((5, 70),))],
)
def test_only_the_chosen_steps_are_in_the_window(wanted, stretches):
    trace = rank_trace(OPS, steps=STEPS, wanted=wanted)
    assert trace.window.stretches == stretches
    (row,) = run([trace], ["breakdown"])["breakdown"].rows()
    assert row["window_ns"] == sum(end - start for start, end in stretches)


def test_a_step_that_is_not_complete_is_not_in_the_window_of_those_that_are():
    ops = [*OPS, ("compute", 80, 90, 41)]
    trace = rank_trace(ops, steps=[*STEPS, (40, 50)])
    lost = trace.api_calls.iloc[[2]].assign(
        start_ns=25, end_ns=26, correlation=99
    )  # a launch in step 1 without operation
    calls = pd.concat([trace.api_calls, lost], ignore_index=True)
    cut = make_trace(trace.meta, gpu_ops=trace.gpu_ops, api_calls=calls, ranges=trace.ranges)
    assert select(cut, Selection(steps="complete")).window.stretches == ((5, 30), (70, 90))


def test_complete_steps_of_a_capture_without_any_are_the_whole_capture():
    trace = rank_trace(OPS, steps=STEPS)
    cut = dataclasses.replace(trace, meta=dataclasses.replace(trace.meta, is_truncated=True))
    window = select(cut, Selection(steps="complete")).window
    assert (window.steps, window.label) == (None, "whole capture")


@pytest.mark.parametrize("text", ["x", "1,", "1:2:3", "-1", "complete,1"])
def test_a_selection_that_makes_no_sense(text):
    with pytest.raises(UsageError, match="--steps"):
        Selection(steps=text)
