"""The first sentence of a comparison: what most of each run's step is."""

import pytest

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import compare
from traceanalyzer.report.comparison import step_parts


@pytest.mark.parametrize(
    ("compute", "comm", "idle", "told"),
    [
        (90, 5, 5, "compute (90 %)"),
        pytest.param(20, 0, 80, "idle: unknown cause (80 %)", marks=pytest.mark.thorough),
        (20, 70, 10, "exposed transfer (70 %)"),
    ],
)
def test_the_largest_part_of_every_rank(compute, comm, idle, told):
    traces = steady(compute * 1_000_000, comm * 1_000_000, idle * 1_000_000)
    assert step_parts.of_capture(capture(traces)).replace("\u202f", " ") == told


def test_ranks_that_are_bound_by_other_things_are_told_apart():
    busy, lazy = (steady(share * 1_000_000, 0, (100 - share) * 1_000_000) for share in (90, 10))
    said = step_parts.of_capture(capture([busy[0], lazy[1]]))
    assert said == "compute (90 %) on rank 0, idle (host) (90 %) on rank 1"


def test_the_sentence_names_every_run():
    one, two = capture(steady(90, 10)), capture(steady(10, 90))
    said = step_parts.bound_sentence(compare([side("a", one), side("b", two)], force=True))
    assert said.startswith("Most of a step is compute (90 %) in a; ")
