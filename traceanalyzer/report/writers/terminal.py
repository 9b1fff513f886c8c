"""The short summary that the command line prints: where each rank's time went, in colour when it can."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.names import short_name
from traceanalyzer.quantities import is_known
from traceanalyzer.report.contents import Report
from traceanalyzer.report.words import care, host, parts, top, verdict
from traceanalyzer.vocabulary import COMM, COMPUTE, COPY, FUSED, IDLE, LOOKS, OPAQUE, Part

if TYPE_CHECKING:
    import pandas as pd

_PARTS = (COMPUTE, FUSED, COMM, COPY, IDLE, OPAQUE)

_RARE = (FUSED, OPAQUE)
"""Only where they are not 0: kernels that communicate too, CUDA graphs that were recorded whole."""

_MOST_RANKS = 16

_AMPLE = 1000
"""Columns in which every table has room, to measure what it needs."""


def show(report: Report, console: Console) -> None:
    """Print the headline breakdown of every rank, the costliest findings and what was skipped."""
    if host.is_host_only(report.results):
        console.print(_host_table(report))
    else:
        _show_ranks(report, console)
    if "headline" in care.doubted(report.results):
        console.print("[yellow]Read these figures with care:[/] the notes below say why.", highlight=False)
    for finding in report.findings[:5]:
        console.print(f"[bold]•[/] {escape(finding.title)}")
        for sign in finding.also[:2]:
            console.print(f"  – {escape(sign.title)}")
    if all(finding.is_about_capture for finding in report.findings):  # where the time went, as the page says it
        said = {finding.title for finding in report.findings}
        for sentence in verdict.sentences(report, parts.split(report.results)):
            if sentence not in said:
                console.print(f"[bold]•[/] {escape(sentence)}")
    for sentence in care.of_what_is_here(report):
        console.print(f"[yellow]Note:[/] {escape(sentence)}", highlight=False)
    for item in report.skipped:
        console.print(f"[yellow]Skipped[/] {escape(item.what)}: {escape(item.why)}", highlight=False)


def show_top(report: Report, count: int, console: Console) -> None:
    """Print the kernels and the operators that take most GPU time."""
    held = top.kernels(report.results["kernels"], count)
    if not held.empty:
        console.print(_top("Kernels and copies, a mean rank", held, "name", "kind", console.width))
    held = top.operators(report.results["operators"], count)
    if not held.empty:
        console.print(_top("Operators, by what they launch themselves", held, "operator", "autograd", console.width))
    else:
        console.print("No operators were recorded (Nsight Systems needs --pytorch=autograd-nvtx).", highlight=False)


def _top(title: str, rows: "pd.DataFrame", name: str, beside: str, width: int) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("Name", overflow="ellipsis", no_wrap=True, max_width=max(24, width - 56))
    table.add_column(beside.capitalize(), no_wrap=True)
    for heading in ("Calls", "Total ms", "Mean µs", "Share %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows.to_dict("records"):
        figures = (f"{row['calls']:,.0f}", f"{row['total_ns'] / 1e6:,.2f}", f"{row['mean_ns'] / 1e3:,.1f}")
        told = "" if not is_known(row[beside]) else str(row[beside])
        table.add_row(escape(short_name(str(row[name]))), escape(told), *figures, _percent(row["share_pct"]))
    return table


def _show_ranks(report: Report, console: Console) -> None:
    rows = report.results["headline"].rows()
    table = _table(report.label, rows)
    if console.measure(table, options=console.options.update(max_width=_AMPLE)).minimum <= console.width:
        console.print(table)
    else:
        for line in _lines(report.label, rows):
            console.print(line, highlight=False)


def _table(label: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{escape(label)}: where each rank's GPU time goes ({_basis(rows)})", box=box.SIMPLE_HEAD)
    table.add_column("Rank", justify="right")
    table.add_column("Step ms" if _has_steps(rows) else "Window ms", justify="right")
    shown = _shown_parts(rows)
    for part in shown:
        table.add_column(f"{part.short.capitalize()} %", justify="right", style=_colour(part))
    table.add_column("Overlap %", justify="right")
    for row in _shown(rows):
        shares = [_percent(row[part.share]) for part in shown]
        table.add_row(str(row["rank"]), f"{_time_ns(row) / 1e6:,.2f}", *shares, _percent(row["overlap_pct"]))
    if len(rows) > _MOST_RANKS:
        table.caption = _left_out(rows)
    return table


def _host_table(report: Report) -> Table:
    """What the CPUs are longest in, where there is no GPU work."""
    table = Table(title=f"{escape(report.label)}: what the CPUs do (no GPU work in this capture)", box=box.SIMPLE_HEAD)
    for heading, is_number in (("Thread", False), ("What", False), ("Name", False), ("Ranks", True)):
        table.add_column(heading, justify="right" if is_number else "left")
    table.add_column("ms a step" if host.has_steps(report.results) else "ms", justify="right")
    for row in host.longest(report.results):
        shown = (escape(short_name(str(row["name"]))), str(row["ranks"]), f"{row['time_ns'] / 1e6:,.2f}")
        table.add_row(row["role"], row["what"], *shown)
    return table


def _lines(label: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    """The table for a terminal that is narrower than it: a sentence for each rank."""
    yield f"[italic]{escape(label)}: where each rank's GPU time goes ({_basis(rows)})[/]"
    shown = _shown_parts(rows)
    for row in _shown(rows):
        shares = ", ".join(f"{part.short} {_percent(row[part.share])} %" for part in shown)
        overlap = "n/a" if row["overlap_pct"] is None else f"{_percent(row['overlap_pct'])} %"
        time = f"{'step' if _has_steps(rows) else 'window'} {_time_ns(row) / 1e6:,.2f} ms"
        yield f"rank {row['rank']}: {time}, {shares}, overlap {overlap}"
    if len(rows) > _MOST_RANKS:
        yield _left_out(rows)


def _shown_parts(rows: list[dict[str, Any]]) -> list[Part]:
    """The parts that have a column: the rare ones only where there are any."""
    return [part for part in _PARTS if part not in _RARE or any(row[part.column] for row in rows)]


def _colour(part: Part) -> str:
    """Terminals are dark, mostly."""
    return LOOKS[part.kind].dark or LOOKS[part.kind].colour


def _shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(rows) <= _MOST_RANKS:
        return rows
    return sorted(rows, key=lambda row: -(row[COMM.column] or 0))[:_MOST_RANKS]


def _basis(rows: list[dict[str, Any]]) -> str:
    return str(rows[0]["basis"]) if rows else "nothing"


def _left_out(rows: list[dict[str, Any]]) -> str:
    return f"{_MOST_RANKS} of {len(rows)} ranks, most exposed communication first; the report has all"


def _time_ns(row: dict[str, Any]) -> int:
    """A step's mean time, the window's where there are no steps."""
    return int(row["window_ns"] if row["step_mean_ns"] is None else row["step_mean_ns"])


def _has_steps(rows: list[dict[str, Any]]) -> bool:
    return bool(rows) and rows[0]["step_mean_ns"] is not None


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f}"
