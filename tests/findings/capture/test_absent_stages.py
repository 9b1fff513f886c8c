"""A stage without a file that is waited for: told by another pipeline's same stages, silent where nobody is late."""

from types import SimpleNamespace

import pandas as pd
import pytest

from tests.simulator import Capture
from tests.simulator.analysed import analysed
from tests.simulator.case import MS
from tests.simulator.faults import Fault
from tests.simulator.grid_jobs import replicated_pipeline
from traceanalyzer.findings.capture import absent_stage

_NEEDED = ("headline", "steps", "pipeline", "pipeline_messages", "exposed_calls", "ranks", "integrity", "episodes")


def said(how, *faults, chunks=1, stages=3):
    job = replicated_pipeline(4, faults, chunks, stages=stages)
    return absent_stage(**analysed(job, *_NEEDED, how=how)[1])


def late(rank, what="compute", steps=None):
    return Fault(what, 9 * MS, (rank,), steps)


@pytest.mark.parametrize(
    ("missing", "faults", "stages", "expected"),
    [
        ((5,), (late(5),), 3, "wait for rank 5, stage 2 of its pipeline, that is not here (it has no file): rank 4"),
        pytest.param((3,), (late(3),), 3, "wait for rank 3, stage 0 of its", marks=pytest.mark.thorough),
        pytest.param((5,), (late(5, steps=(2,)),), 3, "(most in step 2)", marks=pytest.mark.thorough),
    ],
)
def test_a_late_stage_without_a_file_is_named(missing, faults, stages, expected):
    (finding,) = said(Capture(missing=missing), *faults, stages=stages)
    assert expected in finding.title


@pytest.mark.parametrize(
    ("missing", "faults"),
    [
        ((5,), ()),
        pytest.param((0,), (), marks=pytest.mark.thorough),
        pytest.param((1,), (late(0),), marks=pytest.mark.thorough),
        pytest.param((1,), (late(5),), marks=pytest.mark.thorough),
        pytest.param((0, 2, 5), (late(4),), marks=pytest.mark.thorough),
        pytest.param((1,), (late(2, "host"),), marks=pytest.mark.thorough),
    ],
    ids=[
        "nobody is late",
        "nor without the first stage",
        "the one before is",
        "another pipeline's is",
        "its only replica is",
        "the last is",
    ],
)
@pytest.mark.parametrize("chunks", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_stage_without_a_file_that_nobody_waits_for_is_not(missing, faults, chunks):
    assert not said(Capture(missing=missing), *faults, chunks=chunks)


def test_beside_a_rank_that_is_known_to_be_late_by_as_much_it_is_not_told():
    """Rank 5 is absent and late; one of another pipeline is so by three times as much."""
    results = analysed(replicated_pipeline(4, (late(5),), 1, stages=3), *_NEEDED, how=Capture(missing=(5,)))[1]
    episodes = SimpleNamespace(table=pd.DataFrame({"ranks": ["99"], "excess_ns": [27 * MS]}))
    assert absent_stage(**results)
    assert not absent_stage(**{**results, "episodes": episodes})


@pytest.mark.thorough
def test_of_a_pipeline_that_falls_in_two_nothing_is_concluded():
    assert not said(Capture(missing=(1, 2)), stages=4)


@pytest.mark.thorough
def test_without_another_pipeline_a_wait_is_not_told_from_the_bubble():
    assert not said(Capture(missing=(2, 3, 4, 5)), late(2))
