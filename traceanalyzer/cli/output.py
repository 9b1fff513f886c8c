"""What commands print: streams that outlive their readers, notes, progress, and the file of --debug."""

import codecs
import gzip
import io
import json
import platform
import re
import shlex
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

import click

from traceanalyzer import __version__
from traceanalyzer.errors import UsageError
from traceanalyzer.execution import FEWER
from traceanalyzer.files.bounds import BEGIN_BYTES

if TYPE_CHECKING:
    from rich.console import Console

    from traceanalyzer.analyses import Results
    from traceanalyzer.cli.options import Options
    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.errors import Failure
    from traceanalyzer.model import Skipped, TraceSet
    from traceanalyzer.scale import Summary


def lenient(stream: TextIO) -> TextIO:
    """The stream, but what nobody reads any more is dropped, and what it cannot encode is written in ASCII, or `?`.

    So a report is written whole and the exit code is that of the work, whoever listens. A terminal stays as it is but
    for the characters. What cannot be written otherwise, as on a full disk, is reported once; `is_lost` is then set.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    codecs.register_error(_SPELT, _spelt)
    stream.reconfigure(errors=_SPELT)
    if stream.isatty():
        return stream
    pipe = io.BufferedWriter(_PipeThatMayClose(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(pipe, encoding=stream.encoding, errors=_SPELT)


_SPELT = "traceanalyzer.spelt"

_IN_ASCII: Mapping[str, str] = MappingProxyType(
    {"•": "*", "–": "-", "−": "-", "→": "->", "±": "+/-", "µ": "u", "×": "x", "·": "-", "…": "...", "\u202f": " "}
)
"""What this program's own sentences have beside ASCII."""


def _spelt(error: UnicodeError) -> tuple[str, int]:
    """What an encoding such as that of LANG=C does not have, in characters that it has."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_IN_ASCII.get(one, "?") for one in error.object[error.start : error.end]), error.end


def unfailing(stream: TextIO) -> TextIO:
    """Standard error, but what cannot be written is dropped: nobody reads it, and the exit code stays."""
    if not isinstance(stream, io.TextIOWrapper) or stream.isatty():
        return stream
    pipe = _PipeThatMayClose(stream.fileno(), "w", closefd=False)
    pipe.is_said = True
    return io.TextIOWrapper(
        io.BufferedWriter(pipe), encoding=stream.encoding, errors="backslashreplace", line_buffering=True
    )


def is_lost(stream: TextIO | None) -> bool:
    """Whether something that was printed to a `lenient` stream could not be written, though somebody listened."""
    pipe = getattr(getattr(stream, "buffer", None), "raw", None)
    if stream is None or not isinstance(pipe, _PipeThatMayClose):
        return False
    stream.flush()
    return pipe.is_said


class _PipeThatMayClose(io.FileIO):
    is_said = False

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes
        except OSError as error:  # a full disk under a log: the report itself may be elsewhere
            if not self.is_said and sys.stderr is not None:
                sys.stderr.write(f"Standard output cannot be written ({error.strerror}); the work goes on.\n")
            self.is_said = True
            return memoryview(data).nbytes


# What commands print.


def command_line() -> str:
    """The command as it was given, to run it again."""
    return shlex.join(["analyze-traces", *sys.argv[1:]])


def console_of(*, quiet: bool = False, as_json: bool = False) -> "Console":
    """Where a command prints: standard error where standard output is for JSON."""
    from rich.console import Console

    return Console(quiet=quiet, stderr=as_json)


def say(console: "Console", *texts: str) -> None:
    """Print lines as they are."""
    for text in texts:
        console.print(text, highlight=False, soft_wrap=True, markup=False)


def print_notes(notes: Iterable[str], console: "Console") -> None:
    """Print notes as the report's summary does."""
    from rich.markup import escape

    for note in notes:
        console.print(f"[yellow]Note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def print_written(files: Sequence[Path], target: Path, notes: Iterable[str], options: "Options") -> Path:
    """Print notes and what was written; returns the page, or the folder if there is none."""
    print_notes(notes, options.console)
    if options.verbose:
        say(options.console, *(f"wrote {path}" for path in files))
    page = next((path for path in files if path.suffix == ".html"), target)
    say(options.console, f"{'Files in' if page == target else 'Report'}: {page}")
    if options.as_json:
        click.echo((target / "summary.json").read_text(encoding="utf-8"))
    return page


@contextmanager
def progress(console: "Console", files: int) -> Iterator[Callable[[int, int], None]]:
    """A function to call as files are done; draws a bar only on a terminal, for several files."""
    if not console.is_terminal or files == 1:
        yield lambda _done, _all: None
        return
    from rich.progress import Progress

    # Drawn as files are done, without a thread of its own: a process with threads cannot be forked.
    with Progress(console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("Reading traces", total=files)
        yield lambda done, _all: bar.update(task, completed=done, refresh=True)


# What commands without a report say about the files they read, and files that they may not replace.


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


# The file of `--debug`: what a maintainer needs to know of a run; no name, path or content of the traces.


_PACKAGES = re.findall(r"\S+", "adbc-driver-sqlite click isal jinja2 msgspec numpy pandas plotly protobuf pyarrow rich")

_PLACE = re.compile(r'File "[^"\n]*/traceanalyzer/([\w/]+\.py)", line (\d+)')

DEBUG_MARK = b'"traceanalyzer": "'
"""What each such file has near its beginning."""

DEBUG_FILE: ContextVar[Path | None] = ContextVar("debug file", default=None)
"""The file that the command that runs is asked for, once it may be written."""

_COUNTS = ("format", "world_size", "is_truncated", "events_skipped", "events_dropped")


class Clock:
    """Seconds that the parts of a run take."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def mark(self, part: str) -> None:
        """A part ends."""
        now = time.monotonic()
        self.seconds[part] = round(now - self._since, 3)
        self._since = now


def measured(clock: Clock, failures: "Sequence[Failure]", results: "Results") -> dict[str, Any]:
    """Facts about a run that wrote its report."""
    return {
        "seconds": clock.seconds,
        "fewer_processes": FEWER,
        "rows": {name: len(result) for name, result in results.items()},
        "ranks": [{name: row.get(name) for name in _COUNTS} for row in results["ranks"].rows()],
        "checks": [{key: row[key] for key in ("check", "severity", "count")} for row in results["integrity"].rows()],
        "failures": [
            {"part": one.name, "error": one.why.partition(":")[0], "at": _places(one.traceback)} for one in failures
        ],
    }


def crash(error: BaseException) -> dict[str, Any]:
    """Kind of the error that ended a run, and the places in this program's code."""
    text = "".join(traceback.format_exception(error))
    return {"crash": {"error": type(error).__name__, "at": _places(text)}}


def write_debug(path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts, with the versions in use.

    Raises:
        UsageError: the file cannot be written.
    """
    from importlib import metadata

    from traceanalyzer.files.whole import whole_file

    content = {
        "traceanalyzer": __version__,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        **facts,
    }
    with whole_file(path) as draft:
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _places(text: str) -> list[str]:
    """Places of our code in a traceback, as `analyses/work.py:12`: other lines may hold names."""
    return [f"{file}:{line}" for file, line in _PLACE.findall(text)]
