"""A joined table as people read it: short names, one unit a column, a bar for each row's change."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import column_named
from traceanalyzer.diff import TableDiff
from traceanalyzer.meaning.columns import Column
from traceanalyzer.meaning.quantities import ABSENT, Scale, digits, is_known, scale
from traceanalyzer.report.words.wording import label, words

_SHOWN = ("calls", "copies", "size_bytes", "transfer_ns", "wait_ns", "busbw_gbps")
"""Sums that are shown beside the time."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A column's name, heading, unit, and whether it holds numbers."""

    name: str
    label: str
    unit: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, and the full value where that is more."""

    text: str
    full: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row; its bar goes from `at` for `width` per cent of the bar's place, growth to the right of the middle."""

    status: str
    cells: tuple[Cell, ...]
    at: float
    width: float
    grows: bool


@dataclass(frozen=True, slots=True)
class View:
    """A joined table for a page."""

    analysis: str
    title: str
    columns: tuple[Heading, ...]
    rows: tuple[Row, ...]
    total: int
    counts: dict[str, int]


def table_view(table: TableDiff, most: int | None = None) -> View:
    """The table's rows, largest difference first; the first `most` of them."""
    frame = table.frame.head(most) if most else table.frame
    made = [*_key_columns(frame, table.keys), *_number_columns(frame, table.time)]
    changes = frame[f"change_{table.time}"] if table.time else pd.Series(0.0, index=frame.index)
    widest = float(changes.abs().max()) if len(changes) and changes.notna().any() else 0.0
    cells = list(zip(*(values for _, values in made), strict=True)) if made else []
    rows = tuple(
        _row(str(status), own, float(change) if is_known(change) else 0.0, widest)
        for status, own, change in zip(frame["status"], cells, changes, strict=True)
    )
    return View(
        table.analysis, table.title, tuple(column for column, _ in made), rows, len(table.frame), table.counts()
    )


def _row(status: str, cells: tuple[Cell, ...], change: float, widest: float) -> Row:
    width = 50 * abs(change) / widest if widest else 0.0
    return Row(status, cells, 50 if change >= 0 else 50 - width, width, change > 0)


def _key_columns(frame: pd.DataFrame, keys: tuple[str, ...]) -> list[tuple[Heading, list[Cell]]]:
    made = []
    for key in keys:
        if key == "activity":  # the name tells
            continue
        if frame[key].notna().any():
            made.append(
                (
                    Heading(key, label(key, column_named(key)), "", is_number=False),
                    [_text(value, column_named(key)) for value in frame[key]],
                )
            )
    if "other_name" in frame and frame["other_name"].notna().any():
        others = (_text(value, column_named("name")) for value in frame["other_name"])
        names = [
            Cell(f"{one.text} → {two.text}" if two.text != ABSENT else one.text,
                 f"{one.full or one.text} → {two.full or two.text}" if two.text != ABSENT else one.full)
            for one, two in zip(made[0][1], others, strict=True)
        ]  # fmt: skip
        made[0] = (made[0][0], names)
    return made


def _text(value: object, column: Column) -> Cell:
    if not is_known(value):
        return Cell(ABSENT)
    full = str(value)
    shown = " + ".join(words(part, column) for part in full.split(" + "))
    return Cell(shown, full if shown != full else "")


def _number_columns(frame: pd.DataFrame, time: str | None) -> list[tuple[Heading, list[Cell]]]:
    made = []
    for name in (*_SHOWN, *((time,) if time else ())):
        if f"base_{name}" in frame:
            made += _pair(frame, name)
    if time:
        made.append(_one(frame[f"change_{time}"], f"change_{time}", "change", signed=True))
        made.append(_one(frame[f"change_{time}_pct"], f"change_{time}_pct", "change", signed=True))
        made.append(_points(frame))
    return made


def _pair(frame: pd.DataFrame, name: str) -> list[tuple[Heading, list[Cell]]]:
    """Base's and other's column in one unit."""
    both = pd.concat([frame[f"base_{name}"], frame[f"other_{name}"]]).abs().dropna()
    shared = scale(column_named(name).unit, both.tolist())
    return [
        _one(frame[f"{side}_{name}"], f"{side}_{name}", f"{label(name, column_named(name))} {side}", shared)
        for side in ("base", "other")
    ]


def _points(frame: pd.DataFrame) -> tuple[Heading, list[Cell]]:
    column, cells = _one(frame["change_share_pct_points"], "change_share_pct_points", "share", signed=True)
    return Heading(column.name, column.label, "pp", is_number=True), cells


def _one(
    values: pd.Series, name: str, label: str, own: Scale | None = None, *, signed: bool = False
) -> tuple[Heading, list[Cell]]:
    known = values.abs().dropna()
    used = own or scale(Column.named(name).unit, known.tolist())
    return Heading(name, label, used.symbol, is_number=True), [_number(value, used, signed) for value in values]


def _number(value: object, used: Scale, signed: bool) -> Cell:
    if not is_known(value):
        return Cell(ABSENT)
    number = float(value)  # type: ignore[arg-type]
    shown = used.text(number) if number else digits(0)
    return Cell(f"+{shown}" if signed and number > 0 else shown, repr(number))
