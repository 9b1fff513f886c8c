"""How a figure of a trend is called, and how its change is written."""

from collections.abc import Mapping
from typing import Any

from traceanalyzer.meaning.columns import stem
from traceanalyzer.meaning.quantities import digits, is_known


def label(metric: str) -> str:
    """`step`, `exposed comm`."""
    return stem(metric).replace("_", " ")


def change(row: Mapping[str, Any]) -> str:
    """`+3.2 %`, `−1.5 pp`; empty where there is none."""
    for column, unit in (("change_pct", "%"), ("change_pct_points", "pp")):
        if is_known(row[column]):
            value = float(row[column])
            return f"{'+' if value > 0 else ''}{digits(value)} {unit}"
    return ""
