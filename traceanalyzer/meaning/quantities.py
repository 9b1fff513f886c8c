"""How a figure is written for people: unit, three significant digits, `n/a` for what is not known."""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.meaning.columns import Unit

ABSENT = "n/a"

_STEPS: Mapping[str, tuple[tuple[float, str], ...]] = MappingProxyType(
    {
        Unit.NS: ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
        Unit.BYTES: ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
        Unit.PCT: ((1.0, "%"),),
        Unit.GB_PER_S: ((1.0, "GB/s"),),
        Unit.FLOPS: ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP")),
        Unit.TFLOPS_PER_S: ((1.0, "TFLOP/s"),),
    }
)
"""Scales of each unit, largest first; decimal. Other units have none."""


class Scale(Struct, frozen=True):
    """One unit for a whole column: shown value = stored value / `divisor`."""

    divisor: float = 1.0
    symbol: str = ""

    def text(self, value: Any) -> str:
        """The value without its unit, or `n/a`."""
        if not is_known(value):
            return ABSENT
        return per_cent(value) if self.symbol == Unit.PCT else digits(value / self.divisor)


def scale(unit: Unit, sizes: Iterable[float]) -> Scale:
    """One scale for a column's absolute values: the largest, as it is shown, is at least 1 in it, half of them 0.1."""
    if unit not in _STEPS:
        return Scale()
    steps, known = _STEPS[unit], sorted(size for size in sizes if size)
    wanted = min(known[-1], 10 * known[len(known) // 2]) if known else 0
    shown = float(f"{wanted:.3g}")  # 999.7 µs are 1.00 ms
    return Scale(*next((step for step in steps if shown >= step[0]), steps[-1]))


def text(value: Any, unit: Unit) -> str:
    """One value with its own unit: `66.8 ms`, `23.9 %`, `n/a`."""
    if not is_known(value):
        return ABSENT
    own = scale(unit, [abs(value)])
    return f"{own.text(value)}\u202f{own.symbol}" if own.symbol else own.text(value)


def in_a_line(value: Any, unit: Unit) -> str:
    """The same with a plain blank, for sentences and files."""
    return text(value, unit).replace("\u202f", " ")


def time_text(time_ns: float | None) -> str:
    """A time for sentences, in the unit that makes it at least 1: `830 ns`, `450 µs`, `45.9 ms`, `12.9 s`; `n/a`."""
    return in_a_line(time_ns, Unit.NS)


def size_text(size_bytes: float | None) -> str:
    """A size for sentences, decimal: `512 B`, `8.39 MB`, `2.35 GB`; `n/a`."""
    return in_a_line(size_bytes, Unit.BYTES)


def time_span(least_ns: float, most_ns: float) -> str:
    """`53.1 to 62.5 ms`, `900 µs to 1.20 ms`, or one of them where they read alike."""
    low, high = time_text(least_ns), time_text(most_ns)
    unit = high.rpartition(" ")[2]
    return high if low == high else f"{low.removesuffix(f' {unit}')} to {high}"


def digits(value: float) -> str:
    """Three significant digits; whole numbers and what is at least 100 in full, with separators."""
    if not is_known(value):
        return ABSENT
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return f"{int(value):,}".replace("-", "−")
    if abs(value) >= 100:
        return f"{value:,.0f}".replace("-", "−")
    rounded = float(f"{value:.3g}")  # 9.996 is 10.0, which has one decimal and not two
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}".replace("-", "−")


def per_cent(value: float) -> str:
    """Per cent without the sign: three significant digits, but no more than two decimals, which nobody measures.

    Only what is nothing is `0`: what rounds to it is `0.00`.
    """
    if not is_known(value) or abs(value) >= 1 or float(value).is_integer():
        return digits(value)
    return f"{value:.2f}".replace("-", "−")


def signed(value: float, unit: Unit | None = None) -> str:
    """A difference, with a + where it is more: of the unit, else per cent or points of it without a sign of these."""
    shown = per_cent(value) if unit is None else text(value, unit)
    return f"+{shown}" if value > 0 else shown


def is_known(value: Any) -> bool:
    """Whether there is a value: not None, NA or NaN."""
    if isinstance(value, float):
        return not math.isnan(value)
    return value is not None and (isinstance(value, int | str) or not pd.isna(value))
