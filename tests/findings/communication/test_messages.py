"""Messages between stages that are slow, always or once: one finding of both their ends."""

import pytest
from traceanalyzer.findings.communication.links import low_bandwidth
from traceanalyzer.findings.pipelines import pipeline_bubble

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs.replicated_pipelines import edged

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
