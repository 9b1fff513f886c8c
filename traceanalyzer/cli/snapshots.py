"""What the report command does with memory snapshots: beside traces, or alone."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from rich.console import Console

    from traceanalyzer.snapshots import Examined


def snapshots_in(*places: Path | None, follows_links: bool = False) -> list[Path]:
    """Snapshots in the folder, or the file, that was named; links to outside it are said and skipped."""
    from traceanalyzer.discovery import LINK_OUT
    from traceanalyzer.snapshots import find_snapshots

    named = [place for place in places if place is not None]
    if len(named) != 1 or not named[0].exists():
        return []
    found = find_snapshots(named[0], follows_links=follows_links)
    left_out = [] if follows_links else sorted({*find_snapshots(named[0], follows_links=True)} - {*found})
    for path in left_out:
        click.echo(f"Skipped: {path} ({LINK_OUT})", err=True)
    return found


def report_alone(paths: "Sequence[Path]", place: Path, output: Path | None, console: "Console", *, force: bool) -> Path:
    """Write and print the memory report of a folder that has snapshots only; returns the page."""
    from traceanalyzer import __version__
    from traceanalyzer.loading import label_of
    from traceanalyzer.report.snapshots import terminal
    from traceanalyzer.report.writers import folder
    from traceanalyzer.snapshots import examine_snapshots

    label = label_of(place)
    examined = examine_snapshots(paths)
    target = output or Path("reports", label)
    with folder.whole(target, str(place.resolve()), folder.fingerprint(__version__, files=paths), force=force) as draft:
        page = draft.final(write(examined, draft.path, label))[0]
    terminal.show(examined, console)
    console.print(f"Report: {page}", highlight=False, soft_wrap=True, markup=False)
    return page


def memory_beside(
    paths: "Sequence[Path]", folder: Path, label: str, steps: "pd.DataFrame", console: "Console"
) -> "tuple[tuple[Examined, ...], list[Path]]":  # fmt: skip
    """The memory report of snapshots that lie beside traces; what cannot be read is said and leaves no file."""
    from traceanalyzer.errors import InputError
    from traceanalyzer.snapshots import beside_trace, examine_snapshots

    if not paths:
        return (), []
    try:
        examined = beside_trace(examine_snapshots(paths), steps)
    except InputError as error:
        console.print(f"Skipped: {error}", highlight=False, markup=False)
        return (), []
    return examined, write(examined, folder, label)


def say(examined: "Sequence[Examined]", target: Path, console: "Console") -> None:
    """Print what snapshots beside the traces tell."""
    from traceanalyzer.report.snapshots import terminal

    if examined:
        terminal.show(examined, console)
        console.print(f"Memory: {target / 'memory.html'}", highlight=False, soft_wrap=True, markup=False)


def write(examined: "Sequence[Examined]", folder: Path, label: str) -> list[Path]:
    """The page and the JSON."""
    from traceanalyzer.report.snapshots import as_json, page

    command = shlex.join(["analyze-traces", *sys.argv[1:]])
    return page.write(examined, folder, label, command) + as_json.write(examined, folder)


def snapshot_sides(places: "Sequence[str]") -> "list[list[Path]]":
    """Snapshots of each place that a comparison names; nothing unless each has some."""
    found = [snapshots_in(Path(place)) for place in places]
    return found if all(found) else []


def compare_alone(
    sides: "Sequence[Sequence[Path]]", places: "Sequence[str]", output: Path | None, console: "Console", *, force: bool
) -> None:
    """Compare the memory of folders that have snapshots only."""
    from traceanalyzer import __version__
    from traceanalyzer.loading import label_of
    from traceanalyzer.report.writers import folder

    target = output or Path("reports", "_".join(["diff", *(label_of(Path(place)) for place in places)])[:200])
    content = folder.fingerprint(__version__, files=[path for side in sides for path in side])
    with folder.whole(target, " and ".join(places), content, force=force) as draft:
        files, told = compare(sides, places, draft.path)
        written = draft.final(files)
    console.print(*told, sep="\n", highlight=False, markup=False)
    console.print(f"Tables: {', '.join(map(str, written))}", highlight=False, soft_wrap=True, markup=False)


def compare(sides: "Sequence[Sequence[Path]]", places: "Sequence[str]", folder: Path) -> tuple[list[Path], list[str]]:
    """Each later side against the first: `memory.csv`, and what to print of it."""
    import pandas as pd

    from traceanalyzer.report.writers.tables import write_frame
    from traceanalyzer.snapshots import changes, compared, examine_snapshots

    base, *others = (examine_snapshots(side) for side in sides)
    tables, told = [], []
    for place, other in zip(places[1:], others, strict=True):
        tables.append(compared(base, other).assign(base=places[0], other=place))
        told.append(f"Memory of {place} against {places[0]}, by the snapshots:")
        told += [f"• {one}" for one in changes(base, other)]
    path = folder / "memory.csv"
    write_frame(pd.concat(tables, ignore_index=True), path)
    return [path], told
