"""How far ranks' steps differ where nothing is wrong, of tables whose answer is counted by hand."""

import math

import numpy as np
import pytest

from traceanalyzer.analyses.blame.jitter import RankSteps, _from_usual, jitter_of, of_others

NAN = math.nan


def steps_of(excess, peers="all"):
    """Steps of 100 ns: of each step the excess of each rank."""
    rows = [(rank, step, own) for step, of_ranks in enumerate(excess) for rank, own in enumerate(of_ranks)]
    rank, step, own = (np.array(column) for column in zip(*rows, strict=True))
    begin_ns = 1_000 + 100 * step
    columns = {"rank": rank, "step": step, "excess_ns": own, "begin_ns": begin_ns, "end_ns": begin_ns + 100}
    return RankSteps.of({**columns, "peers": np.full(len(rank), peers, dtype=object)})


@pytest.mark.parametrize(
    ("excess", "jitter"),
    [
        ([[0, 0, 0], [10, 0, 0]], 2 * math.sqrt(3)),  # 0.4 of 5, of six cells that are free in two
        ([[0, 30, 0], [0, 30, 0]], 0),  # always
        ([[0, 0, 0], [20, 20, 20]], 0),  # all of them alike
        ([[0, 1, 3, 6, 10]], 2.5 * 5 / 2.7),  # one step: the median distance to the next
        ([[0, 1, 3, 6]], 2 * 4 / 2.7),
        ([[0, 50, 60]], 0),  # of three ranks it tells nothing
        ([[10, 0], [0, 10]], 10 * 2),  # of two ranks the one needs as much less
    ],
)
def test_jitter_is_what_is_left_without_each_ranks_and_each_steps_usual(excess, jitter):
    assert jitter_of(steps_of(excess)) == pytest.approx(jitter)


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ([40, 0, 41, 1], [NAN, -0.5, NAN, 0.5]),
        ([-40, 0, -41, 1], [NAN, -0.5, NAN, 0.5]),
        ([13, 0, 14, 1], [NAN, -0.5, NAN, 0.5]),  # twelve times what lies between the usual ones
        ([12, 0, 13, 1], [5.5, -6.5, 6.5, -5.5]),  # less: one level
        ([40, 0, 41, 42], [-0.5, -40.5, 0.5, 1.5]),  # once as the others
        ([40, 0, 1], [39, -1, 0]),  # too few
        ([40, NAN, 0, 41, 1], [NAN, NAN, -0.5, NAN, 0.5]),
    ],
)
def test_what_comes_in_every_second_step_is_no_jitter(values, left):
    assert _from_usual(np.array(values, dtype=np.float64)) == pytest.approx(left, nan_ok=True)


@pytest.mark.parametrize(
    ("excess", "held"),
    [
        ([[0, 50, 1, 2], [0, 1, 2, 3]], 2.04),  # two steps: the other's
        ([[0, 49, 1, 2], [0, 1, 2, 3]], 70.0),  # less than half of a step: all steps'
        ([[0, 50, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]], 0.0),  # three: what the others differ by
        ([[0, 50, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]], 70.0),  # more
        ([[0, 50, 1, 2], [0, 99, 99, 99]], 70.0),  # never more than all steps'
    ],
)
def test_a_step_among_few_that_takes_far_longer_is_held_against_the_others(excess, held):
    assert of_others(steps_of(excess), 70.0)[1] == pytest.approx(held)
