"""Lengths cut from the longest down to a wanted sum."""

import numpy as np
import pytest

from traceanalyzer.analyses.replay.capped import capped


@pytest.mark.parametrize(
    ("ns", "key", "wanted", "cut"),
    [
        ([10, 90, 20], [0, 0, 0], [46], [10, 18, 18]),
        ([10, 90, 20], [0, 0, 0], [60], [10, 30, 20]),
        ([10, 90, 20], [0, 0, 0], [120], [10, 90, 20]),
        ([10, 90, 20], [0, 0, 0], [500], [10, 90, 20]),
        ([10, 90, 20], [0, 0, 0], [0], [0, 0, 0]),
        ([50, 50, 7, 30], [1, 0, -1, 1], [20, 40], [20, 20, 7, 20]),
    ],
    ids=["the two longest", "the longest", "as long as wanted", "shorter than wanted", "nothing", "groups apart"],
)
def test_the_longest_are_cut_to_the_sum(ns, key, wanted, cut):
    assert capped(np.array(ns), np.array(key), np.array(wanted, dtype=float)).tolist() == cut
