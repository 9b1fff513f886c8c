"""What is said of parameters that are gathered twice, of collectives in pieces, and of what comes behind a collective."""

import pytest
from traceanalyzer.findings.communication.links import slow_pieces
from traceanalyzer.findings.communication.redundant import gathered_again, more_exchanges

from tests.simulator import run
from tests.simulator import workloads as usual
from tests.simulator.analysed import analysed
from tests.simulator.case import case_of
from tests.simulator.faults import Fault
from tests.simulator.jobs import accumulating, gradients, replicated_pipelines, sharded

_AGAIN = (Fault("again", 0, (0, 1, 2, 3)),)
_OF_GATHERS = ("headline", "steps", "calls", "call_phases", "groups", "replay")
_OF_PIECES = ("headline", "steps", "collectives", "call_waits", "replay")


def test_parameters_gathered_again_are_told_with_what_keeping_them_gains():
    case = case_of("", sharded.regathered, *_AGAIN, what="")
    _, results = analysed(case.job(_AGAIN), *_OF_GATHERS)
    (found,) = gathered_again(**results)
    assert found.gain_ns == pytest.approx(case.gain_ns(), rel=0.05)
    assert found.title.startswith("Parameters are gathered twice: 6 all-gathers a step on each rank, 975 MB, are in")


def test_pieces_are_told_with_what_joining_them_gains():
    """40 pieces of 8 MB take 180 µs each; at the rate of 320 MB in 1.4 ms all of them take 1.4 ms."""
    _, results = analysed(gradients.medium(), *_OF_PIECES)
    (found,) = slow_pieces(**results)
    joined, apart = (
        _step_ns(run(gradients.medium(calls=calls, each_ns=ns))) for calls, ns in ((1, 1_400_000), (40, 180_000))
    )
    assert found.gain_ns == pytest.approx(apart - joined, rel=0.05)
    assert found.title.startswith("All-reduces of 8 MB on average, 40 a step on each rank, reach 66 GB/s, larger ones of "
                                  "the same group 343: ")  # fmt: skip


def _step_ns(truth):
    begins = [event.start_ns for event in truth.host[0] if event.name.startswith("ProfilerStep#")]
    return (begins[-1] - begins[0]) / (len(begins) - 1)


_OF_GROUPS = ("headline", "steps", "calls", "groups", "pipeline", "replay")


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (accumulating.accumulated(faults=(Fault("sync", 0, (1, 3)),)), [(1, 3)]),
        pytest.param(
            accumulating.accumulated(faults=(Fault("sync", 0, (0, 1, 2, 3)),)), [], marks=pytest.mark.thorough
        ),
        pytest.param(accumulating.accumulated(), [], marks=pytest.mark.thorough),
        pytest.param(usual.hsdp(2, 2, 3), [], marks=pytest.mark.thorough),
        (replicated_pipelines.with_large_stage(), []),
    ],
    ids=["one group", "all groups", "none", "a mesh", "stages"],
)
def test_a_group_that_exchanges_more_often_than_its_like_is_told(job, expected):
    _, results = analysed(job, *_OF_GROUPS)
    assert [found.ranks for found in more_exchanges(**results)] == expected
