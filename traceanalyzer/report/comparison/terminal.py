"""The short comparison that the command line prints."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.diff.names import MetricName
from traceanalyzer.report.comparison import DiffReport, figures, memory, verdict
from traceanalyzer.report.comparison.tables import capture_notes

_SHOWN: tuple[MetricName, ...] = (
    "step_ns", "compute_ns", "exposed_transfer_ns", "exposed_wait_ns", "exposed_unmatched_ns", "exposed_comm_ns",
    "exposed_copy_ns", "idle_ns", "compute_pct", "exposed_comm_pct", "idle_pct", "overlap_pct", "comm_calls",
    "comm_bytes", "tokens_per_s",
)  # fmt: skip


def show(report: DiffReport, console: Console) -> None:
    """Print what differs, warnings, the main figures side by side, and the verdict."""
    comparison = report.comparison
    console.print(f"[bold]{escape(comparison.different)}[/]", highlight=False)
    for reason in comparison.fairness.refusals:
        console.print(f"[bold red]NOT COMPARABLE, forced:[/] {escape(reason)}", highlight=False)
    table = _table(report)
    if table.row_count:
        console.print(table)
    for sentence in [*verdict.sentences(comparison), *memory.sentences(memory.of(report))]:
        console.print(f"[bold]•[/] {escape(sentence)}", highlight=False)
    for note in [*comparison.fairness.notes, *capture_notes(report)]:
        console.print(f"[yellow]Note:[/] {escape(note)}", highlight=False)


_BESIDE = 4
"""More runs do not fit beside each other: each is a row then, with the figures that decide."""

_DECIDING: tuple[MetricName, ...] = ("step_ns", "compute_pct", "exposed_comm_pct", "idle_pct", "overlap_pct")


def _table(report: DiffReport) -> Table:
    runs = report.comparison.runs
    if len(runs) > _BESIDE:
        return _row_a_run(report)
    table = Table(title=f"{escape(report.title)}: figures {verdict.per(report.comparison)}", box=box.SIMPLE_HEAD)
    table.add_column("")
    for number, run in enumerate(runs):
        table.add_column(escape(run), justify="right")
        if number:
            table.add_column("change", justify="right")
    for row in figures.rows(report.comparison):
        if row.metric in _SHOWN and not row.is_nothing:
            base, *others = row.cells
            cells = [cell for one in others for cell in (one.text, f"{one.change} {one.change_unit}".strip())]
            table.add_row(f"{row.label} [dim]{escape(row.unit)}[/]", base.text, *cells)
    return table


def _row_a_run(report: DiffReport) -> Table:
    found = {row.metric: row for row in figures.rows(report.comparison)}
    shown = [found[name] for name in _DECIDING if name in found]
    table = Table(title=f"Figures {verdict.per(report.comparison)}, changes against {report.comparison.base.label}",
                  box=box.SIMPLE_HEAD)  # fmt: skip
    table.add_column("")
    for row in shown:
        table.add_column(f"{escape(row.label)} [dim]{escape(row.unit)}[/]", justify="right")
    for place, run in enumerate(report.comparison.runs):
        cells = [row.cells[place] for row in shown]
        texts = (f"{one.text}  {one.change} {one.change_unit}".rstrip() for one in cells)
        table.add_row(escape(run), *texts)
    return table
