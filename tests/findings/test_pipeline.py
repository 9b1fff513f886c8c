"""Bubbles of pipelines: those of one schedule are one finding."""

import pandas as pd
import pytest

from tests import once
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.pipelines.pipelines import Pipelines
from traceanalyzer.findings import pipeline as rules
from traceanalyzer.findings.host_story import pipeline_name
from traceanalyzer.findings.uneven_stages import pipeline_imbalance


def beside(results, bubble_ns=0):
    """A second pipeline of ranks 2 and 3 that does the same, and waits for longer by `bubble_ns`."""
    one, stages = results["pipelines"].table, results["pipeline"].table
    other = one.assign(pipeline=1, ranks="2,3", bottleneck_rank=3, bubble_ns=one["bubble_ns"] + bubble_ns)
    moved = stages.assign(pipeline=1, rank=stages["rank"] + 2)
    return Pipelines(pd.concat([one, other], ignore_index=True)), Pipeline(
        pd.concat([stages, moved], ignore_index=True)
    )


@pytest.mark.parametrize("is_uneven", [False, True])
def test_pipelines_that_wait_alike_are_one_finding(monkeypatch, is_uneven):
    results = once.results("pp", ["pipelines", "pipeline", "episodes", "replay"])
    pipelines, stages = beside(results, bubble_ns=10_000_000)
    monkeypatch.setattr(rules, "_cause", lambda *_: None)
    if not is_uneven:
        monkeypatch.setattr(rules, "uneven_alike", lambda _: [])
    found = rules.pipeline_bubble(pipelines, stages, results["episodes"], results["replay"])
    assert len(found) == 1
    assert found[0].part_of == (pipeline_name(0) if is_uneven else None)
    assert found[0].title.startswith("The pipeline of ranks 2,3 waits 33 % of its time (20 % expected of 2 stages")
    assert "; that of ranks 0,1 waits 31 %." in found[0].title


def test_the_same_stage_of_two_pipelines_is_one_finding():
    results = once.results("pp", ["pipelines", "pipeline", "replay"])
    pipelines, stages = beside(results)
    (found,) = pipeline_imbalance(pipelines, stages, results["replay"])
    assert found.title.startswith("Stage 1 (ranks 1 and 3) computes up to 107 ms a step, 24 % more than the mean rank")
    assert len(found.evidence) == 4
