"""Nesting of events on threads, case by case and against a stack."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.analyses.operators.operator_tree import Nesting


def nest(*events):
    rows = [(*event, 1)[:3] for event in events]
    return Nesting.of(pd.DataFrame(rows, columns=["start_ns", "end_ns", "thread"]))


@pytest.mark.parametrize(
    ("events", "parents"),
    [
        ([(0, 10), (2, 5), (3, 4), (6, 9)], [-1, 0, 1, 0]),
        ([(0, 10, 1), (2, 5, 2), (3, 4, 1)], [-1, -1, 0]),
        ([(0, 10), (0, 10), (0, 10)], [-1, 0, 1]),
        ([(0, 5), (5, 10)], [-1, -1]),
        ([(0, 10), (4, 4), (4, 4), (4, 6)], [-1, 3, 3, 0]),
        ([(0, 5), (5, 5)], [-1, -1]),
        ([(6, 9), (2, 5), (0, 10)], [2, 2, -1]),
        ([(0, 10), (5, 12), (11, 20), (13, 14)], [-1, -1, -1, 2]),
        ([(0, 100), (0, 10), (5, 12), (20, 30)], [-1, 0, 0, 0]),
        ([], []),
    ],
    ids=["tree", "threads", "equal", "touching", "instants", "instant at an end", "unsorted", "overlapping",
         "overlapping inside", "none"],
)  # fmt: skip
def test_parents(events, parents):
    assert nest(*events).parent.tolist() == parents


def test_sums_and_marks_follow_the_tree():
    forest = nest((0, 10), (2, 5), (3, 4), (6, 9), (20, 30))
    assert forest.depth.tolist() == [0, 1, 2, 1, 0]
    assert forest.summed_up(np.array([1, 2, 4, 8, 16])).tolist() == [15, 6, 4, 8, 16]
    assert forest.gathered_up(np.array([9, 8, 1, 3, 5]), np.minimum).tolist() == [1, 1, 1, 3, 5]
    assert forest.children_ns().tolist() == [6, 1, 0, 0, 0]
    marked = np.array([True, True, False, False, False])
    assert forest.handed_down(marked).tolist() == [0, 1, 1, 0, -1]
    assert forest.handed_down(marked, including_self=False).tolist() == [-1, 0, 1, 0, -1]


@pytest.mark.parametrize(
    ("time", "thread", "row"),
    [(0, 1, 0), (1, 1, 0), (3, 1, 2), (4, 1, 1), (5, 1, 0), (10, 1, -1), (-1, 1, -1), (3, 2, -1), (22, 2, 3)],
)
def test_innermost_at_a_moment(time, thread, row):
    forest = nest((0, 10), (2, 5), (3, 4), (20, 30, 2))
    assert forest.innermost_at(np.array([time]), np.array([thread])).tolist() == [row]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(1, 2)), max_size=12))
def test_matches_a_stack(events):
    events = sorted(((start, start + length, thread) for start, length, thread in events), key=lambda e: (e[0], -e[1]))
    expected, stacks = [], {1: [], 2: []}
    for row, (start, end, thread) in enumerate(events):
        stack = stacks[thread]
        while stack and (events[stack[-1]][1] < end or events[stack[-1]][1] <= start):
            stack.pop()
        expected.append(stack[-1] if stack else -1)
        stack.append(row)
    assert nest(*events).parent.tolist() == expected
