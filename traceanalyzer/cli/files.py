"""What commands without a report say about the files they read, and files that they may not replace."""

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceanalyzer.errors import UsageError
from traceanalyzer.files.bounds import BEGIN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.model import Skipped, TraceSet
    from traceanalyzer.scale import Summary


def of_run(found: "Found", run: "Run", summary: "Summary", *, is_one_of_all: bool = False) -> list[str]:
    """Notes on a run that was analyzed, and on other runs unless all are analyzed."""
    from traceanalyzer.loading import other_runs

    return [
        *(() if is_one_of_all else other_runs(found, run)),
        *summary.notes,
        *(f"The file of rank {rank} is cut off." for rank in sorted(summary.results["ranks"].cut_off)),
        *of_files(summary.skipped),
    ]


def of_traces(traces: "TraceSet") -> list[str]:
    """Notes on a run whose events were read."""
    return [*traces.notes, *of_files(traces.skipped)]


def of_files(skipped: "Iterable[Skipped]") -> list[str]:
    """Files that were skipped, and why."""
    from traceanalyzer.report.words import skipped as listed

    return [f"Skipped {sentence}" for sentence in listed(skipped)]


def snapshots_in(*places: Path | None, follows_links: bool = False) -> list[Path]:
    """Snapshots in the folder, or the file, that was named; links to outside it are skipped with a message."""
    from traceanalyzer.discovery import LINK_OUT, closed_below, find_snapshots

    named = [place for place in places if place is not None]
    if len(named) != 1 or not named[0].exists():
        return []
    found = find_snapshots(named[0], follows_links=follows_links)
    linked = [] if follows_links else sorted({*find_snapshots(named[0], follows_links=True)} - {*found})
    skipped = [(path, LINK_OUT) for path in linked]
    skipped += [(path, "cannot be read") for path in closed_below(named[0])] if found else []
    for path, why in skipped:
        click.echo(f"Skipped: {path} ({why})", err=True)
    return found


def refuse_others(path: Path | None, mark: bytes, *, force: bool) -> None:
    """Raise `UsageError` if a file is in the way that has no `mark` near its start, as this program's have.

    An empty file, or what is no file, such as /dev/null, may be replaced.
    """
    if force or path is None or not path.is_file() or not path.stat().st_size:
        return
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_packed else path.open("rb") as content:
            head = content.read(BEGIN_BYTES)
    except (OSError, EOFError, zlib.error):
        head = b""
    if mark not in head:
        raise UsageError(f"{path} exists and was not written by this command: name another, or replace it with --force")
