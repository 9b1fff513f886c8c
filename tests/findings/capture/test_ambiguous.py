"""Communication of calls that are all alike is said to be open where no steps tell them apart."""

import pytest

from tests.findings.needed import needed_by
from tests.simulator.analysed import analysed
from tests.simulator.program import Group, Program
from tests.simulator.workloads import job_of, layer_of
from traceanalyzer.findings.capture import ambiguous_calls


@pytest.mark.parametrize(
    ("has_steps", "lengths_ns", "is_said"),
    [
        (False, (60_000,), True),
        (True, (60_000,), False),
        (False, (60_000, 200_000, 90_000, 400_000, 30_000, 150_000, 260_000), False),  # distances that tell them apart
    ],
)
def test_calls_that_are_alike_leave_open_who_waits_unless_steps_tell_them_apart(has_steps, lengths_ns, is_said):
    world = Group("0", (0, 1))

    def step(program: Program, number: int) -> None:
        for layer in range(6):
            ns = lengths_ns[(6 * number + layer) % len(lengths_ns)]
            layer_of(program, "aten::linear", "gemm", ns * (1 + number * (len(lengths_ns) > 1)), 5_000)
            program.collective("all_reduce", world, 32_768, 25_000, stream=7)

    job = job_of(2, 6, step, (world,), has_steps=has_steps, ends_synced=False)
    found = ambiguous_calls(**analysed(job, *needed_by(ambiguous_calls))[1])
    assert len(found) == is_said
    for item in found:
        assert item.title.startswith("72 of 72 communication calls are alike and come at like distances: for ")
        assert "Mark steps" in item.recommendation
