"""The innermost of nested intervals at each time, against a count of every tick."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceanalyzer.analyses import grouping
from traceanalyzer.analyses.host.activity import innermost, innermost_at


@pytest.mark.parametrize(
    ("intervals", "times", "expected"),
    [
        ([(0, 10), (2, 4), (6, 8)], [1, 2, 3, 4, 7, 9, 10], [0, 1, 1, 0, 2, 0, -1]),
        ([(0, 10), (0, 10), (0, 5)], [0, 5], [2, 1]),
        ([(5, 5)], [5], [-1]),
        ([], [5], [-1]),
    ],
)
def test_innermost_at(intervals, times, expected):
    starts, ends = (np.array([pair[side] for pair in intervals], dtype=np.int64) for side in (0, 1))
    assert innermost_at(starts, ends, np.array(times)).tolist() == expected


@st.composite
def nested(draw, start=0, end=60, depth=0):
    """Properly nested intervals, parents before children."""
    found = []
    position = start
    while depth < 4 and position < end and draw(st.booleans()):
        first = draw(st.integers(position, end))
        last = draw(st.integers(first, end))
        found += [(first, last), *draw(nested(first, last, depth + 1))]
        position = last + 1
    return found


@settings(deadline=None, max_examples=100)
@given(nested())
def test_innermost_agrees_with_every_tick(intervals):
    starts, ends = (np.array([pair[side] for pair in intervals], dtype=np.int64) for side in (0, 1))
    cut_starts, cut_ends, row = innermost(starts, ends)
    for tick in range(60):
        around = [(end - start, start, end) for start, end in intervals if start <= tick < end]
        found = [number for number, (a, b) in enumerate(zip(cut_starts, cut_ends, strict=True)) if a <= tick < b]
        answer = intervals[row[found[0]]] if found and row[found[0]] != -1 else None
        assert answer == (min(around)[1:] if around else None)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=25), st.integers(1, 5))
def test_blocks_give_what_all_at_once_does(intervals, at_once):
    starts, lengths = (np.array([pair[side] for pair in intervals], dtype=np.int64) for side in (0, 1))
    whole = innermost(starts, starts + lengths)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grouping, "MOST_ROWS", at_once)
        for part, of_whole in zip(innermost(starts, starts + lengths), whole, strict=True):
            assert part.tolist() == of_whole.tolist()
