"""What commands that write no report say of the files: other runs, what was left out, ranks that are missing or cut."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.model import Skipped, TraceSet
    from traceanalyzer.scale import Summary


def of_run(found: "Found", run: "Run", summary: "Summary", *, is_one_of_all: bool = False) -> list[str]:
    """Of a run that was analysed; where all are, one after the other, none is another's."""
    from traceanalyzer.loading import other_runs

    return [
        *(() if is_one_of_all else other_runs(found, run)),
        *summary.notes,
        *(f"The file of rank {rank} is cut off." for rank in sorted(summary.results["ranks"].cut_off)),
        *of_files(summary.skipped),
    ]


def of_traces(traces: "TraceSet") -> list[str]:
    """Of a run of which events are looked at."""
    return [*traces.notes, *of_files(traces.skipped)]


def of_files(skipped: "Iterable[Skipped]") -> list[str]:
    """Files that were left out, and why."""
    from traceanalyzer.report.words.care import skipped as listed

    return [f"Skipped {sentence}" for sentence in listed(skipped)]


def say(notes: Iterable[str], console: "Console") -> None:
    """Print them as the report's summary prints its notes."""
    from rich.markup import escape

    for note in notes:
        console.print(f"[yellow]Note:[/] {escape(note)}", highlight=False, soft_wrap=True)
