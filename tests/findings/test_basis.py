"""How findings write times."""

import pytest

from traceanalyzer.findings.basis import milliseconds, span


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(830, "0.83 µs"), (1_000, "0.001 ms"), (45_900_000, "45.9 ms"), (999_400_000, "999 ms"), (999_600_000, "1,000 ms"),
     (1_070_000_000, "1.07 s"), (1_234_000_000_000, "1,234 s")],
)  # fmt: skip
def test_times_are_written_in_the_unit_that_people_use(time_ns, text):
    assert milliseconds(time_ns) == text


@pytest.mark.parametrize(
    ("least_ns", "most_ns", "text"),
    [(53_100_000, 62_500_000, "53.1 to 62.5 ms"), (900_000_000, 1_200_000_000, "900 ms to 1.20 s"),
     (53_100_000, 53_101_000, "53.1 ms")],
)  # fmt: skip
def test_the_unit_of_a_span_stands_once_where_it_is_one(least_ns, most_ns, text):
    assert span(least_ns, most_ns) == text
