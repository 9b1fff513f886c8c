"""A capture by which an operation would wait for itself is refused with a reason, and ends nothing."""

import numpy as np
import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.analyses.replay import replay
from traceanalyzer.analyses.replay.graph import CircleError, order_of


def test_edges_that_are_sure_close_no_circle():
    source, target = np.array([0, 1, 2]), np.array([1, 2, 1])
    with pytest.raises(CircleError):
        order_of(3, source, target, np.zeros(3, bool), np.zeros(3, np.int64))


def test_the_replay_says_why_it_is_not(monkeypatch):
    def circular(*_):
        raise CircleError

    monkeypatch.setattr("traceanalyzer.analyses.replay.job.order_of", circular)
    results = run([rank_trace([("compute", 0, 5, 0), ("comm", 5, 9, 1)])], ["replay", "critical_path"])
    assert results["replay"].why_not == replay.CIRCULAR
    assert all(results[name].to_frame().empty for name in ("replay", "critical_path"))
