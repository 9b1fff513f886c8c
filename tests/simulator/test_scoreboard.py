"""What is said first of jobs whose fault is known: those that are right stay right."""

import pytest

from tests.conftest import sampled
from tests.simulator.blind_cases import BLIND_CASES
from tests.simulator.cases import CASES
from tests.simulator.drawn_cases import DRAWN_CASES
from tests.simulator.fifth_cases import FIFTH_CASES
from tests.simulator.fourth_cases import FOURTH_CASES
from tests.simulator.grid import GRID
from tests.simulator.library_cases import LIBRARY_CASES
from tests.simulator.linked_cases import LINKED_CASES
from tests.simulator.more_cases import MORE_CASES
from tests.simulator.odd_cases import ODD_CASES
from tests.simulator.rare_cases import RARE_CASES
from tests.simulator.scoreboard import judged
from tests.simulator.second_cases import SECOND_CASES
from tests.simulator.setup_cases import SETUP_CASES
from tests.simulator.sixth_cases import SIXTH_CASES
from tests.simulator.strange_cases import STRANGE_CASES
from tests.simulator.third_cases import THIRD_CASES
from tests.simulator.unseen_cases import UNSEEN_CASES
from tests.simulator.wire_cases import WIRE_CASES

_OF_ONE_RULE = {
    "a GPU of another model",
    "late in turn within a step",
    "ranks recorded one after the other",
    "the links stall once",
    "uneven shards of the optimizer",
    "healthy, fetched by hooks",
    "drafted on one rank",
    "one of four ranks has the longest lengths by chance",
}
"""What no other case tells of."""

_OF_FEW_STEPS = {
    "one of two ranks validates in one step of two",
    "one of two ranks validates in one step of three",
    "one of two ranks copies in the last step of four",
    "two ranks, three steps, calls for memory of unequal length",
    "ring, one rank's blocks are longer",
}
"""What is told of two ranks and few steps, and of kernels that one rank runs more often: seconds in all."""


@pytest.mark.parametrize(
    "case",
    [
        *sampled(CASES, every=10),
        *sampled(ODD_CASES, every=16),
        *sampled([case for case in MORE_CASES if case.name not in _OF_FEW_STEPS], every=12),
        *(case for case in MORE_CASES if case.name in _OF_FEW_STEPS),
        *sampled(RARE_CASES, every=18),
        *sampled(DRAWN_CASES, every=17),
        *sampled(LIBRARY_CASES, every=7),
        *sampled(LINKED_CASES, every=18),
        *sampled(WIRE_CASES, every=16),
        *sampled(BLIND_CASES, every=10),
        *sampled(UNSEEN_CASES, every=12),
        *sampled(SECOND_CASES, every=9),
        *sampled(SETUP_CASES, every=8),
        *sampled(GRID, every=230),
        *(
            case if case.name in _OF_ONE_RULE else pytest.param(case, marks=pytest.mark.thorough)
            for case in (*STRANGE_CASES, *THIRD_CASES, *FOURTH_CASES, *FIFTH_CASES, *SIXTH_CASES)
        ),
    ],
    ids=lambda case: case.name,
)
def test_the_first_line_is_true(case):
    result = judged(case)
    assert not result.wrong, result.line
