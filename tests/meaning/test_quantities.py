import json
import shutil
import subprocess

import pandas as pd
import pytest

from traceanalyzer.meaning.columns import Unit, digits, per_cent, scale, signed, text, time_span, time_text
from traceanalyzer.report import assets


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
     (23.987, Unit.PCT, "24.0%"), (None, Unit.PCT, "n/a"), (pd.NA, Unit.BYTES, "n/a"), (0, Unit.NS, "0\u202fns")],
)  # fmt: skip
def test_a_value_has_its_unit_and_absent_is_not_zero(value, unit, expected):
    assert text(value, unit) == expected


@pytest.mark.parametrize(
    ("unit", "values", "symbol"),
    [(Unit.NS, [86_000_000, 4_000_000], "ms"), (Unit.NS, [2_040_000, 30_000, 20_000], "µs"), (Unit.NS, [], "ns"),
     (Unit.BYTES, [5_000, 7_000_000], "MB"), (Unit.NS, [999_700], "ms"), (Unit.NS, [999_400], "µs"), (Unit.COUNT, [3], ""), (Unit.NS, [0, 0], "ns")],
)  # fmt: skip
def test_one_unit_for_a_column(unit, values, symbol):
    assert scale(unit, values).symbol == symbol


@pytest.mark.parametrize(
    ("time_ns", "expected"),
    [(0, "0 ns"), (830, "830 ns"), (1_000, "1 µs"), (450_300, "450 µs"), (45_040_000, "45.0 ms"),
     (999_400_000, "999 ms"), (999_600_000, "1.00 s"), (1_070_000_000, "1.07 s"), (1_234_000_000_000, "1,234 s")],
)  # fmt: skip
def test_times_of_sentences_read_as_those_of_tables_with_a_plain_blank(time_ns, expected):
    assert time_text(time_ns) == expected == text(float(time_ns), Unit.NS).replace("\u202f", " ")


@pytest.mark.parametrize(
    ("least_ns", "most_ns", "expected"),
    [(53_100_000, 62_500_000, "53.1 to 62.5 ms"), (900_000, 1_200_000, "900 µs to 1.20 ms"),
     (53_100_000, 53_101_000, "53.1 ms")],
)  # fmt: skip
def test_the_unit_of_a_span_stands_once_where_it_is_one(least_ns, most_ns, expected):
    assert time_span(least_ns, most_ns) == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (0.0042, "0.00"), (0.0785, "0.08"), (0.639, "0.64"), (-0.279, "−0.28"), (3.92, "3.92"), (120.4, "120")],
)
def test_per_cent_have_no_more_digits_than_somebody_measures(value, said):
    assert per_cent(value) == said
    assert text(value, Unit.PCT) == f"{said}%"
    assert signed(value) == (f"+{said}" if value > 0 else said)


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine to run a script with")
def test_the_pages_scripts_write_figures_as_tables_do():
    values = [0, 7, -3.21, 0.00000012345, 0.0042, 0.0485, 0.639, 9.996, 61.04, 99.96, 142.9, 999, 999.7, 1234.4, 20_487,
              999_400, 999_700, 1_234_567.8, 66_812_345, 999_600_000, 4_000_000_000_000]  # fmt: skip
    script = (
        f'import {{ bytesText, digits, perCent, timeText }} from "{(assets.templates() / "scripts/page/numbers.js").as_uri()}";'
        f"console.log(JSON.stringify({values}.map((x) => [digits(x), perCent(x), timeText(x), bytesText(x)])))"
    )
    done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    expected = [[digits(x), per_cent(x), text(x, Unit.NS), text(x, Unit.BYTES)] for x in values]
    assert json.loads(done.stdout) == expected
