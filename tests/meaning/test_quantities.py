import pandas as pd
import pytest

from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import digits, scale, text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (66.8431, "66.8"), (9.996, "10.0"), (0.04852, "0.0485"), (142.9, "143"), (20487, "20,487"),
     (1950.4, "1,950"), (-3.21, "−3.21"), (0.00099961, "0.00100"), (99.96, "100"), (7, "7"), (0.5, "0.500")],
)  # fmt: skip
def test_three_significant_digits(value, expected):
    assert digits(value) == expected


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [(66_843_100, Unit.NS, "66.8\u202fms"), (999, Unit.NS, "999\u202fns"), (1_952_593_920, Unit.BYTES, "1.95\u202fGB"),
     (23.987, Unit.PCT, "24.0\u202f%"), (None, Unit.PCT, "n/a"), (pd.NA, Unit.BYTES, "n/a"), (0, Unit.NS, "0\u202fns")],
)  # fmt: skip
def test_a_value_has_its_unit_and_absent_is_not_zero(value, unit, expected):
    assert text(value, unit) == expected


@pytest.mark.parametrize(
    ("unit", "values", "symbol"),
    [(Unit.NS, [86_000_000, 4_000_000], "ms"), (Unit.NS, [2_040_000, 30_000, 20_000], "µs"), (Unit.NS, [], "ns"),
     (Unit.BYTES, [5_000, 7_000_000], "MB"), (Unit.COUNT, [3], ""), (Unit.NS, [0, 0], "ns")],
)  # fmt: skip
def test_one_unit_for_a_column(unit, values, symbol):
    assert scale(unit, values).symbol == symbol
