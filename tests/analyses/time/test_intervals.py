"""Interval arithmetic against brute force over single nanoseconds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.analyses.time.intervals import Intervals

PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def intervals(pairs):
    return Intervals.of([start for start, _ in pairs], [end for _, end in pairs])


def points(pairs):
    return {time for start, end in pairs for time in range(start, end)}


def covered(union):
    return points(zip(union.starts.tolist(), union.ends.tolist(), strict=True))


@given(PAIRS)
def test_union_is_disjoint_sorted_and_whole(pairs):
    union = intervals(pairs)
    assert covered(union) == points(pairs)
    assert union.total_ns == len(points(pairs))
    assert (union.starts < union.ends).all()
    assert (union.starts[1:] > union.ends[:-1]).all()


@given(PAIRS, PAIRS)
def test_set_operations(left, right):
    one, two = intervals(left), intervals(right)
    assert covered(one - two) == points(left) - points(right)
    assert covered(one & two) == points(left) & points(right)
    assert covered(one | two) == points(left) | points(right)


@given(PAIRS, PAIRS)
def test_time_covered_in_windows(pairs, windows):
    starts, ends = (np.array([window[side] for window in windows], dtype=np.int64) for side in (0, 1))
    expected = [len(points(pairs) & set(range(start, end))) for start, end in windows]
    assert intervals(pairs).covered_ns(starts, ends).tolist() == expected


@given(PAIRS, st.integers(0, 60), st.integers(0, 60))
def test_clip(pairs, start, end):
    assert covered(intervals(pairs).clip(start, end)) == points(pairs) & set(range(start, end))


def test_beyond_the_exactness_of_floats():
    base = 1_790_857_026_000_000_000
    union = Intervals.of([base, base + 3], [base + 1, base + 4])
    assert (union.total_ns, len(union)) == (2, 2)


@pytest.mark.parametrize("pairs", [[], [(5, 5)], [(7, 3)]])
def test_nothing_holds_no_time(pairs):
    assert intervals(pairs).total_ns == 0
