"""How a figure is written for people: unit, three significant digits, `n/a` for what is not known."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

ABSENT = "n/a"

_STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
    "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "pct": ((1.0, "%"),),
}
"""Scales of each unit that a column's name can end in, largest first; decimal."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One unit for a whole column: shown value = stored value / `divisor`."""

    divisor: float = 1.0
    symbol: str = ""

    def text(self, value: Any) -> str:
        """The value without its unit, or `n/a`."""
        return digits(value / self.divisor) if is_known(value) else ABSENT


def quantity(column: str) -> str | None:
    """The unit that a column's name ends in: `ns`, `bytes`, `pct` or none."""
    ending = column.rsplit("_", 1)[-1]
    return ending if ending in _STEPS else None


def scale(column: str, largest: Any) -> Scale:
    """The unit in which `largest` (of the column's absolute values) is at least 1."""
    unit = quantity(column)
    if unit is None:
        return Scale()
    steps = _STEPS[unit]
    size = abs(largest) if is_known(largest) else 0
    return Scale(*next((step for step in steps if size >= step[0]), steps[-1]))


def text(value: Any, column: str) -> str:
    """One value with its own unit: `66.8 ms`, `23.9 %`, `n/a`."""
    if not is_known(value):
        return ABSENT
    own = scale(column, value)
    return f"{own.text(value)}\u202f{own.symbol}" if own.symbol else own.text(value)


def digits(value: float) -> str:
    """Three significant digits; whole numbers and what is at least 100 in full, with separators."""
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return f"{int(value):,}".replace("-", "−")
    if abs(value) >= 100:
        return f"{value:,.0f}".replace("-", "−")
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    rounded = f"{value:,.{decimals}f}"
    # 9.996 has two decimals here and 10.00 would have four significant digits.
    return (f"{value:,.{decimals - 1}f}" if len(rounded.strip("-0.").replace(".", "")) > 3 else rounded).replace(
        "-", "−"
    )


def is_known(value: Any) -> bool:
    """Whether there is a value: not None, NA or NaN."""
    return value is not None and not pd.isna(value)
