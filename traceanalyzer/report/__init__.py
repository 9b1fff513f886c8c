"""What a report holds, and the forms in which it can be written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from traceanalyzer.analyses import Result
from traceanalyzer.findings import Finding
from traceanalyzer.model import Skipped
from traceanalyzer.run_info import RunInfo

FORMAT_VERSION = 1
"""Of `summary.json`; rises when a reader of it must change."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that a writer sees.

    Attributes:
        label: name of the run.
        results: by analysis, in the order in which a report shows them.
        skipped: files, ranks and parts that were left out, and why.
        notes: sentences that a reader of the figures must know.
        run_info: the run.json beside the traces.
        command: the command line that makes this report again.
        created: when it was made, ISO 8601.
        version: of traceanalyzer.
    """

    label: str
    results: Mapping[str, Result]
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    run_info: RunInfo | None = None
    command: str | None = None
    created: str | None = None
    version: str | None = None


Writer = Callable[[Report, Path], list[Path]]
"""Writes a report into a folder and returns the files it made."""


def write_html(report: Report, folder: Path, *, plotlyjs: str = "inline") -> list[Path]:
    """`summary.html`; `plotlyjs="directory"` puts the charts' script in a file beside it."""
    from traceanalyzer.report import html  # noqa: PLC0415 - jinja2 only when a page is made

    return html.write(report, folder, plotlyjs=plotlyjs)


def _write_csv(report: Report, folder: Path) -> list[Path]:
    from traceanalyzer.report import tables  # noqa: PLC0415

    return tables.write_csv(report, folder)


def _write_json(report: Report, folder: Path) -> list[Path]:
    from traceanalyzer.report import tables  # noqa: PLC0415

    return tables.write_json(report, folder)


def _write_parquet(report: Report, folder: Path) -> list[Path]:
    from traceanalyzer.report import tables  # noqa: PLC0415

    return tables.write_parquet(report, folder)


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {"html": write_html, "csv": _write_csv, "json": _write_json, "parquet": _write_parquet}
)
"""By the name that `--format` takes."""


def __getattr__(name: str) -> Any:
    if name == "report":  # from traceanalyzer.report import report: what a notebook shows
        from traceanalyzer.report.notebook import report  # noqa: PLC0415

        return report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
