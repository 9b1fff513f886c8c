"""A report as an Excel workbook: a sheet for what it says, an index, and one for each table."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from traceanalyzer.analyses.base import plain_values
from traceanalyzer.errors import needs_extra
from traceanalyzer.meaning.columns import Column
from traceanalyzer.report import words
from traceanalyzer.report.contents import Report
from traceanalyzer.report.words import split
from traceanalyzer.report.writers.tables import index_of

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
    # Texts come from traces: none of them may become a formula or a link.
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(path, options) as book:
        _sheet(book, "summary", _summary(report))
        _sheet(book, "tables", index_of(tables))
        for name, result in tables.items():
            _sheet(book, name, result.to_frame().iloc[:MOST_ROWS], result.columns)
    return [path]


def _sheet(book: Any, name: str, frame: pd.DataFrame, meanings: Mapping[str, Column] = MappingProxyType({})) -> None:
    """A heading that stays in sight, with each column's definition as a comment, and the rows."""
    sheet, bold = book.add_worksheet(name[:_LONGEST_NAME]), book.add_format({"bold": True})
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, len(frame), max(len(frame.columns) - 1, 0))
    columns = {str(head): [_cell(value) for value in plain_values(values)] for head, values in frame.items()}
    for place, (head, cells) in enumerate(columns.items()):
        sheet.set_column(place, place, min(max(map(len, map(str, (head, *cells[:200])))) + 2, _WIDEST))
        sheet.write(0, place, head, bold)
        if head in meanings:
            sheet.write_comment(0, place, f"{meanings[head].definition} [{meanings[head].unit}]")
    for number, row in enumerate(zip(*columns.values(), strict=True), 1):
        sheet.write_row(number, 0, row)


def _summary(report: Report) -> pd.DataFrame:
    """The verdict, what to know before trusting the figures, and the findings with their fields."""
    skipped = [f"Skipped {sentence}" for sentence in words.skipped(report.skipped)]
    verdict = words.sentences(report, split(report.results))[:1]
    said = [*verdict, *report.remarks, *words.of_what_is_here(report), *skipped]
    findings = [
        {"Severity": finding.severity, report.label: finding.headline, **words.fields(finding)}
        for finding in report.findings
    ]
    return pd.DataFrame([*({report.label: sentence} for sentence in said), *findings], dtype=object)


def _cell(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > _LARGEST_EXACT:
        return str(value)  # a cell's number is a double: a moment would lose its last digits
    if isinstance(value, float):
        return value if abs(value) != float("inf") else str(value)
    return value if value is None or isinstance(value, bool | int) else str(value)[:_LONGEST_TEXT]
