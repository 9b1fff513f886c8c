import pandas as pd
import pytest

from traceanalyzer.report.words.quantities import digits, quantity, scale, text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (66.8431, "66.8"), (9.996, "10.0"), (0.04852, "0.0485"), (142.9, "143"), (20487, "20,487"),
     (1950.4, "1,950"), (-3.21, "−3.21"), (0.00099961, "0.00100"), (99.96, "100"), (7, "7"), (0.5, "0.500")],
)  # fmt: skip
def test_three_significant_digits(value, expected):
    assert digits(value) == expected


@pytest.mark.parametrize(
    ("value", "column", "expected"),
    [(66_843_100, "step_ns", "66.8\u202fms"), (999, "total_ns", "999\u202fns"), (1_952_593_920, "size_bytes", "1.95\u202fGB"),
     (23.987, "overlap_pct", "24.0\u202f%"), (None, "overlap_pct", "n/a"), (pd.NA, "size_bytes", "n/a"), (0, "wait_ns", "0\u202fns")],
)  # fmt: skip
def test_a_value_has_its_unit_and_absent_is_not_zero(value, column, expected):
    assert text(value, column) == expected


@pytest.mark.parametrize(
    ("column", "values", "symbol"),
    [("total_ns", [86_000_000, 4_000_000], "ms"), ("mean_ns", [2_040_000, 30_000, 20_000], "µs"), ("total_ns", [], "ns"),
     ("size_bytes", [5_000, 7_000_000], "MB"), ("calls", [3], ""), ("mean_ns", [0, 0], "ns")],
)  # fmt: skip
def test_one_unit_for_a_column(column, values, symbol):
    assert scale(column, values).symbol == symbol


def test_quantity_is_the_ending_of_a_name():
    assert [quantity(name) for name in ("idle_ns", "size_bytes", "overlap_pct", "rank")] == ["ns", "bytes", "pct", None]
    assert [quantity(name) for name in ("tflops_per_s", "peak_gbytes_per_s", "model_flops", "sends")] == [
        "tflops_per_s", "gbytes_per_s", "flops", None,
    ]  # fmt: skip
