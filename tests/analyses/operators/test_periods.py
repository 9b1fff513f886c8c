"""Where a sequence of codes repeats itself."""

import numpy as np
import pytest

from traceanalyzer.analyses.operators.periods import runs_of


def runs(codes, groups=None):
    made = np.array(codes, dtype=np.int64)
    found = runs_of(made, np.zeros(len(made), dtype=np.int64) if groups is None else np.array(groups))
    return [(run.start, run.end, run.period) for run in found]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([9, *[1, 2] * 8, 9], [(1, 17, 2)]),
        ([9, *[1, 2] * 7, 9], []),
        ([5] * 8, [(0, 8, 1)]),
        ([*[1, 2, 3] * 9, 1, 7], [(0, 27, 3)]),  # what begins another turn is none
        ([*[1] * 8, 9, *[1, 2] * 8], [(0, 8, 1), (9, 25, 2)]),
        ([*[*range(20), 3] * 8, 99], [(0, 168, 21)]),  # longer than the periods that are tried one by one
        ([], []),
    ],
)
def test_eight_turns_in_a_row_are_a_run(codes, expected):
    assert runs(codes) == expected


def test_a_run_ends_with_its_step():
    assert runs([1, 2] * 10, [0] * 16 + [1] * 4) == [(0, 16, 2)]
    assert runs([1, 2] * 10, [0] * 10 + [1] * 10) == []
