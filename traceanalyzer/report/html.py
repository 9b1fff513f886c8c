"""The self-contained HTML page."""

from pathlib import Path

from traceanalyzer.report import Report


def write(report: Report, folder: Path) -> list[Path]:
    """Write `summary.html`."""
    path = folder / "summary.html"
    path.write_text(report.label, encoding="utf-8")
    return [path]
