"""What a host does between two steps' ranges is told of the step before: engines mark their iterations so."""

import pytest

from tests.simulator import Group
from tests.simulator.analysed import analysed, saved_ns
from tests.simulator.workloads import job_of

US = 1_000


def iterations(late_us):
    """Two ranks that mark the launching of an iteration alone; rank 1 schedules for longer before each."""
    world = Group("0", (0, 1))

    def step(program, number):
        program.host(20 * US + (late_us * US if program.rank == 1 else 0))
        with program.range(f"execute_context_0(0)_generation_8({number})"):
            for _ in range(8):
                made = program.kernel("gemm", 60 * US)
                program.collective("all_reduce", world, 400_000, 10 * US, after=(made,), stream=7)
            program.sync("cudaStreamSynchronize")

    return job_of(2, 10, step, (world,), jitter=0, has_steps=False)


def test_a_host_that_is_late_between_ranges_is_named_with_what_it_costs():
    _, results = analysed(iterations(900), "episodes", "replay")
    (row,) = [row for row in results["episodes"].table.to_dict("records") if row["cause"] == "host"]
    assert (row["ranks"], row["most_waiting_rank"]) == ((1,), 0)
    gain_ns = saved_ns(results["replay"], *row["changes"])
    assert gain_ns == pytest.approx(900 * US * 9 / 10, rel=0.05), "what lies before the first one is of none"


def test_hosts_that_pause_alike_are_not_late():
    _, results = analysed(iterations(0), "episodes")
    assert results["episodes"].rows() == []
