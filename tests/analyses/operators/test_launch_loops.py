"""Loops of launches: which, how often, and what they take the host."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import turns
from tests.simulator.program import Group, Program
from tests.simulator.workloads import job_of
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.replay import gain_of

_LOOP = (Fault("loop", 0, (0, 1)),)


def loops_of(job):
    table = analysed(job, "launch_loops")[1]["launch_loops"].to_frame()
    return table[(table["rank"] == 0) & (table["launches"] > 100)].to_dict("records")


@pytest.mark.parametrize(
    ("job", "loop", "turns_a_step", "launches", "of_sizes", "waits"),
    [
        (turns.averaged, "update_average: aten::mul_, aten::add_", 150, 2, True, 0),
        (turns.augmented, "aten::flip, aten::pad, aten::sub, aten::div and 1 more", 48, 5, False, 0),
        (turns.picked, "aten::nonzero, aten::index, aten::sum, aten::add_", 30, 5, False, 1),
    ],
)
def test_turns_are_counted(job, loop, turns_a_step, launches, of_sizes, waits):
    (row,) = loops_of(job(steps=4, faults=_LOOP))
    assert row["loop"] == loop
    assert (row["runs"], row["turns"], row["launches"]) == (4, 4 * turns_a_step, 4 * turns_a_step * launches)
    assert (row["of_sizes"], row["has_products"]) == (of_sizes, False)
    # The one before a run's first launch, and the one behind its last, are no part of it.
    assert row["blocking_calls"] == pytest.approx(4 * turns_a_step * waits, abs=4)


def test_what_communicates_is_no_loop_nor_is_one_call_that_launches_for_all():
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        for _ in range(30):
            with program.range("aten::div_", "operator"):
                made = program.kernel("div", 20_000)
            program.collective("all_reduce", world, 8, 9_000, after=(made,))
        with program.range("aten::_foreach_mul_", "operator"):
            for _ in range(60):
                program.kernel("multi_tensor_apply_kernel", 20_000)

    assert loops_of(job_of(2, 3, step, (world,))) == []


def test_a_loop_of_one_turn_gains_what_its_other_turns_take_the_host():
    _, results = analysed(turns.averaged(faults=_LOOP), "launch_loops", "replay")
    name = results["launch_loops"].table["loop"].iloc[0]
    gain, none = (gain_of(results["replay"], Change("loop", name=one)) for one in (name, "another"))
    _, mended = analysed(turns.averaged(), "replay")
    assert gain.after_ns == pytest.approx(mended["replay"].engine.before_ns, rel=0.02)
    assert none.gain_ns == 0
