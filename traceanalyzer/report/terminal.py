"""The short summary that the command line prints: where each rank's time went, in colour when it can."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.report import Report, care, parts, verdict

COLOURS: Mapping[str, str] = {
    "compute": "#0072B2",
    "exposed_comm": "#56B4E9",
    "exposed_copy": "#009E73",
    "idle": "#999999",
}

_HEADINGS = {"compute": "Compute", "exposed_comm": "Exposed comm", "exposed_copy": "Exposed copy", "idle": "Idle"}

_MOST_RANKS = 16


def show(report: Report, console: Console) -> None:
    """Print the headline breakdown of every rank, the costliest findings and what was skipped."""
    rows = report.results["headline"].rows()
    console.print(_table(report.label, rows))
    if "headline" in care.doubted(report.results):
        console.print("[yellow]Read these figures with care:[/] the notes below say why.", highlight=False)
    for finding in report.findings[:5]:
        console.print(f"[bold]•[/] {escape(finding.title)}")
    if not report.findings:  # what the page says then: where the time went, or that nothing stands out
        for sentence in verdict.sentences(report, parts.split(report.results)):
            console.print(f"[bold]•[/] {escape(sentence)}")
    for sentence in care.of_what_is_here(report):
        console.print(f"[yellow]Note:[/] {escape(sentence)}", highlight=False)
    for item in report.skipped:
        console.print(f"[yellow]Skipped[/] {escape(item.what)}: {escape(item.why)}", highlight=False)


def _table(label: str, rows: list[dict[str, Any]]) -> Table:
    basis = rows[0]["basis"] if rows else "nothing"
    table = Table(title=f"{escape(label)}: where each rank's GPU time goes ({basis})", box=box.SIMPLE_HEAD)
    table.add_column("Rank", justify="right")
    table.add_column("Step ms" if _has_steps(rows) else "Window ms", justify="right")
    for part, heading in _HEADINGS.items():
        table.add_column(f"{heading} %", justify="right", style=COLOURS[part])
    table.add_column("Overlap %", justify="right")
    for row in _shown(rows):
        time_ns = row["step_mean_ns"] if _has_steps(rows) else row["window_ns"]
        shares = [_percent(row[f"{part}_pct"]) for part in _HEADINGS]
        table.add_row(str(row["rank"]), f"{time_ns / 1e6:,.2f}", *shares, _percent(row["overlap_pct"]))
    if len(rows) > _MOST_RANKS:
        table.caption = f"{_MOST_RANKS} of {len(rows)} ranks, most exposed communication first; the report has all"
    return table


def _shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(rows) <= _MOST_RANKS:
        return rows
    return sorted(rows, key=lambda row: -row["exposed_comm_ns"])[:_MOST_RANKS]


def _has_steps(rows: list[dict[str, Any]]) -> bool:
    return bool(rows) and rows[0]["step_mean_ns"] is not None


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f}"
