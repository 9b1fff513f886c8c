"""What is said first of jobs whose fault is known: those that are right stay right."""

import pytest

from tests.conftest import sampled
from tests.simulator.cases import CASES
from tests.simulator.more_cases import MORE_CASES
from tests.simulator.odd_cases import ODD_CASES
from tests.simulator.scoreboard import judged

WRONG: frozenset[str] = frozenset(
    {
        "another rank's file is missing",  # that nothing can be matched is said before rank 5
    }
)
"""Cases of which the first line is not right yet: they become right, or stay here."""

RIGHT, ODD, MORE = ([case for case in cases if case.name not in WRONG] for cases in (CASES, ODD_CASES, MORE_CASES))


@pytest.mark.parametrize(
    "case", [*sampled(RIGHT, every=10), *sampled(ODD, every=16), *sampled(MORE, every=12)], ids=lambda case: case.name
)
def test_the_first_line_is_true(case):
    result = judged(case)
    assert not result.wrong, result.line
