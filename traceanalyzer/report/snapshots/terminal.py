"""What the command prints of memory snapshots."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from traceanalyzer.snapshots import Examined, sentences
from traceanalyzer.snapshots.words import size

_MOST_RANKS = 16


def show(examined: Sequence[Examined], console: Console) -> None:
    """Print a row a snapshot, and what they tell."""
    table = Table(title="Memory snapshots", box=box.SIMPLE_HEAD)
    for heading in ("", "Peak in use", "In use at the end", "Reserved", "Largest free block", "Events"):
        table.add_column(heading, justify="right" if heading else "left")
    for one in examined[:_MOST_RANKS]:
        cells = (one.peak_bytes, one.end["allocated"], one.end["reserved"], one.largest_free_bytes)
        table.add_row(escape(one.snapshot.label), *map(size, cells), f"{len(one.snapshot.history):,}")
    if len(examined) > _MOST_RANKS:
        table.caption = f"{_MOST_RANKS} of {len(examined)}; memory.json has all"
    console.print(table)
    for sentence in sentences(examined)[:12]:
        console.print(f"[bold]•[/] {escape(sentence)}", highlight=False)
