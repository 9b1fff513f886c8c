"""The short summary that the command line prints."""

from collections.abc import Callable

from rich.console import Console
from rich.markup import escape

from traceanalyzer.analyses.host.cpu_time import HostWork, times_to_compare
from traceanalyzer.errors import Failure
from traceanalyzer.findings import Finding
from traceanalyzer.meaning.vocabulary import COMM_PARTS, FUSED, LOOKS, PARTS
from traceanalyzer.report import words
from traceanalyzer.report.contents import Report
from traceanalyzer.report.layout import LAYOUT
from traceanalyzer.report.page.sections import PLACES, rank_caption, rank_view
from traceanalyzer.report.page.table_view import console_table, view_of
from traceanalyzer.report.printed import unwrapped

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
