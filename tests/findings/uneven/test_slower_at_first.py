"""First steps in which all GPUs are slower."""

import pytest
from traceanalyzer.findings.uneven.slower_gpus import slower_at_first

from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault

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
