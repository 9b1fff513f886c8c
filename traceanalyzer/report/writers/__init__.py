"""A report as files: each form in which it can be written."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from traceanalyzer.failures import Failure
from traceanalyzer.report.contents import Report

Writer = Callable[[Report, Path], list[Path]]
"""Writes a report into a folder and returns the files it made."""


def write_html(
    report: Report,
    folder: Path,
    *,
    plotlyjs: str = "inline",
    failures: list[Failure] | None = None,
    beside: Path | None = None,
    processes: int = 1,
) -> list[Path]:
    """`summary.html`; `plotlyjs="directory"` puts the charts' script in a file beside the reports' folders."""
    from traceanalyzer.report.writers import html

    return html.write(report, folder, plotlyjs=plotlyjs, failures=failures, beside=beside, processes=processes)


def write_csv(report: Report, folder: Path, *, share: int = 0, shares: int = 1) -> list[Path]:
    """`summary.csv` and `tables/`; of several shares, each of which may be another process', one."""
    from traceanalyzer.report.writers import tables

    return tables.write_csv(report, folder, share=share, shares=shares)


def _write_json(report: Report, folder: Path) -> list[Path]:
    from traceanalyzer.report.writers import tables

    return tables.write_json(report, folder)


def _write_parquet(report: Report, folder: Path) -> list[Path]:
    from traceanalyzer.report.writers import tables

    return tables.write_parquet(report, folder)


def _write_markdown(report: Report, folder: Path) -> list[Path]:
    from traceanalyzer.report.writers import markdown

    return markdown.write(report, folder)


def _write_xlsx(report: Report, folder: Path) -> list[Path]:
    from traceanalyzer.report.writers import workbook

    return workbook.write(report, folder)


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {
        "html": write_html,
        "csv": write_csv,
        "json": _write_json,
        "parquet": _write_parquet,
        "md": _write_markdown,
        "xlsx": _write_xlsx,
    }
)
"""By the name that `--format` takes."""
