"""What the terminal and a Markdown file show: the first screen."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from traceanalyzer.analyses.host.cpu_time import HostWork, times_to_compare
from traceanalyzer.errors import Failure
from traceanalyzer.findings import Finding
from traceanalyzer.meaning.vocabulary import COMM_PARTS, FUSED, LOOKS, PARTS
from traceanalyzer.report import words
from traceanalyzer.report.contents import LAYOUT, Report
from traceanalyzer.report.table_view import TableView, console_table, unwrapped, view_of
from traceanalyzer.report.words import split
from traceanalyzer.report.writers import write_text
from traceanalyzer.report.writers.html import PLACES, rank_caption, rank_view

# The short summary that the command line prints: where each rank's time went, in colour when it can.


_COLOURS = {  # terminals are dark, mostly
    part.share: LOOKS[part.kind].dark or LOOKS[part.kind].colour for part in (*PARTS, *COMM_PARTS, FUSED)
}

SHOWN = (
    *("integrity", "ranks", "headline", "time_parts", "steps"),
    *("nccl", "idle", "host_work", "kernels", "categories", "mfu", "call_waits"),
    *("exposed_comm", "unlike_ranks", "step_needs", "cpu_steps", "bottleneck", "groups"),
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
        work, _ = times_to_compare(report.results["host_work"])
        times = work.groupby(["role", "what", "name"], sort=False, observed=True)["time_ns"]
        rows = times.agg(ranks="size", mean_ns="mean").sort_values("mean_ns", ascending=False).reset_index()
        view = view_of(rows.head(LAYOUT.listed), "Work on the CPU, mean over ranks", HostWork.columns)
        console.print(console_table(view, console.width))
    elif split:
        view = rank_view(report, split)
        console.print(console_table(view, console.width, styles=_COLOURS, caption=rank_caption(split, view)))
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
        saves = (
            f" [dim]Saves[/] {escape(finding.saves.words)}: {escape(finding.saves.confidence)}."
            if finding.saves
            else ""
        )
        say(f"[bold]{number} {escape(finding.headline)}[/]{saves}{_fix(finding)}")
    if shared := words.overlap(report.findings):
        say(shared)
    seen = words.also_seen(report.findings)
    for finding in seen[:most]:
        say(f"[bold]Also seen:[/] {escape(words.fact(finding))}{_fix(finding)}")
    if len(seen) > most:
        say(f"[bold]Also seen:[/] {escape(' '.join(finding.headline for finding in seen[most:]))}")
    if nothing := words.nothing_to_gain(report.findings):
        say(escape(nothing))


def _fix(finding: Finding) -> str:
    return f" [dim]→[/] {escape(finding.fix)}" if finding.fix else ""


# The kernels and operators that take most GPU time, printed: `--top`.


def top_show(report: Report, count: int, console: Console) -> None:
    """Print the kernels and the operators that take most GPU time."""
    windows = report.results["ranks"].table["window"].unique()
    of = str(windows[0]) if len(windows) == 1 else "all that is looked at"  # incomplete steps included
    for section in (one for one in PLACES["kernels"] if one.name in ("kernels_over_ranks", "operators_over_ranks")):
        result = report.results[section.name]
        frame = result.to_frame()
        frame = frame[frame["total_ns"] > 0].head(count)  # rows stand longest first
        if len(frame):
            view = view_of(frame, f"{result.title}, {of}", result.columns, section.columns)
            console.print(console_table(view, console.width, section.columns))
    if report.results["operators_over_ranks"].table.empty:
        console.print("No operators were recorded (Nsight Systems needs --pytorch=autograd-nvtx).", highlight=False)


def write(report: Report, folder: Path) -> list[Path]:
    """`summary.md`."""
    return [write_text(folder / "summary.md", as_markdown(report))]


def as_markdown(report: Report) -> str:
    """The first screen: verdict, cards, a row a rank, and what to know before trusting the figures; under 80 lines."""
    of_ranks = split(report.results)
    verdict = words.verdict(report, of_ranks)
    blocks = [
        [f"## {cell(words.headline_of(report, of_ranks))}"],
        [f"**{cell(verdict.bound)}**: {cell(verdict.figures)}"] if verdict else [],
        [cell(sentence) for sentence in words.without_gpu_work(report)],
        list(_cards(words.cards(report.findings))),
        [cell(words.overlap(report.findings))],
        [f"- Also seen: {cell(words.fact(item))}" for item in words.also_seen(report.findings)[: LAYOUT.listed]],
        [cell(words.nothing_to_gain(report.findings))],
        [],
    ]
    if of_ranks:
        view = rank_view(report, of_ranks)
        left = len(view.rows) - LAYOUT.markdown_rows
        captions = (view.title, rank_caption(of_ranks, view), f"{left} more ranks in the report" if left > 0 else "")
        first = replace(view, rows=view.rows[: LAYOUT.markdown_rows])
        blocks += [table_lines(first), [cell("; ".join(filter(None, captions)))]]
    notes = [words.capture_line(report), *report.remarks, *words.of_files(report)]
    notes += [f"Skipped {sentence}" for sentence in words.skipped(report.skipped, most=LAYOUT.listed)]
    notes = [one for one in notes if one]
    more = [f"{len(notes) - LAYOUT.listed} more notes in the report."] if len(notes) > LAYOUT.listed else []
    blocks.append([f"> {cell(note)}" for note in (*notes[: LAYOUT.listed], *more)])
    return "\n\n".join("\n".join(block) for block in blocks if any(block)) + "\n"


def _cards(cards: list[Finding]) -> Iterator[str]:
    """The first findings with their fields, the others with what they save."""
    for number, finding in enumerate(cards[: LAYOUT.named + LAYOUT.listed], 1):
        yield f"{number}. **{cell(finding.headline)}**"
        fields = words.fields(finding)
        if number > LAYOUT.named:
            fields = {name: text for name, text in fields.items() if name == "Saves"}
        yield from (f"   - {name}: {cell(text)}" for name, text in fields.items())


def table_lines(view: TableView) -> list[str]:
    """A table in Markdown."""
    rule = "|".join(["", *("---:" if head.is_number else "---" for head in view.columns), ""])
    return [line(head.text for head in view.columns), rule, *(line(one.text for one in row) for row in view.rows)]


_MARKDOWN = re.compile(r"[&<>\[\]`]")

_LINKED = re.compile(r"@(?=\w)|\bwww(?=\.)|:(?=//)")
"""What GitHub makes a mention or a link of wherever it stands; a space without width between its parts keeps it."""


def cell(text: Any) -> str:
    """Text that stays inside a cell of a Markdown table and makes no HTML, link, image or mention of anybody."""
    plain = _MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", str(text))
    return _LINKED.sub("\\g<0>&#8203;", plain).replace("|", "\\|").replace("\n", " ")


def line(cells: Iterable[Any]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(map(cell, cells)) + " |"
