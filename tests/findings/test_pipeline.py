"""Bubbles of pipelines: those of one schedule are one finding."""

import pandas as pd
import pytest

from tests import once
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.pipelines.pipelines import Pipelines
from traceanalyzer.findings import pipeline as rules


def beside(results, bubble_ns=0):
    """A second pipeline of ranks 2 and 3 that does the same, and waits for longer by `bubble_ns`."""
    one, stages = results["pipelines"].table, results["pipeline"].table
    other = one.assign(pipeline=1, ranks="2,3", bottleneck_rank=3, bubble_ns=one["bubble_ns"] + bubble_ns)
    moved = stages.assign(pipeline=1, rank=stages["rank"] + 2)
    return Pipelines(pd.concat([one, other], ignore_index=True)), Pipeline(
        pd.concat([stages, moved], ignore_index=True)
    )


@pytest.mark.parametrize(("is_uneven", "count"), [(False, 1), (True, 2)])
def test_pipelines_that_wait_alike_are_one_finding(monkeypatch, is_uneven, count):
    results = once.results("pp", ["pipelines", "pipeline", "episodes", "replay"])
    pipelines, stages = beside(results, bubble_ns=10_000_000)
    monkeypatch.setattr(rules, "_cause", lambda *_: None)
    monkeypatch.setattr(rules, "_is_uneven", lambda _: is_uneven)
    found = rules.pipeline_bubble(pipelines, stages, results["episodes"], results["replay"])
    assert len(found) == count
    assert found[0].title.startswith("The pipeline of ranks 2,3 waits 33 % of its time (20 % expected of 2 stages")
    assert ("; that of ranks 0,1 waits 31 %." in found[0].title) is (not is_uneven)
