"""From when to when a step of the job lasts, by times that are written out."""

from dataclasses import replace

import numpy as np
import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import run

HOST_STEPS = [(100 * step, 100 * step + 90) for step in range(4)]


def job(ranks, *, steps=HOST_STEPS, wanted="all", is_partial=False):
    """Ranks of operations (kind, start, end, launch), and the replay of their steps."""
    traces = [rank_trace(ops, rank=rank, steps=steps, wanted=wanted) for rank, ops in enumerate(ranks)]
    if is_partial:
        traces = [replace(trace, steps=trace.steps.assign(is_partial=True)) for trace in traces]
    engine = run(traces, ["replay"])["replay"].engine
    return engine, engine.windows


def computing(*begins, lasting=50):
    """One product a step, launched 1 ns before it begins."""
    return [("compute", begin, begin + lasting, begin - 1) for begin in begins]


RANKS = [computing(10, 110, 210, 310), computing(12, 130, 205, 315)]


def test_a_step_lasts_from_when_its_last_rank_begins_it_to_when_the_last_begins_the_next():
    engine, windows = job(RANKS)
    assert windows.steps == 4
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == [130, 80, 105, 50]
    assert engine.before_ns == 91
    assert windows.lengths(engine.unchanged)[:, 0].tolist() == [110, 100, 100, 50, 130, 75, 110, 50]


def test_ranks_begin_their_first_step_and_end_their_last_one():
    engine, windows = job(RANKS)
    first, last = windows.of_ranks(engine.unchanged[:, :1])
    assert (last - first)[:, 0].tolist() == [360, 365]
    assert np.diff(first[:, 0]).tolist() == [0]


@pytest.mark.parametrize(("longer_ns", "expected"), [(0, [130, 75, 110, 50]), (9, [119, 109, 109, 50])])
def test_of_ranks_that_wait_for_nobody_the_one_that_takes_longest_for_all_steps_is_the_job(longer_ns, expected):
    own = [10, 110, 210, 310] if not longer_ns else [10 + 109 * step for step in range(4)]
    engine, windows = job([computing(*own), computing(12, 130, 205, 315)])
    assert windows.of_slowest(engine.unchanged)[:, 0].tolist() == expected


@pytest.mark.parametrize(
    "more",
    [
        [("comm", 3, 8, 2)],  # of the first step, before all else
        [("comm", 105, 125, 102)],
        [("compute", 100, 104, 95)],  # of no step: launched between two
        [("compute", 190, 200, 140)],  # the second one of a step
    ],
    ids=["first of all", "ahead", "of no step", "later"],
)
def test_a_step_begins_with_its_first_operation_on_the_stream_that_computes_most(more):
    engine, windows = job([RANKS[0], sorted([*RANKS[1], *more], key=lambda op: op[1])])
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == [130, 80, 105, 50]


def test_steps_that_are_not_complete_on_every_rank_are_left_out():
    """Of rank 1 nothing of step 3 was recorded."""
    engine, windows = job([RANKS[0], RANKS[1][:3]])
    assert windows.table["step"].tolist() == [0, 1, 2, 0, 1, 2]
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == [130, 80, 100]


def test_a_capture_without_steps_lasts_from_the_first_begin_to_the_last_end():
    engine, windows = job(RANKS, steps=())
    assert (windows.steps, windows.has_steps) == (None, False)
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == [365 - 10]
    assert windows.lengths(engine.unchanged)[:, 0].tolist() == [350, 353]


@pytest.mark.parametrize(
    ("wanted", "expected"), [("1", [80]), ("0,2", [130, 105]), ("3", [365 - 315]), ("all", [130, 80, 105, 50])]
)
def test_of_chosen_steps_those_that_are_complete_count_else_what_lies_from_the_first_to_the_last(wanted, expected):
    engine, windows = job(RANKS, wanted=wanted)
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == expected


def test_of_chosen_steps_that_are_not_complete_the_first_operation_begins_them():
    late = ("comm", 360, 364, 311)
    engine, windows = job([[*RANKS[0], late], RANKS[1]], wanted="3")
    assert windows.lengths(engine.unchanged)[:, 0].tolist() == [54, 50]


def test_where_no_step_is_left_out_what_is_of_none_is_part_of_the_whole():
    engine, windows = job([[*computing(10, 110)], [*computing(12, 112)]], steps=[(100, 190)], is_partial=True)
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == [162 - 10]


def test_where_a_rank_does_not_compute_in_a_step_the_whole_capture_is_told():
    """Of one rank the second step begins with nothing on that stream."""
    engine, windows = job([RANKS[0], [*computing(12), ("comm", 130, 150, 104), *computing(205, 315)]])
    assert (windows.has_steps, windows.of_job(engine.unchanged)[:, 0].tolist()) == (False, [365 - 10])
