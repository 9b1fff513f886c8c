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

    from traceanalyzer.snapshots import Examined, MemoryChange


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


def snapshot_sides(sources: "Sequence[str]") -> "dict[str, list[Path]]":
    """By source that a comparison names its snapshots; none unless the base and another have some."""
    from traceanalyzer.diff.sources import places

    found = {source: snapshots_in(*places(source)[:1]) for source in sources}
    known = {source: paths for source, paths in found.items() if paths}
    return known if sources[0] in known and len(known) > 1 else {}


def changes(sides: "dict[str, list[Path]]", sources: "Sequence[str]") -> "dict[int, MemoryChange]":
    """By place of each later source that has snapshots what they tell against the base's.

    Raises:
        InputError: a snapshot cannot be read.
    """
    from traceanalyzer.snapshots import change, examine_snapshots

    base = examine_snapshots(sides[sources[0]])
    return {
        place: change(base, examine_snapshots(sides[source]))
        for place, source in enumerate(sources)
        if place and source in sides
    }


def compare_alone(
    sides: "dict[str, list[Path]]", sources: "Sequence[str]", output: Path | None, console: "Console", *, force: bool
) -> None:
    """Compare the memory of folders that have snapshots only: `memory.html` and `memory.csv`."""
    from traceanalyzer import __version__
    from traceanalyzer.loading import label_of
    from traceanalyzer.report.comparison import html, memory
    from traceanalyzer.report.writers import folder

    names = [label_of(Path(source)) for source in sources]
    if len({*names}) < len(names):
        names = list(sources)
    held = {names[place]: {memory.SNAPSHOTS: one} for place, one in changes(sides, sources).items()}
    target = output or Path("reports", "_".join(["diff", *(label_of(Path(source)) for source in sources)])[:200])
    content = folder.fingerprint(__version__, files=[path for side in sides.values() for path in side])
    with folder.whole(target, " and ".join(sources), content, force=force) as draft:
        path = draft.path / "memory.html"
        command = shlex.join(["analyze-traces", *sys.argv[1:]])
        path.write_text(html.memory_page(held, names[0], command), encoding="utf-8", errors="replace")
        page = draft.final([path, *memory.write_csv(held, draft.path)])[0]
    for sentence in memory.sentences(held):
        console.print(f"• {sentence}", highlight=False, markup=False)
    console.print(f"Report: {page}", highlight=False, soft_wrap=True, markup=False)
