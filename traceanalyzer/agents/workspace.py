"""Where traces may be read from, and reports that were made already."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from traceanalyzer.discovery import Found, discover, of_files
from traceanalyzer.discovery.memory_snapshots import find_snapshots
from traceanalyzer.errors import UsageError
from traceanalyzer.job import run_info
from traceanalyzer.loading import LoadOptions, label_of, load, other_runs
from traceanalyzer.model import TraceSet
from traceanalyzer.report.build import build
from traceanalyzer.report.contents import Report
from traceanalyzer.scale import summarise

MOST_KEPT = 8
"""Reports that stay in memory; the one that was asked for longest ago goes first."""


@dataclass(slots=True)
class Workspace:
    """Reads traces below its roots only, writes nothing, and remembers the reports that it made.

    Attributes:
        roots: folders that may be looked into.
        jobs: processes; `None` as many as suit.
        follows_links: whether links out of a folder of traces are read, which may lead out of the roots.
        is_open: whether any place may be read, as for who has a command line; relative ones are below the roots.
    """

    roots: Sequence[Path]
    jobs: int | None = None
    follows_links: bool = False
    is_open: bool = False
    _reports: dict[tuple[object, ...], Report] = field(default_factory=dict)

    def place(self, folder: str) -> Path:
        """A path below the roots; a relative one is looked for in each of them.

        Raises:
            UsageError: it lies elsewhere, by `..` or a link too, or does not exist.
        """
        given = Path(folder)
        for root in self.roots:
            with suppress(OSError, ValueError):  # too long for a path, or with a NUL
                path = (root / given).resolve(strict=True)
                if self.is_open or path.is_relative_to(root.resolve()):
                    return path
        if self.is_open:
            raise UsageError(f"{folder}: no such folder")
        roots = ", ".join(str(root) for root in self.roots)
        raise UsageError(f"{folder}: no such folder below {roots}")

    def report(self, folder: str) -> Report:
        """The report of the newest run of a folder; read again when a file has changed.

        Raises:
            InputError: nothing there can be analysed.
            UsageError: the folder lies outside the roots.
        """
        path = self.place(folder)
        found = discover(path, follows_links=self.follows_links) if path.is_dir() else of_files([path])
        key = _identity(found)
        if key not in self._reports:
            self._reports[key] = self._made(found, label_of(path))
        made = self._reports.pop(key)
        self._reports[key] = made  # last in, last out
        while len(self._reports) > MOST_KEPT:
            self._reports.pop(next(iter(self._reports)))
        return made

    def traces(self, folder: str, rank: int) -> TraceSet:
        """The events of one rank of the newest run."""
        return load(self.place(folder), ranks=rank, follow_links=self.follows_links)

    def snapshots(self, folder: str) -> list[Path]:
        """Memory snapshots below a folder, or the file itself if it is one."""
        return find_snapshots(self.place(folder), follows_links=self.follows_links)

    def _made(self, found: Found, label: str) -> Report:
        run = found.runs[-1]
        info, notes = run_info.read_or_note(run.info)
        summary = summarise(
            found, run, LoadOptions(follows_links=self.follows_links), jobs=self.jobs, **run_info.thresholds(info)
        )
        return build(summary, label, (*other_runs(found), *notes), run_info=info)


def _identity(found: Found) -> tuple[object, ...]:
    """Changes when a file of the newest run does."""
    files = [capture.path for capture in found.runs[-1].captures]
    stats = [(path, path.stat()) for path in files]
    return tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats)
