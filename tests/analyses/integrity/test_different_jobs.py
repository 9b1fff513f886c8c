"""Captures that share no time: whether clocks are wrong, or the ranks were recorded apart."""

import pandas as pd
import pytest

from traceanalyzer.analyses.integrity.integrity import signs


@pytest.mark.parametrize(
    ("is_ambiguous", "said"), [(False, "clocks of the hosts are wrong"), (True, "unless the hosts' clocks are wrong")]
)
def test_calls_that_are_all_alike_are_no_sign_of_wrong_clocks(is_ambiguous, said):
    times = {"window_start_ns": [0, 10_000], "window_end_ns": [5000, 15_000]}
    ranks = pd.DataFrame({"rank": [0, 1], "files": ["a", "b"], "format": "kineto", **times})
    calls = pd.DataFrame({"is_matched": [True] * 8, "is_ambiguous": is_ambiguous, "why_not_split": None})
    (found,) = signs(ranks, calls)
    assert said in found.sentence
