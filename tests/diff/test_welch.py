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


@pytest.mark.parametrize("freedom", [1.5, 3.7, 22.2])
def test_p_is_the_area_under_the_density(freedom):
    front = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    width = 1.3 / 20_000
    inside = sum(
        front * (1 + ((n + 0.5) * width) ** 2 / freedom) ** (-(freedom + 1) / 2) * width for n in range(20_000)
    )
    assert metrics.two_sided_p(1.3, freedom) == pytest.approx(1 - 2 * inside, abs=1e-9)


def test_statistic_and_degrees_of_freedom():
    # means 2 and 5; variances of the means 1/3 and 4/3: t = 3/√(5/3), ν = (5/3)² / ((1/9 + 16/9)/2).
    found = metrics.compare([1, 2, 3], [3, 5, 7])
    assert found.p == pytest.approx(metrics.two_sided_p(3 / math.sqrt(5 / 3), (25 / 9) / (17 / 18)))
    assert found.says == metrics.NOISE


@pytest.mark.parametrize(
    ("base", "other", "says"),
    [
        ([1], [2], metrics.CANNOT_TELL), ([1, 2], [5], metrics.CANNOT_TELL), ([], [1, 2], metrics.CANNOT_TELL),
        ([1], [1], metrics.EQUAL), ([2, 2], [2, 2], metrics.EQUAL), ([2, 2], [3, 3], metrics.DIFFERS),
        ([10, 11, 10], [20, 21, 20], metrics.DIFFERS), ([10, 12, 11], [11, 10, 13], metrics.NOISE),
    ],
)  # fmt: skip
def test_verdicts(base, other, says):
    assert metrics.compare(base, other).says == says
    assert metrics.compare(other, base).says == says
