"""Any table for people, on a page, a terminal or in Markdown: one unit a column, short names, three digits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from traceanalyzer.analyses import Result, column_named
from traceanalyzer.analyses.base import plain_values
from traceanalyzer.findings import Finding
from traceanalyzer.meaning.columns import ABSENT, Column, Scale, Unit, Written, digits, is_known, scale, text
from traceanalyzer.report.assets import packed
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.words import distinguishing_parts, label, words


@dataclass(frozen=True, slots=True)
class Heading:
    """One column of a page's table; `is_extra` ones are shown at a click, `is_later` ones so on a narrow screen."""

    name: str
    label: str
    unit: str
    definition: str
    is_number: bool
    is_extra: bool = False
    is_later: bool = False

    @property
    def text(self) -> str:
        """Label and unit."""
        return f"{self.label} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Cell:
    """What one cell shows, and its full value where that is more; equal values share one."""

    text: str
    full: str = ""


@dataclass(frozen=True, slots=True)
class TableView:
    """A table for a page; `total` counts all rows, also those that it does not carry."""

    title: str
    columns: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int

    @property
    def packed(self) -> str | None:
        """The rows after the first ones, column by column, deflated; `None` without any."""
        later = self.rows[LAYOUT.plain_rows :]
        if not later:
            return None
        columns = [
            [[cell.text, cell.full] if cell.full else cell.text for cell in column]
            for column in zip(*later, strict=True)
        ]
        return packed(msgspec.json.encode(columns))


def view(result: Result, columns: tuple[str, ...] = (), zero_ns: int = 0) -> TableView:
    """The result's rows, with the named columns or all; columns without any value are left out.

    Points in time are shown after `zero_ns`.
    """
    return view_of(result.to_frame(), result.title, result.columns, columns, zero_ns)


def view_of(
    frame: pd.DataFrame, title: str, meanings: Mapping[str, Column], columns: tuple[str, ...] = (), zero_ns: int = 0
) -> TableView:
    """The same of a table that is not a Result's; what `meanings` lacks means what Results mean by that name."""
    table = {name: frame[name] for name in (columns or frame.columns) if name in frame}
    filled = [name for name, values in table.items() if not values.array.isna().all()]
    known = {name: meanings.get(name) or column_named(name) for name in filled}
    wanted = [name for name, column in known.items() if column.replaced_by not in known]
    is_wide = len(wanted) > LAYOUT.table_columns
    made = [
        column_view(
            values.iloc[: LAYOUT.table_rows], column, zero_ns=zero_ns, is_extra=is_wide and _is_extra(values, column)
        )
        for values, column in ((table[name], known[name]) for name in wanted)
    ]
    has_times = sum(known[name].unit is Unit.NS for name in wanted) > 1
    columns_made = tuple(
        replace(head, is_later=has_times and _is_later(table[head.name], known[head.name])) for head, _ in made
    )
    cells = zip(*(values for _, values in made), strict=True)
    return TableView(title, columns_made, tuple(cells), len(frame))


def console_table(
    view: TableView,
    width: int,
    first: Sequence[str] = (),
    styles: Mapping[str, str] = MappingProxyType({}),
    caption: str = "",
) -> Table:
    """The view on a terminal: as many columns as fit, those named `first` before others; the caption names the rest."""
    texts = [[cell.text for cell in column] for column in zip(*view.rows, strict=True)]
    needed = [
        min(LAYOUT.printed_text, max(map(len, (head.text, *column)))) + 2
        for head, column in zip(view.columns, texts, strict=True)
    ]

    def place(at: int) -> tuple[int, bool]:
        head = view.columns[at]
        return first.index(head.name) if head.name in first else len(first), head.is_extra or head.is_later

    shown, room = set[int](), width
    for at in sorted(range(len(needed)), key=place):
        if needed[at] <= room or not shown:
            shown.add(at)
            room -= needed[at]
    hidden = [head.name for at, head in enumerate(view.columns) if at not in shown]
    caption = "; ".join(filter(None, [caption, f"not shown: {', '.join(hidden)}" if hidden else ""]))
    table = Table(
        title=view.title or None, caption=caption or None, title_justify="left", caption_justify="left",
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True,
    )  # fmt: skip
    for at in sorted(shown):
        head = view.columns[at]
        table.add_column(escape(head.text), overflow="ellipsis", no_wrap=True, max_width=LAYOUT.printed_text,
                         justify="right" if head.is_number else "left", style=styles.get(head.name))  # fmt: skip
    for row in view.rows:
        table.add_row(*(escape(row[at].text) for at in sorted(shown)))
    return table


def evidence(finding: Finding) -> list[TableView]:
    """The rows behind a finding, a table for those of the same columns; their moments are shown as recorded."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in finding.evidence:
        alike.setdefault(tuple(row), []).append(dict(row))
    # Names are those of Results; what exactly is meant, the finding's title says.
    return [
        view_of(pd.DataFrame(rows).convert_dtypes(), "Evidence",
                {name: replace(column_named(name), definition="") for name in names})
        for names, rows in alike.items()
    ]  # fmt: skip


def _is_extra(values: pd.Series, column: Column) -> bool:
    """Whether a wide table does without a column at first: rarely looked for, or no time or size in it."""
    is_size = column.unit in (Unit.NS, Unit.BYTES) and not column.is_news_when_zero
    return column.is_secondary or (is_size and bool((values.dropna() == 0).all()))


def _is_later(values: pd.Series, column: Column) -> bool:
    """Whether a narrow screen does without a column at first: it stands before times, and does not tell rows apart."""
    return column.is_aside or (column.is_aside_when_one and len(values.unique()) == 1)


def column_view(
    values: pd.Series,
    column: Column,
    head: str = "",
    *,
    zero_ns: int = 0,
    is_extra: bool = False,
    is_signed: bool = False,
) -> tuple[Heading, list[Cell]]:
    """A column's heading (`head`, else what its name says) and cells; `is_signed` ones are differences."""
    name, definition = str(values.name), column.definition
    plain = plain_values(values)
    if column.is_moment:
        plain = [None if value is None else value - zero_ns for value in plain]
        definition += " Shown after the first operation of the run."
    kinds = {*map(type, plain)} - {type(None)}
    number_kinds = {kind for kind in kinds if issubclass(kind, int | float) and kind is not bool}
    used = unit_for(column.unit, [value for value in plain if type(value) in number_kinds]) if number_kinds else Scale()
    # True is 1, and is not shown as 1 is.
    keys = plain if len(kinds) <= 1 else [(type(value), value) for value in plain]
    shown = {key: _cell(value, column, used, is_signed) for key, value in dict(zip(keys, plain, strict=True)).items()}
    cells = [shown[key] for key in keys]
    if column.written is Written.KERNEL:
        cells = _unambiguous(cells)
    symbol = used.symbol if used else ""
    return Heading(name, head or label(name, column), symbol, definition, bool(number_kinds), is_extra), cells


def unit_for(unit: Unit, values: Iterable[float]) -> Scale | None:
    """The scale for a column's heading; `None` where a value is under a thousandth of it: each has its own unit."""
    sizes = [abs(value) for value in values if is_known(value) and value]
    used = scale(unit, sizes)
    return None if used.divisor > 1 and 1000 * min(sizes) < used.divisor else used


def _unambiguous(cells: list[Cell]) -> list[Cell]:
    """The cells; where different names have one short name, each with what only it has."""
    alike: dict[str, set[str]] = {}
    for cell in cells:
        alike.setdefault(cell.text, set()).add(cell.full or cell.text)
    added = {
        (text, full): f"{text} · {difference}"
        for text, names in alike.items() if len(names) > 1
        for full, difference in distinguishing_parts(names).items() if difference
    }  # fmt: skip
    texts = [added.get((cell.text, cell.full or cell.text), cell.text) for cell in cells]
    return [replace(cell, text=text) for cell, text in zip(cells, texts, strict=True)] if added else cells


def _cell(value: Any, column: Column, used: Scale | None, is_signed: bool) -> Cell:
    """What a value is shown as; a difference that is more has a +."""
    if not is_known(value):
        return Cell(column.absent or ABSENT, "")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", "")
    if isinstance(value, int | float):
        if isinstance(value, int) and column.unit is Unit.ID:
            return Cell(str(value), repr(value))
        shown = used.text(value) if used else text(value, column.unit) if value else digits(0)
        return Cell(f"+{shown}" if is_signed and value > 0 else shown, repr(value))
    full = str(value)
    shown = " + ".join(words(part, column) for part in full.split(" + "))
    shown = shown if len(shown) <= LAYOUT.cell_text else shown[: LAYOUT.cell_text - 1] + "…"
    return Cell(shown, full if shown != full else "")


Part = str | Text
"""A cell: a text is shown as it is, whatever its characters would mean to rich."""


def table_of(heads: Sequence[Part], rows: Iterable[Sequence[Part]], texts: int = 1, **more: Any) -> Table:
    """A table whose first `texts` columns are texts and the others figures; `more` is what rich's tables take."""
    made = Table(box=box.SIMPLE_HEAD, **more)
    for place, head in enumerate(heads):
        made.add_column(plain(head), justify="left" if place < texts else "right")
    for row in rows:
        made.add_row(*map(plain, row))
    return made


def plain(cell: Part) -> Part:
    """The cell without markup of its own."""
    return escape(cell) if isinstance(cell, str) else cell


def with_unit(label: str, unit: str) -> Text:
    """A heading with its unit in a quieter tone."""
    return Text.assemble(label, " ", (unit, "dim"))


def unwrapped(console: Console) -> "partial[None]":
    """Prints a line: wrapped on a terminal, whole into a pipe."""
    return partial(console.print, highlight=False, soft_wrap=not console.is_terminal)
