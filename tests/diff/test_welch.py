import math

import pytest

from traceanalyzer.diff import metrics


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [
        # Critical values of Student's t as every table has them.
        (12.7062047364, 1, 0.05), (4.3026527297, 2, 0.05), (2.7764451052, 4, 0.05), (2.2281388520, 10, 0.05),
        (3.1692726727, 10, 0.01), (2.0422724563, 30, 0.05), (1.9623390808, 1000, 0.05), (0, 7, 1.0),
    ],
)  # fmt: skip
def test_p_of_tables(t, freedom, p):
    assert metrics.two_sided_p(t, freedom) == pytest.approx(p, rel=1e-8)
    assert metrics.two_sided_p(-t, freedom) == metrics.two_sided_p(t, freedom)


@pytest.mark.parametrize("t", [0.01, 0.5, 1.7, 9, 300])
def test_p_has_a_closed_form_for_one_and_two_degrees_of_freedom(t):
    assert metrics.two_sided_p(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-9)
    assert metrics.two_sided_p(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-8)


@pytest.mark.parametrize(
    ("base", "other", "says"),
    [
        ([1], [2], metrics.CANNOT_TELL), ([1, 2], [5], metrics.CANNOT_TELL), ([], [1, 2], metrics.CANNOT_TELL),
        ([1], [1], metrics.EQUAL), ([2, 2], [2, 2], metrics.EQUAL), ([2, 2], [3, 3], metrics.DIFFERS),
        ([10, 11, 10], [20, 21, 20], metrics.DIFFERS), ([10, 12, 11], [11, 10, 13], metrics.NOISE),
    ],
)  # fmt: skip
def test_verdicts(base, other, says):
    assert metrics.compare(base, other)[1] == says
    assert metrics.compare(other, base)[1] == says
