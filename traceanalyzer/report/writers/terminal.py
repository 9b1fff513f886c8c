"""The short summary that the command line prints."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.analyses import Result
from traceanalyzer.failures import Failure
from traceanalyzer.meaning.columns import is_known
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMPUTE,
    COPY,
    FUSED,
    IDLE,
    LOOKS,
    OPAQUE,
    TRANSFER,
    UNMATCHED,
    WAIT,
    Part,
)
from traceanalyzer.report import words
from traceanalyzer.report.contents import Report
from traceanalyzer.report.layout import LAYOUT

# The short summary that the command line prints: where each rank's time went, in colour when it can.


_PARTS = (COMPUTE, FUSED, COMM, COPY, IDLE, OPAQUE)

_SPLIT = (COMPUTE, FUSED, TRANSFER, WAIT, UNMATCHED, COPY, IDLE, OPAQUE)
"""The same where exposed communication is known to be transfer or wait."""

_RARE = (FUSED, UNMATCHED, OPAQUE)
"""Only where they are not 0: kernels that communicate too, CUDA graphs that were recorded whole."""

_MOST_SEEN = 3

SHOWN = (
    *("integrity", "ranks", "headline", "time_parts", "step_time_parts", "over_ranks", "steps_over_ranks", "steps"),
    *("nccl", "idle", "host_work", "host_work_over_ranks", "kernels", "categories", "mfu", "call_waits"),
    *("exposed_comm", "step_needs", "cpu_steps", "cpu_step_parts", "bottleneck", "groups"),
)
"""Results that are looked at here, besides those that rules name."""

_AMPLE = 1000
"""Columns in which every table has room, to measure what it needs."""


def show_guarded(report: Report, console: Console) -> list[Failure]:
    """`show`; what fails of it is returned, and the report's files are written all the same."""
    try:
        show(report, console)
    except OSError:  # a closed or full terminal is not ours
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is named, and the exit code says so
        return [Failure.of("terminal", "What the terminal shows", error)]
    return []


def show(report: Report, console: Console) -> None:
    """Print the verdict, the first findings' cards, where each rank's time went, and what to know of the capture."""
    is_host_only = words.is_host_only(report.results)
    parts = words.split(report.results)
    say = partial(console.print, highlight=False, soft_wrap=not console.is_terminal)
    _show_verdict(report, parts, say)
    for sentence in words.without_gpu_work(report):
        say(escape(sentence))
    _show_findings(report, say)
    if is_host_only:
        console.print(_host_table(report))
    else:
        _show_ranks(report, console)
    if line := words.capture_line(report):
        say(f"[yellow]![/] {escape(line)}")
    for sentence in (*report.remarks, *words.of_files(report)):
        say(f"[yellow]Note:[/] {escape(sentence)}")
    for sentence in words.skipped(report.skipped, most=words.MOST_FILES):
        say(f"[yellow]Skipped[/] {escape(sentence)}")


def _show_verdict(report: Report, parts: words.Split | None, say: Callable[..., None]) -> None:
    say(f"[italic]{escape(words.headline_of(report, parts))}[/]")
    verdict = words.verdict(report, parts)
    if verdict is not None:
        say(f"[bold]{escape(verdict.bound)}:[/] {escape(verdict.figures)}")


def _show_findings(report: Report, say: Callable[..., None]) -> None:
    """The first findings' cards, then a line for facts and one for what gains nothing."""
    cards = words.cards(report.findings)
    for number, finding in enumerate(cards[: words.MOST_CARDS], 1):
        say(f"[bold]{number} {escape(finding.headline)}[/]")
        for name, text in words.fields(finding).items():
            if name != "What-if" or len(text) <= LAYOUT.what_if_characters:
                say(f"  [dim]{name:<10}[/] {escape(text)}")
    for number, finding in enumerate(cards[words.MOST_CARDS :], words.MOST_CARDS + 1):
        saves = f" [dim]Saves[/] {escape(finding.saves.words)}" if finding.saves else ""
        say(f"[bold]{number} {escape(finding.headline)}[/]{saves}")
    if len([card for card in cards if card.saves]) > 1:
        say("Savings are of the step without the profiler. They overlap; don't add them up.")
    seen = words.also_seen(report.findings)
    for finding in seen[:_MOST_SEEN]:
        fix = f" [dim]→[/] {escape(finding.fix)}" if finding.fix else ""
        say(f"[bold]Also seen:[/] {escape(finding.headline)}{fix}")
    if len(seen) > _MOST_SEEN:
        say(f"{len(seen) - _MOST_SEEN} more in the report.")
    if nothing := words.nothing_to_gain(report.findings):
        say(escape(nothing))


def _show_ranks(report: Report, console: Console) -> None:
    parts = {row["rank"]: row for row in words.time_parts_of(report.results).rows()}
    rows = [{**parts.get(row["rank"], {}), **row} for row in report.results["headline"].rows()]
    held = words.shown(rows, report.findings)
    table = _table(rows, held)
    if console.measure(table, options=console.options.update(max_width=_AMPLE)).maximum <= console.width:
        console.print(table)
    else:
        for line in _lines(rows, held):
            console.print(line, highlight=False)


def _table(rows: list[dict[str, Any]], held: list[words.Shown]) -> Table:
    title = f"Where each rank's GPU time goes ({_basis(rows)})"
    # Its eight columns and their headings stand in a line of the usual 80.
    table = Table(title=title, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("Rank", justify="right")
    if len(held) < len(rows):
        table.add_column("Which")
    table.add_column("Step ms" if _has_steps(rows) else "Window ms", justify="right")
    shown = _shown_parts(rows)
    for part in shown:
        table.add_column(f"{part.short.capitalize()} %", justify="right", style=_colour(part))
    table.add_column("Overlap %", justify="right")
    for item in held:
        row = item.row
        shares = _shares(row, shown)
        which = [item.why] if item.why else []
        table.add_row(str(row["rank"]), *which, f"{_time_ns(row) / 1e6:,.2f}", *shares, _percent(row["overlap_pct"]))
    if len(held) < len(rows):
        table.caption = words.caption(held, len(rows))
    return table


def _host_table(report: Report) -> Table:
    """What the CPUs are longest in, where there is no GPU work."""
    table = Table(title="What the CPUs do", box=box.SIMPLE_HEAD)
    for heading, is_number in (("Thread", False), ("What", False), ("Name", False), ("Ranks", True)):
        table.add_column(heading, justify="right" if is_number else "left")
    table.add_column("ms/step" if words.has_steps(report.results) else "ms", justify="right")
    for row in words.longest(report.results):
        shown = (escape(short_name(str(row["name"]))), str(row["ranks"]), f"{row['mean_ns'] / 1e6:,.2f}")
        table.add_row(row["role"], row["what"], *shown)
    return table


def _lines(rows: list[dict[str, Any]], held: list[words.Shown]) -> Iterator[str]:
    """The table for a terminal that is narrower than it: a sentence for each rank."""
    yield f"[italic]Where each rank's GPU time goes ({_basis(rows)})[/]"
    shown = _shown_parts(rows)
    for item in held:
        row = item.row
        shares = ", ".join(f"{part.short} {share}%" for part, share in zip(shown, _shares(row, shown), strict=True))
        overlap = "n/a" if row["overlap_pct"] is None else f"{_percent(row['overlap_pct'])}%"
        time = f"{'step' if _has_steps(rows) else 'window'} {_time_ns(row) / 1e6:,.2f} ms"
        which = f" ({item.why})" if item.why else ""
        yield f"rank {row['rank']}{which}: {time}, {shares}, overlap {overlap}"
    if len(held) < len(rows):
        yield words.caption(held, len(rows))


def _shown_parts(rows: list[dict[str, Any]]) -> list[Part]:
    """The parts that have a column: the rare ones only where there are any."""
    is_split = any(_time_of(row, part) for row in rows for part in (TRANSFER, WAIT))
    parts = _SPLIT if is_split else _PARTS
    return [part for part in parts if part not in _RARE or any(_time_of(row, part) for row in rows)]


def _time_of(row: Mapping[str, Any], part: Part) -> int:
    return row.get(part.column) or 0


def _shares(row: Mapping[str, Any], shown: list[Part]) -> list[str]:
    return [_percent(row[part.share]) for part in shown]


def _colour(part: Part) -> str:
    """Terminals are dark, mostly."""
    return LOOKS[part.kind].dark or LOOKS[part.kind].colour


def _basis(rows: list[dict[str, Any]]) -> str:
    return str(rows[0]["basis"]) if rows else "nothing"


def _time_ns(row: Mapping[str, Any]) -> int:
    """A step's mean time, the window's where there are no steps."""
    return int(row["window_ns"] if row["step_mean_ns"] is None else row["step_mean_ns"])


def _has_steps(rows: list[dict[str, Any]]) -> bool:
    return bool(rows) and rows[0]["step_mean_ns"] is not None


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f}"


# The kernels and operators that take most GPU time, printed: `--top`.


def top_show(report: Report, count: int, console: Console) -> None:
    """Print the kernels and the operators that take most GPU time."""
    of = _window(report)
    held = _first(report.results["kernels_over_ranks"], count)
    if not held.empty:
        console.print(_top(f"Kernels and copies of a mean rank, {of}", held, "name", "kind", console.width))
    held = _first(report.results["operators_over_ranks"], count)
    if not held.empty:
        title = f"Operators by the GPU time of what they launch themselves, of a mean rank, {of}"
        console.print(_top(title, held, "operator", "autograd", console.width))
    else:
        console.print("No operators were recorded (Nsight Systems needs --pytorch=autograd-nvtx).", highlight=False)


def _first(result: Result, count: int) -> pd.DataFrame:
    """The first of those that take any time; rows stand longest first."""
    frame: pd.DataFrame = result.to_frame()
    return frame[frame["total_ns"] > 0].head(count)


def _window(report: Report) -> str:
    """What the tables are of: other than the breakdown above, all that is looked at, incomplete steps included."""
    windows = report.results["ranks"].table["window"].unique()
    return str(windows[0]) if len(windows) == 1 else "all that is looked at"


def _top(title: str, rows: pd.DataFrame, name: str, beside: str, width: int) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("Name", overflow="ellipsis", no_wrap=True, max_width=max(24, width - 56))
    table.add_column(beside.capitalize(), no_wrap=True)
    for heading in ("Calls", "Total ms", "Mean µs", "Share %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows.to_dict("records"):
        calls, mean = ("", "") if not row["calls"] else (f"{row['calls']:,.0f}", f"{row['mean_ns'] / 1e3:,.1f}")
        figures = (calls, f"{row['total_ns'] / 1e6:,.2f}", mean)
        told = "" if not is_known(row[beside]) else str(row[beside])
        table.add_row(escape(short_name(str(row[name]))), escape(told), *figures, f"{row['share_pct']:.1f}")
    return table
