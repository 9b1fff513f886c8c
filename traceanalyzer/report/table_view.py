"""Any Result as a table for a page: one unit a column, short names, figures to three digits."""

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.findings import Finding
from traceanalyzer.names import short_name
from traceanalyzer.report.assets import packed
from traceanalyzer.report.quantities import ABSENT, Scale, is_known, quantity, scale

PLAIN_ROWS = 16
"""Rows that stand in the page as they are; those after them are deflated and unpacked when the table is opened."""

MOST_ROWS = 5_000
"""Rows that a page carries of one table; the CSV beside it has all."""

_NAMES = ("name", "kernel", "after", "before", "doing", "ended_by", "operation", "range")
"""Columns that hold names of kernels or operators."""

_LONGEST_TEXT = 400
"""Characters; the full text is there on hover."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a page's table."""

    name: str
    label: str
    unit: str
    definition: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """What one cell shows, and its full value where that is more."""

    text: str
    full: str


@dataclass(frozen=True, slots=True)
class TableView:
    """A table for a page; `total` counts all rows, also those that it does not carry."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int

    @property
    def packed(self) -> str | None:
        """The rows after the first ones, column by column, deflated; `None` without any."""
        later = self.rows[PLAIN_ROWS:]
        if not later:
            return None
        columns = [
            [[cell.text, cell.full] if cell.full else cell.text for cell in column]
            for column in zip(*later, strict=True)
        ]
        return packed(json.dumps(columns, separators=(",", ":")).encode())


def view(result: Result, columns: tuple[str, ...] = (), zero_ns: int = 0) -> TableView:
    """The result's rows, with the named columns or all; columns without any value are left out.

    Points in time (`…start_ns`, `…end_ns`) are shown after `zero_ns`.
    """
    return view_of(result.to_frame(), result.title, result.columns, columns, zero_ns)


def view_of(
    frame: pd.DataFrame, title: str, definitions: Any, columns: tuple[str, ...] = (), zero_ns: int = 0
) -> TableView:
    """The same of a table that is not a Result's; `definitions` maps each column to its meaning."""
    wanted = [name for name in (columns or frame.columns) if name in frame and frame[name].notna().any()]
    shown = frame[wanted].head(MOST_ROWS)
    made = [_column(shown[name], str(definitions.get(name, "")), zero_ns) for name in wanted]
    cells = zip(*(values for _, values in made), strict=True)
    return TableView(title, tuple(column for column, _ in made), tuple(cells), len(frame))


def evidence(finding: Finding) -> TableView:
    """The rows behind a finding; their moments are shown as recorded."""
    frame = pd.DataFrame([dict(row) for row in finding.evidence]).convert_dtypes()
    return view_of(frame, "Evidence", {})


def _column(values: pd.Series, definition: str, zero_ns: int) -> tuple[Column, list[Cell]]:
    name = str(values.name)
    plain = [None if absent else value for value, absent in zip(values.tolist(), values.isna(), strict=True)]
    if is_time(name):
        plain = [None if value is None else value - zero_ns for value in plain]
        definition += " Shown after the first operation of the run."
    numbers = [value for value in plain if isinstance(value, int | float) and not isinstance(value, bool)]
    is_number = bool(numbers)
    own = scale(name, [abs(number) for number in numbers]) if is_number else Scale()
    label = name.removesuffix(f"_{quantity(name)}").replace("_", " ")
    cells = [_cell(value, name, own) for value in plain]
    return Column(name, label, own.symbol, definition, is_number), cells


def is_time(column: str) -> bool:
    """Whether a column holds points in time and not lengths."""
    return column.endswith(("start_ns", "end_ns"))


def _cell(value: Any, column: str, own: Scale) -> Cell:
    if not is_known(value):
        return Cell(ABSENT, "")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", "")
    if isinstance(value, int | float):
        # Numbers of ranks, steps and streams are names: no separators.
        return Cell(str(value) if quantity(column) is None and isinstance(value, int) and value < 10_000
                    else own.text(value), repr(value))  # fmt: skip
    full = str(value)
    shown = _shown(full, column)
    shown = shown if len(shown) <= _LONGEST_TEXT else shown[: _LONGEST_TEXT - 1] + "…"
    return Cell(shown, full if shown != full else "")


def _shown(text: str, column: str) -> str:
    """What a person calls it."""
    if column in _NAMES:
        return short_name(text)
    if column == "figure":  # a column's name: what it is of; its unit stands in the columns' heads
        return text.removesuffix(f"_{quantity(text)}").replace("_", " ")
    return text.replace("_", "-") if column == "collective" else text
