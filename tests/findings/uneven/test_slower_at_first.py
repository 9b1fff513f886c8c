"""First steps in which all GPUs are slower."""

import pytest

from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from traceanalyzer.findings.uneven.slower_gpus import slower_at_first

BOTH = (0, 1)


def said(*faults, steps=5):
    _, results = analysed(workloads.ddp(2, steps, faults, layers=3), "step_needs")
    return slower_at_first(**results)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((0,), "In step 0, the capture's first, both GPUs take 1.5 times as long for as many operations as in later"),
        ((0, 1), "In steps 0 and 1, the capture's first, both GPUs take 1.5 times as long"),
    ],
)
def test_all_gpus_are_slower_at_first(steps, words):
    (found,) = said(Fault("throttle", 0, BOTH, steps, 1.5))
    assert found.title.startswith(words)
    assert f"--steps {len(steps)}:." in found.recommendation
    assert (found.steps, found.is_about_capture, found.gain_ns) == (steps, True, None)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("throttle", 0, (1,), (0,), 1.5),  # one alone
        Fault("throttle", 0, BOTH, (0, 3), 1.5),  # and later again
        Fault("throttle", 0, BOTH, (0,), 4.0),  # a warm-up
        Fault("throttle", 0, BOTH, (0, 1, 2), 1.5),  # most of the steps
        Fault("throttle", 0, BOTH, (0,), 1.1),
        Fault("eval", 3_000_000, BOTH, (0,)),  # more to do
    ],
)
def test_what_else_makes_a_step_longer_is_none(fault):
    assert not said(fault)


def test_of_two_steps_none_is_usual():
    assert not said(Fault("throttle", 0, BOTH, (0,), 1.5), steps=2)
