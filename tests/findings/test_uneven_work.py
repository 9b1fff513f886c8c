"""Uneven work: between ranks, from step to step and within steps."""

import tempfile
from pathlib import Path

import pytest

import traceanalyzer as ta
from tests.asked import ASKED
from tests.simulator import kineto
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture, capture
from tests.simulator.engine import run
from tests.simulator.faults import Fault
from tests.simulator.jobs import lengths
from traceanalyzer.analyses import run as analysed
from traceanalyzer.findings import find

MS = 1_000_000


def uneven(job):
    """What is said of uneven work in a job."""
    with tempfile.TemporaryDirectory() as folder:
        kineto.write(capture(run(job), Capture()), Path(folder))
        results = analysed(ta.load(folder).ranks, ASKED)
    return [item for item in find(results) if item.kind == "uneven_work" and not item.is_nothing]


def test_the_longest_rank_differs_from_step_to_step():
    (found,) = uneven(lengths.lengths_and_faults(spread=0.6, seed=7, faults=()))
    assert (found.headline, found.why, found.what_if, found.ranks) == (
        "Uneven work: a different rank computes longest from step to step.",
        "In a step compute takes 2.70 ms to 6.76 ms, by more or larger kernels.",
        "analyze-traces what-if FOLDER --compute even",
        (),
    )
    assert found.leads


@pytest.mark.parametrize("faults", [(), (Fault("throttle", 0, (1,), None, 1.5),)], ids=["healthy", "a slower GPU"])
def test_the_same_work_is_not_uneven(faults):
    assert uneven(usual.ddp(ranks=4, steps=5, faults=faults, jitter=0.05)) == []
