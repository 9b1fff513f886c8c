"""Stages that wait because of the schedule."""

import traceanalyzer as ta
from tests.asked import ASKED
from tests.findings.of_job import said
from tests.samples import SAMPLES
from tests.simulator import workloads as usual
from traceanalyzer.analyses import run
from traceanalyzer.findings import find


def test_a_known_schedule_is_played_against_another():
    results = run(ta.load(SAMPLES / "pp").ranks, ASKED)
    every = [each for finding in find(results) for each in (finding, *finding.also)]
    (found,) = [each for each in every if each.kind == "pipeline_bubble"]
    assert found.headline == "Pipeline bubble: stages wait or are idle 31% of a step on average."
    assert found.fix.startswith("ScheduleInterleaved1F1B, ")


def test_an_unknown_schedule_is_a_fact():
    (found,) = said(usual.pipelined(stages=4, microbatches=8, steps=4), "pipeline_bubble")
    assert found.headline == "Pipeline bubble: stages wait or are idle 26% of a step on average."
    assert found.saves is None
    assert not said(usual.ddp(ranks=2, steps=3), "pipeline_bubble")
