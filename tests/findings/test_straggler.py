"""Stragglers: who, by what, what to do, and nobody on healthy jobs."""

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
from traceanalyzer.analyses import run as analysed
from traceanalyzer.findings import find

MS = 1_000_000


def stragglers(*faults, ranks=4, steps=5, **options):
    """Findings about stragglers in a data-parallel job, those that save something."""
    job = usual.ddp(ranks=ranks, steps=steps, faults=faults, **options)
    with tempfile.TemporaryDirectory() as folder:
        kineto.write(capture(run(job), Capture()), Path(folder))
        results = analysed(ta.load(folder).ranks, ASKED)
    return [item for item in find(results) if item.kind == "straggler" and not item.is_nothing]


@pytest.mark.parametrize(
    ("fault", "cause", "headline", "why", "fix"),
    [
        (
            Fault("throttle", 0, (2,), None, 1.5),
            "compute",
            "",
            "",
            "",
        ),
        (Fault("compute", 4 * MS, (1,)), "compute", "", "", ""),
        (Fault("gc", 5 * MS, (1,)), "host", "", "", ""),
        (Fault("data", 6 * MS, (3,)), "data", "", "", ""),
        (Fault("copy", 5 * MS, (1,)), "copies", "", "", ""),
    ],
    ids=["slower GPU", "more work", "garbage", "loader", "copies"],
)
def test_what_a_straggler_does_is_told_with_its_fix(fault, cause, headline, why, fix):
    (found,) = stragglers(fault)
    assert (found.ranks, found.cause, found.steps) == (fault.ranks, cause, None)
    assert (found.headline, found.why, found.fix) == (headline, why, fix)


def test_stragglers_that_hide_each_other_are_one_finding():
    (found,) = stragglers(Fault("compute", 4 * MS, (1,)), Fault("data", 5 * MS, (2,)))
    assert (found.ranks, found.cause) == ((1, 2), "data and compute")
    assert found.headline == ""
    assert {rank for change in found.changes for rank in change.ranks} == {1, 2}


def test_a_pause_in_some_steps_is_of_these_steps():
    (found,) = stragglers(Fault("gc", 8 * MS, (1,), (2, 4)), steps=8)
    assert (found.ranks, found.steps) == ((1,), (2, 4))


def test_nobody_is_a_straggler_where_nothing_is_wrong():
    assert stragglers() == []
