"""Each moment of a wait is for the rank that does something of its own then."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.stragglers import awaited
from traceanalyzer.model.schema import NONE

CALLS = ["rank", "call", "start_ns", "end_ns", "wait_ns", "transfer_ns", "instance", "waits_for"]

FIRST = (0, 0, 0, 100, 90, 10, 0, 1)
"""Rank 0 waits for rank 1 until 90."""


@pytest.mark.parametrize(
    ("others", "offsets", "expected"),
    [
        ([], {}, [(0, 90, 1)]),
        # rank 1 waits for rank 2 from 20 to 60
        ([(1, 0, 20, 65, 40, 5, 1, 2)], {}, [(0, 20, 1), (20, 60, 2), (60, 90, 1)]),
        # and rank 2 for rank 3 from 30 to 40, which began to wait long before
        (
            [(1, 0, 20, 65, 40, 5, 1, 2), (2, 0, -50, 45, 90, 5, 2, 3)],
            {},
            [(0, 20, 1), (20, 40, 3), (40, 60, 2), (60, 90, 1)],
        ),
        # twice, the second time in a call of unknown partners
        ([(1, 0, 10, 25, 10, 5, 1, 2), (1, 1, 50, 70, None, None, None, None)], {},
         [(0, 10, 1), (10, 20, 2), (20, 50, 1), (50, 70, NONE), (70, 90, 1)]),
        # a circle, which only clocks make
        ([(1, 0, 20, 65, 40, 5, 1, 0)], {}, [(0, 90, 1)]),
        # rank 1's clock is 1000 ahead
        ([(1, 0, 1020, 1065, 40, 5, 1, 2)], {1: 1000}, [(0, 20, 1), (20, 60, 2), (60, 90, 1)]),
    ],
    ids=["alone", "a chain", "a longer chain", "unknown partners", "a circle", "clocks apart"],
)  # fmt: skip
def test_waits_are_followed_moment_by_moment(others, offsets, expected):
    names = ["wait_ns", "transfer_ns", "instance", "waits_for"]
    calls = pd.DataFrame([FIRST, *others], columns=CALLS).astype(dict.fromkeys(names, "Int64"))
    exposed = {rank: own[["start_ns", "end_ns"]] for rank, own in calls.groupby("rank")}
    waits = pd.DataFrame([(0, 0, 90, 0, 0, 1)], columns=["rank", "start_ns", "end_ns", "call", "instance", "waits_for"])
    found = awaited(waits, exposed, calls, offsets).sort_values("start_ns")
    assert list(found[["start_ns", "end_ns", "root_rank"]].itertuples(index=False, name=None)) == expected
