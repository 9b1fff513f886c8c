"""A report as an Excel workbook: a sheet for what it says, an index, and one for each table."""

from pathlib import Path
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.base import plain_values
from traceanalyzer.errors import needs_extra
from traceanalyzer.report import words
from traceanalyzer.report.contents import Report
from traceanalyzer.report.words import split

MOST_ROWS = 1_048_575
"""A sheet holds one row more, which is the heading."""

_LONGEST_NAME = 31
_LONGEST_TEXT = 32_767
_WIDEST = 60
_LARGEST_EXACT = 2**53


def write(report: Report, folder: Path) -> list[Path]:
    """`summary.xlsx`: whole numbers stay so (as texts where a cell would round them), what is absent is an empty cell.

    Raises:
        UsageError: the package XlsxWriter is not installed.
    """
    try:
        import xlsxwriter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise needs_extra("--format xlsx needs the package XlsxWriter", "excel") from error
    path = folder / "summary.xlsx"
    tables = {name: result for name, result in report.results.items() if not result.is_event_copy and len(result)}
    sheets = {name: name[:_LONGEST_NAME] for name in tables}
    # Texts come from traces: none of them may become a formula or a link.
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(path, options) as book:
        bold = book.add_format({"bold": True})
        _summary(book.add_worksheet("summary"), report, bold)
        _index(book.add_worksheet("tables"), tables, sheets, bold)
        for name, result in tables.items():
            _table(book.add_worksheet(sheets[name]), result, bold)
    return [path]


_FIELDS = ("Why", "Fix", "Saves", "Confidence", "Caveat", "What-if")


def _summary(sheet: Any, report: Report, bold: Any) -> None:
    """The verdict, the findings, and what to know before trusting the figures."""
    rows: list[tuple[str, ...]] = [(report.label,), *((one,) for one in _sentences(report)), ()]
    heading = len(rows)
    rows.append(("Severity", "Finding", *_FIELDS))
    sheet.set_column(0, 0, 12)
    sheet.set_column(1, 1 + len(_FIELDS), _WIDEST)
    for number, row in enumerate(rows):
        sheet.write_row(number, 0, row, bold if number in (0, heading) else None)
    for number, finding in enumerate(report.findings, len(rows)):
        texts = words.fields(finding)
        sheet.write_row(number, 0, (finding.severity, finding.headline, *(texts.get(name) for name in _FIELDS)))


def _sentences(report: Report) -> list[str]:
    skipped = [f"Skipped {sentence}" for sentence in words.skipped(report.skipped)]
    return [*words.sentences(report, split(report.results)), *report.remarks, *words.of_what_is_here(report), *skipped]


def _index(sheet: Any, tables: dict[str, Result], sheets: dict[str, str], bold: Any) -> None:
    sheet.set_column(0, 1, 28)
    sheet.set_column(2, 2, 100)
    sheet.write_row(0, 0, ("table", "title", "a row is", "rows"), bold)
    for number, (name, result) in enumerate(tables.items(), 1):
        sheet.write_url(number, 0, f"internal:'{sheets[name]}'!A1", string=name)
        note = f" (the first {MOST_ROWS:,} are here)" if len(result) > MOST_ROWS else ""
        sheet.write_row(number, 1, (result.title, result.meaning() + note, len(result)))


def _table(sheet: Any, result: Result, bold: Any) -> None:
    """A heading that stays in sight, with each column's definition as a comment, and the rows."""
    frame = result.to_frame().iloc[:MOST_ROWS]
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, len(frame), max(len(frame.columns) - 1, 0))
    columns = [_cells(frame[name]) for name in frame]
    for place, (name, cells) in enumerate(zip(frame, columns, strict=True)):
        widest = max([len(str(name)), *(len(str(cell)) for cell in cells[:200])])
        sheet.set_column(place, place, min(widest + 2, _WIDEST))
        sheet.write(0, place, str(name), bold)
        column = result.columns[str(name)]
        sheet.write_comment(0, place, f"{column.definition} [{column.unit}]")
    for number, row in enumerate(zip(*columns, strict=True), 1):
        sheet.write_row(number, 0, row)


def _cells(column: pd.Series) -> list[Any]:
    """What a cell can hold: numbers, texts, yes or no, nothing."""
    return [_cell(value) for value in plain_values(column)]


def _cell(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > _LARGEST_EXACT:
        return str(value)  # a cell's number is a double: a moment would lose its last digits
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if abs(value) != float("inf") else str(value)
    return str(value)[:_LONGEST_TEXT]
