"""The short summary that the command line prints."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.base import plain_rows
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
from traceanalyzer.report.printed import table_of, unwrapped

# The short summary that the command line prints: where each rank's time went, in colour when it can.


_PARTS = (COMPUTE, FUSED, COMM, COPY, IDLE, OPAQUE)

_SPLIT = (COMPUTE, FUSED, TRANSFER, WAIT, UNMATCHED, COPY, IDLE, OPAQUE)
"""The same where exposed communication is known to be transfer or wait."""

_RARE = (FUSED, UNMATCHED, OPAQUE)
"""Only where they are not 0: kernels that communicate too, CUDA graphs that were recorded whole."""

SHOWN = (
    *("integrity", "ranks", "headline", "time_parts", "step_time_parts", "over_ranks", "steps_over_ranks", "steps"),
    *("nccl", "idle", "host_work", "host_work_over_ranks", "kernels", "categories", "mfu", "call_waits"),
    *("exposed_comm", "step_needs", "cpu_steps", "cpu_step_parts", "bottleneck", "groups"),
)
"""Results that are looked at here, besides those that rules name."""


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
    split, say = words.split(report.results), unwrapped(console)
    say(f"[italic]{escape(words.headline_of(report, split))}[/]")
    if verdict := words.verdict(report, split):
        say(f"[bold]{escape(verdict.bound)}:[/] {escape(verdict.figures)}")
    for sentence in words.without_gpu_work(report):
        say(escape(sentence))
    _show_findings(report, say)
    if words.is_host_only(report.results):
        console.print(_host_table(report))
    else:
        _show_ranks(report, console)
    if line := words.capture_line(report):
        say(f"[yellow]![/] {escape(line)}")
    for sentence in (*report.remarks, *words.of_files(report)):
        say(f"[yellow]Note:[/] {escape(sentence)}")
    for sentence in words.skipped(report.skipped, most=LAYOUT.listed):
        say(f"[yellow]Skipped[/] {escape(sentence)}")


def _show_findings(report: Report, say: Callable[..., None]) -> None:
    """The first findings' cards, then a line for facts and one for what gains nothing."""
    cards, most = words.cards(report.findings), LAYOUT.named
    for number, finding in enumerate(cards[:most], 1):
        say(f"[bold]{number} {escape(finding.headline)}[/]")
        for name, text in words.fields(finding).items():
            if name != "What-if" or len(text) <= LAYOUT.what_if_characters:
                say(f"  [dim]{name:<10}[/] {escape(text)}")
    for number, finding in enumerate(cards[most:], most + 1):
        saves = f" [dim]Saves[/] {escape(finding.saves.words)}" if finding.saves else ""
        say(f"[bold]{number} {escape(finding.headline)}[/]{saves}")
    if shared := words.overlap(report.findings):
        say(shared)
    seen = words.also_seen(report.findings)
    for finding in seen[:most]:
        fix = f" [dim]→[/] {escape(finding.fix)}" if finding.fix else ""
        say(f"[bold]Also seen:[/] {escape(finding.headline)}{fix}")
    if len(seen) > most:
        say(f"{len(seen) - most} more in the report.")
    if nothing := words.nothing_to_gain(report.findings):
        say(escape(nothing))


# Where each rank's GPU time goes: a table, or on a narrow terminal a sentence for each rank.


def _show_ranks(report: Report, console: Console) -> None:
    headline = report.results["headline"].to_frame()
    times = words.known(report.results, "time_parts").to_frame()
    rows = headline.merge(times[["rank", *times.columns.difference(headline.columns)]], on="rank", how="left")
    every = plain_rows(rows)
    shown = words.shown(every, report.findings)
    parts = _shown_parts(every)
    title = f"Where each rank's GPU time goes ({every[0]['basis'] if every else 'nothing'})"
    caption = words.caption(shown, len(every)) if len(shown) < len(every) else None
    table = _table(shown, parts, title, caption)
    # In a console of any width it says what it needs.
    if (
        console.measure(table, options=console.options.update(max_width=len(parts) * console.width)).maximum
        <= console.width
    ):
        console.print(table)
        return
    console.print(f"[italic]{title}[/]", highlight=False)
    for item in shown:
        shares = [f"{part.short} {_percent(item.row[part.share])}%" for part in parts]
        overlap = "n/a" if item.row["overlap_pct"] is None else f"{_percent(item.row['overlap_pct'])}%"
        why = f" ({item.why})" if item.why else ""
        length = f"{'step' if _has_steps(item.row) else 'window'} {_ms(item.row)} ms"
        line = f"rank {item.row['rank']}{why}: {', '.join([length, *shares])}, overlap {overlap}"
        console.print(line, highlight=False)
    if caption:
        console.print(caption, highlight=False)


def _table(shown: list[words.Shown], parts: list[Part], title: str, caption: str | None) -> Table:
    length = "Step ms" if shown and _has_steps(shown[0].row) else "Window ms"
    heads = [(f"{part.short.capitalize()} %", _colour(part)) for part in parts]
    # Its eight columns and their headings stand in a line of the usual 80.
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("Rank", justify="right")
    if caption:
        table.add_column("Which")
    for head, style in ((length, None), *heads, ("Overlap %", None)):
        table.add_column(head, justify="right", style=style)
    for item in shown:
        figures = (*(_percent(item.row[part.share]) for part in parts), _percent(item.row["overlap_pct"]))
        table.add_row(str(item.row["rank"]), *([item.why] if caption else []), _ms(item.row), *figures)
    return table


def _shown_parts(rows: list[dict[str, Any]]) -> list[Part]:
    """The parts that have a column: the rare ones only where there are any."""

    def has(*parts: Part) -> bool:
        return any(row.get(part.column) for row in rows for part in parts)

    return [part for part in (_SPLIT if has(TRANSFER, WAIT) else _PARTS) if part not in _RARE or has(part)]


def _colour(part: Part) -> str:
    """Terminals are dark, mostly."""
    return LOOKS[part.kind].dark or LOOKS[part.kind].colour


def _has_steps(row: Mapping[str, Any]) -> bool:
    return row["step_mean_ns"] is not None


def _ms(row: Mapping[str, Any]) -> str:
    """A step's mean time, the window's where there are no steps."""
    return f"{(row['step_mean_ns'] if _has_steps(row) else row['window_ns']) / 1e6:,.2f}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f}"


def _host_table(report: Report) -> Table:
    """What the CPUs are longest in, where there is no GPU work."""
    rows = words.longest(report.results)
    heads = ["Thread", "What", "Name", "Ranks", "ms/step" if words.has_steps(report.results) else "ms"]
    cells = (
        (row["role"], row["what"], short_name(str(row["name"])), str(row["ranks"]), f"{row['mean_ns'] / 1e6:,.2f}")
        for row in rows
    )
    return table_of(heads, cells, texts=3, title="What the CPUs do")


# The kernels and operators that take most GPU time, printed: `--top`.


def top_show(report: Report, count: int, console: Console) -> None:
    """Print the kernels and the operators that take most GPU time."""
    windows = report.results["ranks"].table["window"].unique()
    of = str(windows[0]) if len(windows) == 1 else "all that is looked at"  # incomplete steps included
    kernels, operators = (_first(report.results[f"{name}_over_ranks"], count) for name in ("kernels", "operators"))
    if not kernels.empty:
        console.print(_top(f"Kernels and copies of a mean rank, {of}", kernels, "name", "kind", console.width))
    if operators.empty:
        console.print("No operators were recorded (Nsight Systems needs --pytorch=autograd-nvtx).", highlight=False)
    else:
        title = f"Operators by the GPU time of what they launch themselves, of a mean rank, {of}"
        console.print(_top(title, operators, "operator", "autograd", console.width))


def _first(result: Result, count: int) -> pd.DataFrame:
    """The first of those that take any time; rows stand longest first."""
    frame: pd.DataFrame = result.to_frame()
    return frame[frame["total_ns"] > 0].head(count)


def _top(title: str, rows: pd.DataFrame, name: str, beside: str, width: int) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("Name", overflow="ellipsis", no_wrap=True, max_width=max(24, width - 56))
    table.add_column(beside.capitalize(), no_wrap=True)
    for heading in ("Calls", "Total ms", "Mean µs", "Share %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows.to_dict("records"):
        calls, mean = ("", "") if not row["calls"] else (f"{row['calls']:,.0f}", f"{row['mean_ns'] / 1e3:,.1f}")
        texts = (short_name(str(row[name])), "" if not is_known(row[beside]) else str(row[beside]))
        table.add_row(*map(escape, texts), calls, f"{row['total_ns'] / 1e6:,.2f}", mean, f"{row['share_pct']:.1f}")
    return table
