"""How a figure is written in a cell of a table."""

from __future__ import annotations

import pandas as pd

GIB, MS, MB = 2**30, 1e6, 1e6


def rounded(value: float | None, digits: int) -> float | None:
    """The value with so many digits; None stays, and becomes an empty cell."""
    return None if value is None or pd.isna(value) else round(float(value), digits)


def counted(value: float | None) -> float | int | None:
    """A mean count, whole where it is whole; none at all is an empty cell."""
    if value is None or pd.isna(value) or value == 0:
        return None
    return int(value) if float(value).is_integer() else round(float(value), 2)


def markdown(table: pd.DataFrame) -> str:
    """The table as Markdown, one line a row."""

    def cell(value: object) -> str:
        if value is None or (isinstance(value, float) and pd.isna(value)):
            return ""
        return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)

    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(object).to_numpy().tolist()]
    return "".join("| " + " | ".join(map(cell, line)) + " |\n" for line in lines)
