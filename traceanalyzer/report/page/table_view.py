"""Any Result as a table for a page: one unit a column, short names, figures to three digits."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.findings import Finding
from traceanalyzer.report.assets import packed
from traceanalyzer.report.words.quantities import ABSENT, Scale, is_known, quantity, scale
from traceanalyzer.report.words.wording import NAMES, label, told_apart, words

PLAIN_ROWS = 16
"""Rows that stand in the page as they are; those after them are deflated and unpacked when the table is opened."""

MOST_ROWS = 5_000
"""Rows that a page carries of one table; the CSV beside it has all."""

MOST_COLUMNS = 12
"""Of a table with more, those in `SECONDARY` and times and sizes that are all zero are shown at a click."""

SECONDARY = frozenset({
    "basis", "is_open", "is_partial", "comm_ns", "overlapped_comm_ns", "operations_ns",
    "graph_operations", "delay_p95_ns", "queue_mean", "kernels_under_5us", "kernels_under_5us_pct",
    "kernels_under_10us_ns", "kernels_ns",
    "rank_source", "files", "format", "device", "window", "window_start_ns", "api_calls", "host_operators",
    "group_description", "group_ranks", "size_class", "split_calls", "calls_of_unknown_size", "known_size_bytes",
    "median_ns", "std_ns", "median_bytes", "std_bytes",
    "dependency_by", "bound_blocks", "bound_known_blocks", "gpu_own_ns", "family",
})  # fmt: skip
"""Columns that a reader of a wide table rarely looks for: of steps, launches, ranks, communication, memory, streams."""

_NARROW_LATER = frozenset({"kind", "group_label", "group_size", "dtype", "calls", "size_bytes"})
"""Columns that stand before the times and that a narrow screen shows at a click, where a table has times at all."""

_IDENTITIES = ("group", "group_ranks", "group_description")
"""What a trace calls a process group: left to the files where a group is called by what it is for."""

_TELLING = frozenset({"transfer_ns", "wait_ns", "exposed_transfer_ns", "exposed_wait_ns", "idle_ns"})
"""Times whose being all zero is news: nothing waits."""

_NUMBERED = ("rank", "step", "stream", "bin", "stage", "microbatch", "pipeline", "device")
"""Columns whose numbers are names, alone or after another word: written without separators."""

_LONGEST_TEXT = 400
"""Characters; the full text is there on hover."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a page's table; `is_extra` ones are shown at a click, `is_later` ones so on a narrow screen."""

    name: str
    label: str
    unit: str
    definition: str
    is_number: bool
    is_extra: bool = False
    is_later: bool = False


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
    held = [name for name in (columns or frame.columns) if name in frame and frame[name].notna().any()]
    wanted = [name for name in held if name not in _IDENTITIES or "group_label" not in held]
    shown = frame[wanted].head(MOST_ROWS)
    is_wide = len(wanted) > MOST_COLUMNS
    made = [
        _column(shown[name], str(definitions.get(name, "")), zero_ns, is_extra=is_wide and _is_extra(frame[name]))
        for name in wanted
    ]
    columns_made = tuple(replace(column, is_later=_is_later(frame, column.name, wanted)) for column, _ in made)
    cells = zip(*(values for _, values in made), strict=True)
    return TableView(title, columns_made, tuple(cells), len(frame))


def evidence(finding: Finding) -> TableView:
    """The rows behind a finding; their moments are shown as recorded."""
    frame = pd.DataFrame([dict(row) for row in finding.evidence]).convert_dtypes()
    return view_of(frame, "Evidence", {})


def _is_extra(values: pd.Series) -> bool:
    """Whether a wide table does without a column at first: rarely looked for, or no time or size in it."""
    name = str(values.name)
    is_size = quantity(name) in ("ns", "bytes") and name not in _TELLING
    return name in SECONDARY or (is_size and bool((values.dropna() == 0).all()))


def _is_later(frame: pd.DataFrame, name: str, wanted: list[str]) -> bool:
    """Whether a narrow screen does without a column at first: it stands before times, and does not tell rows apart."""
    has_times = sum(quantity(other) == "ns" for other in wanted) > 1
    return has_times and name in _NARROW_LATER and not (name == "group_label" and len(frame[name].unique()) > 1)


def _column(values: pd.Series, definition: str, zero_ns: int, *, is_extra: bool = False) -> tuple[Column, list[Cell]]:
    name = str(values.name)
    plain = [None if absent else value for value, absent in zip(values.tolist(), values.isna(), strict=True)]
    if is_time(name):
        plain = [None if value is None else value - zero_ns for value in plain]
        definition += " Shown after the first operation of the run."
    numbers = [value for value in plain if isinstance(value, int | float) and not isinstance(value, bool)]
    is_number = bool(numbers)
    own = scale(name, [abs(number) for number in numbers]) if is_number else Scale()
    cells = [_cell(value, name, own) for value in plain]
    if name in NAMES:
        cells = _told_apart(cells)
    return Column(name, label(name), own.symbol, definition, is_number, is_extra), cells


def _told_apart(cells: list[Cell]) -> list[Cell]:
    """The cells; where different names have one short name, each with what only it has."""
    alike: dict[str, set[str]] = {}
    for cell in cells:
        alike.setdefault(cell.text, set()).add(cell.full or cell.text)
    added = {
        (text, full): f"{text} · {difference}"
        for text, names in alike.items() if len(names) > 1
        for full, difference in told_apart(names).items() if difference
    }  # fmt: skip
    texts = [added.get((cell.text, cell.full or cell.text), cell.text) for cell in cells]
    return [replace(cell, text=text) for cell, text in zip(cells, texts, strict=True)] if added else cells


def is_time(column: str) -> bool:
    """Whether a column holds points in time and not lengths."""
    return column.endswith(("start_ns", "end_ns"))


def _cell(value: Any, column: str, own: Scale) -> Cell:
    if not is_known(value):
        return Cell(ABSENT, "")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", "")
    if isinstance(value, int | float):
        is_plain = isinstance(value, int) and column.rsplit("_", 1)[-1] in _NUMBERED
        return Cell(str(value) if is_plain else own.text(value), repr(value))
    full = str(value)
    shown = words(full, column)
    shown = shown if len(shown) <= _LONGEST_TEXT else shown[: _LONGEST_TEXT - 1] + "…"
    return Cell(shown, full if shown != full else "")
