"""Whether two sets of repeats differ by more than their noise: Welch's t test, without scipy."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SIGNIFICANT = 0.05
"""Below this p a difference is called more than noise."""

CANNOT_TELL, NOISE, DIFFERS, EQUAL = "cannot tell", "within noise", "differs", "equal"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`p` is two-sided; absent where the test cannot be made, for the reason in `says`."""

    p: float | None
    says: str


def compare(base: Sequence[float], other: Sequence[float]) -> Verdict:
    """Test two samples for different means without assuming equal variances (Welch 1947, Welch–Satterthwaite).

    With fewer than two values on a side nothing can be told. Two sides without any spread are equal or differ.
    """
    if len(base) < 2 or len(other) < 2:
        return Verdict(None, EQUAL if list(base) == list(other) else CANNOT_TELL)
    error, freedom = _error(base, other)
    difference = statistics.fmean(other) - statistics.fmean(base)
    if error == 0:
        return Verdict(None, EQUAL if difference == 0 else DIFFERS)
    p = two_sided_p(difference / error, freedom)
    return Verdict(p, DIFFERS if p < SIGNIFICANT else NOISE)


def margin(base: Sequence[float], other: Sequence[float]) -> float:
    """Half the width of the 95 % confidence interval of the difference of means: a smaller one may be noise.

    Of two or more values on each side.
    """
    error, freedom = _error(base, other)
    if error == 0:
        return 0.0
    low, high = 0.0, 1.0
    while two_sided_p(high, freedom) > SIGNIFICANT:
        high *= 2
    for _ in range(60):  # the quantile of t, to a double's precision
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, freedom) > SIGNIFICANT else (low, middle)
    return high * error


def _error(base: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom (n/a where there is no spread)."""
    variances = [statistics.variance(values) / len(values) for values in (base, other)]
    total = sum(variances)
    if total == 0:
        return 0.0, math.nan
    freedom = 1 / sum(
        (variance / total) ** 2 / (len(values) - 1) for variance, values in zip(variances, (base, other), strict=True)
    )
    return math.sqrt(total), freedom


def two_sided_p(t: float, freedom: float) -> float:
    """P(|T| ≥ |t|) of Student's t: the regularised incomplete beta function I_x(ν/2, ½) at x = ν/(ν + t²)."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) by its continued fraction, on the side where that converges fast (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(a, b, x) / a
    return 1 - math.exp(log_front) * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction, evaluated from the front (modified Lentz)."""
    tiny = 1e-300
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1), tiny)
    total = d
    for m in range(1, 300):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + numerator * d, tiny)
            c = _not_zero(1 + numerator / c, tiny)
            total *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return total


def _not_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
