"""Loops of launches: which, how often, and what they take the host."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import turns

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
