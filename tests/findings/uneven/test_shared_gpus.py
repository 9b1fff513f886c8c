"""GPUs that another process has in time slices."""

import pytest
from traceanalyzer.findings.uneven.slower_gpus import shared_gpus

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import gpus


def found(*faults, ranks=1, steps=3, every_ns=4_600_000):
    job = gpus.shared(ranks, steps, faults, every_ns=every_ns)
    return shared_gpus(**analysed(job, "headline", "steps", "time_slices", "episodes")[1])


def test_a_job_of_one_gpu_says_how_often_and_at_most_what_it_gains():
    (said,) = found(Fault("slices", 2_500_000, (0,)))
    assert said.title.startswith("Rank 0's kernels take 2.5")
    assert " times a step, whichever they are (" in said.title
    assert said.gain_ns == pytest.approx(7_500_000, rel=0.2)
    assert (said.named, said.part_of, said.gain_is_bound) == ((0,), None, True)
