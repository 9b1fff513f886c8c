"""What the command prints of memory snapshots."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.meaning.quantities import size_text
from traceanalyzer.snapshots import Examined

_MOST_RANKS, _MOST_SENTENCES = 16, 14


def show(examined: Sequence[Examined], console: Console, told: Sequence[str]) -> None:
    """Print a row a snapshot, and the first of what is told of them."""
    table = Table(title="Memory snapshots", box=box.SIMPLE_HEAD)
    for heading in ("", "Peak in use", "In use at the end", "Reserved", "Largest free block", "Events"):
        table.add_column(heading, justify="right" if heading else "left")
    for one in examined[:_MOST_RANKS]:
        cells = (one.end["allocated"], one.end["reserved"], one.largest_free_bytes)
        peak = size_text(one.peak_bytes) if one.has_history else "n/a"
        table.add_row(escape(one.snapshot.label), peak, *map(size_text, cells), f"{len(one.snapshot.history):,}")
    if len(examined) > _MOST_RANKS:
        table.caption = f"{_MOST_RANKS} of {len(examined)}; memory.json has all"
    console.print(table)
    for sentence in told[:_MOST_SENTENCES]:
        console.print(f"[bold]•[/] {escape(sentence)}", highlight=False)
