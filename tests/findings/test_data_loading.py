"""GPUs that wait for the next batch."""

import pytest

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.faults import Fault


@pytest.mark.parametrize(
    ("steps", "headline"),
    [
        (None, "Input-bound: GPUs wait 6.03 ms/step for the next batch."),
        ((1, 4, 6), "Input-bound: GPUs wait 6.03 ms in steps 1, 4 and 6 for the next batch."),
    ],
)
def test_a_loader_in_the_main_process(steps, headline):
    (one,) = said(usual.ddp(ranks=2, steps=8, faults=(Fault("data", 6_000_000, (0, 1), steps),)), "data_loading")
    assert (one.headline, one.steps) == (headline, steps)
    assert one.why.endswith("CPU is in enumerate(DataLoader), in the main process (num_workers=0).")
    assert one.fix == "DataLoader(num_workers=4, persistent_workers=True, pin_memory=True)."


def test_batches_that_are_ready():
    assert not said(usual.ddp(ranks=2, steps=4), "data_loading")
