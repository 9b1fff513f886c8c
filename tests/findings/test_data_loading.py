"""GPUs that wait for the next batch."""

import pytest

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.faults import Fault, load
from tests.simulator.program import Program
from tests.simulator.workloads import job_of, layer_of

MS = 1_000_000


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


def test_faster_launches_do_not_load_data_faster():
    faults = (Fault("data", 6 * MS, (0,)),)

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for _ in range(60):
            layer_of(program, "aten::add", "add_kernel", 5_000, 50_000)

    job = job_of(1, 6, step, (), faults)
    (loads,), (launches,) = said(job, "data_loading"), said(job, "launch_bound")
    assert 4 * MS < loads.saves.low_ns < loads.saves.high_ns < 8 * MS
    assert launches.saves.high_ns < 4 * MS  # all that launching takes is 3 ms
