"""Ranks begin the first step as far apart as the changed job ends the last one."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.replay.begun import begun_as_ended
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.windows import Windows

STEPS = frozenset({0, 1})

JOB = SimpleNamespace(source=np.array([0, 1, 0, 11, 0]), target=np.array([1, 2, 11, 12, 13]), base={0: 0, 1: 10})
"""Of rank 0 the nodes from 1 on, of rank 1 those from 11 on: each begins two steps and ends the last."""


def windows(*, has_steps=True):
    table = pd.DataFrame({"rank": [0, 0, 1, 1], "step": pd.array([0, 1, 0, 1], dtype="Int64")})
    return Windows(table, np.array([1, 2, 11, 12]), np.array([2, 3, 12, 13]), np.arange(4), has_steps)


def times(*ranks):
    """When the nodes are reached: of each rank the first step's begin, and the end of two steps of 100 or as given."""
    found = np.zeros((20, 1), dtype=np.int64)
    for number, (begin, end) in enumerate(ranks):
        found[[1 + 10 * number, 2 + 10 * number, 3 + 10 * number], 0] = begin, (begin + end) // 2, end
    return found


def moved(after, *, steps=None, recorded=((0, 200), (0, 200)), has_steps=True):
    """By how much each edge is longer."""
    weights = np.full((5, 1), 7, dtype=np.int64)
    changes = [(Change("compute", 0.5), Change("host", 0.5, steps=steps))]
    found = begun_as_ended(JOB, windows(has_steps=has_steps), changes, weights, times(*recorded), times(*after))
    assert (weights == 7).all()
    return None if found is None else (found - weights)[:, 0].tolist()


@pytest.mark.parametrize(
    ("ends", "later"),
    [
        ((150, 120), [30, 0, 0, 0, 0]),  # rank 1 gains 80, rank 0 only 50
        ((120, 150), [0, 0, 30, 0, 30]),
        ((150, 150), None),
        ((150, 148), [2, 0, 0, 0, 0]),
        ((150, 149), None),  # of 200 less than a hundredth
        ((250, 300), [0, 0, 50, 0, 50]),
    ],
)
def test_a_rank_begins_later_by_what_it_gains_less_than_the_one_that_gains_most(ends, later):
    assert moved([(0, end) for end in ends]) == later


@pytest.mark.parametrize(
    ("steps", "is_moved"), [(None, True), (STEPS, True), (STEPS | {2}, True), (frozenset({0}), False)]
)
def test_a_change_of_some_steps_tells_nothing_of_those_before(steps, is_moved):
    assert (moved([(0, 150), (0, 120)], steps=steps) is not None) is is_moved


@pytest.mark.parametrize(
    ("recorded", "later"),
    [
        (((0, 200), (5, 200)), [30, 0, 0, 0, 0]),
        (((0, 200), (8, 200)), None),
        (((8, 208), (0, 200)), [30, 0, 0, 0, 0]),  # as far apart at the end as at the begin
        (((0, 200), (0, 230)), None),
    ],
)
def test_ranks_that_begin_and_end_apart_by_something_else_stay_as_they_are(recorded, later):
    """Gains of 30 more on rank 1: steps before were others where the recording differs by a tenth of that."""
    after = [(begin, end - less) for (begin, end), less in zip(recorded, (50, 80), strict=True)]
    assert moved(after, recorded=recorded) == later


def test_a_capture_without_steps_begins_as_recorded():
    assert moved([(0, 150), (0, 120)], has_steps=False) is None


def test_of_several_sets_of_changes_those_are_moved_that_move_ranks_apart():
    weights = np.zeros((5, 3), dtype=np.int64)
    each = [times((0, 150), (0, 150)), times((0, 120), (0, 150)), times((0, 150), (0, 120))]
    changes = [(Change("compute", 0.5),), (Change("compute", 0.5),), (Change("compute", 0.5, steps=frozenset({1})),)]
    found = begun_as_ended(JOB, windows(), changes, weights, times((0, 200), (0, 200)), np.hstack(each))
    assert found[:, 0].tolist() == [0] * 5
    assert found[:, 1].tolist() == [0, 0, 30, 0, 30]
    assert found[:, 2].tolist() == [0] * 5
