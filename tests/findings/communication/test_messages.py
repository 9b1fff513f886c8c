"""Messages between stages that are slow, always or once: one finding of both their ends."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.case import nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs.replicated_pipelines import edged
from traceanalyzer.analyses.replay.changes import read_change
from traceanalyzer.analyses.replay.replay import gain_of
from traceanalyzer.analyses.replay.what_if import answer
from traceanalyzer.errors import UsageError
from traceanalyzer.findings.communication.links import low_bandwidth
from traceanalyzer.findings.pipelines import pipeline_bubble

MS = 1_000_000
ALL = (0, 1, 2, 3)


def test_slow_messages_are_one_finding_that_takes_in_the_bubble():
    faults = (Fault("link", 40 * MS, ALL),)
    job = edged(faults=faults, edges=(0, 1, 2), elements=24_000_000, message_ns=266_667)
    names = ("collectives", "calls", "replay", "places", "episodes", "call_waits")
    _, results = analysed(job, *names, "pipelines", "pipeline")
    (found,) = low_bandwidth(**{name: results[name] for name in names})
    assert found.title.startswith(
        "Large messages, pipeline (all 4 ranks), reach 17 GB/s, 4 % of the links' 450 GB/s. At"
    )
    assert found.gain_ns == pytest.approx(40 * MS, rel=0.01)  # 48 MB in 266.7 µs are 180 GB/s
    assert {row["collective"] for row in found.evidence} == {"send", "recv"}
    bubble = ("pipelines", "pipeline", "episodes", "replay", "collectives")
    (waits,) = pipeline_bubble(**{name: results[name] for name in bubble})
    assert waits.part_of == found.about == "rate of links"


def test_what_if_takes_all_messages_and_those_of_some_steps_as_in_others():
    case = nobody("", "", edged, Fault("link", 8 * MS, ALL, (2,)), stages=3, microbatches=4, edges=(0, 1))
    results = analysed(case.job(case.faults), "replay")[1]
    usual = read_change("collective messages=usual in step 2")
    assert str(usual) == "collective messages=usual in step 2"
    assert gain_of(results["replay"], usual).gain_ns == pytest.approx(case.gain_ns(), rel=0.02)
    assert answer(results, [read_change("collective messages=free")]).gain.gain_ns > 1.1 * case.gain_ns()
    assert gain_of(results["replay"], read_change("collective messages=usual in step 1")).gain_ns < MS / 10


def test_what_is_usual_is_that_of_other_steps():
    with pytest.raises(UsageError, match="say in which"):
        read_change("collective all_reduce=usual")
