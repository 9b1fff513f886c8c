"""Ranks' times on one axis: ranks never share time there, however far their clocks are apart."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.time.breakdown import side_by_side
from traceanalyzer.analyses.time.intervals import Intervals

FAR = 5 * 10**18


def covered(queries, pieces):
    """Time of each query that pieces cover."""
    intervals = Intervals.of(pieces["start_ns"].to_numpy(), pieces["end_ns"].to_numpy())
    return queries.assign(ns=intervals.covered_ns(queries["start_ns"].to_numpy(), queries["end_ns"].to_numpy()))


@pytest.mark.parametrize(
    "begins",
    [(0, 0, 0), (0, 10**18, -(10**18)), (-FAR, FAR, -FAR), (FAR, FAR, FAR), (10, 0, 1_700_000_000_000_000_000)],
    ids=str,
)
def test_each_rank_sees_its_own_time_alone(begins):
    ranks = np.arange(len(begins))
    starts = np.array(begins)
    queries = pd.DataFrame({"rank": ranks, "start_ns": starts, "end_ns": starts + 100})
    pieces = pd.DataFrame({"rank": ranks, "start_ns": starts + 10 * ranks, "end_ns": starts + 20 * ranks + 5})
    found = side_by_side(covered, queries, pieces)
    assert found["ns"].tolist() == [5, 15, 25]
    assert found["start_ns"].tolist() == list(begins)


def test_a_rank_whose_own_times_are_centuries_apart_is_alone_on_its_axis():
    queries = pd.DataFrame({"rank": [0, 1, 2], "start_ns": [0, -FAR, 0], "end_ns": [9, -FAR + 9, 9]})
    pieces = pd.DataFrame({"rank": [0, 1, 1, 2], "start_ns": [0, -FAR, FAR - 3, 1], "end_ns": [5, -FAR + 4, FAR, 9]})
    assert side_by_side(covered, queries, pieces)["ns"].tolist() == [5, 4, 8]
