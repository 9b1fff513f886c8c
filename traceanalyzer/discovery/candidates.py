"""Which files may be traces by their names: of a folder, of an archive, at a URL."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from traceanalyzer.discovery.clustering import RUN_INFO, natural
from traceanalyzer.errors import InputError
from traceanalyzer.files import packing
from traceanalyzer.files.archives import SUFFIXES, is_archive
from traceanalyzer.files.packing import is_json
from traceanalyzer.files.remote import mirrored, url_of
from traceanalyzer.readers import reader_of

OURS = (RUN_INFO, "summary.json", ".traceanalyzer.json")
"""Files that the runners and this program write; no traces."""

_XPLANE = ".xplane.pb"

_OF_OTHERS = (".sqlite", ".db", ".nsys-rep", _XPLANE, ".parquet")
"""Ends of names of traces that are no JSON."""

_COPIES = (".trace.json.gz", ".trace.json")

_OF_HTA = re.compile(r"overlaid_critical_path_(.+)|(.+)_with_counters\.json")
"""What HolisticTraceAnalysis writes beside a trace: with marks, of some of its events, or with counters."""

_PERFETTO = ("perfetto_trace.json.gz", "perfetto_trace.json")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to look into; by which path people know it, where that is another; whence to fetch it whole."""

    path: Path
    shown: Path | None = None
    url: str | None = None


def named_files(paths: Sequence[Path]) -> Iterator[Candidate]:
    """The named files, those of URLs as `at_url` gives them."""
    for path in paths:
        url = url_of(path)
        yield from [Candidate(path)] if url is None else at_url(url)


def at_url(url: str) -> Iterator[Candidate]:
    """Files below a URL: the heads of JSON, all others whole."""
    for file in mirrored(url, is_wanted, is_json):
        if file.path.name not in OURS:
            yield Candidate(file.path, file.shown, file.url)


def files_below(folder: Path) -> Iterator[Candidate]:
    """Files that a reader takes by name, and archives, in natural order; a folder that one takes whole stays whole.

    A folder that cannot be looked into is among them, so that it is named as skipped: it may hold a rank.
    """
    closed: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=closed.append):
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=natural)
        for name in list(folders):
            if _may_be_trace(Path(place, name)):
                folders.remove(name)
                yield Candidate(Path(place, name))
        for name in sorted(files, key=natural):
            path = Path(place, name)
            if name not in OURS and (_may_be_trace(path) or is_archive(path) or packed_by(path)):
                yield Candidate(path)
    yield from (Candidate(Path(error.filename)) for error in closed)


def without_copies(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The files without copies beside a capture: what JAX writes of it for viewers, and what HTA makes of it."""
    places = [one.shown or one.path for one in candidates]
    hosts = {place.with_name(place.name.removesuffix(_XPLANE)) for place in places if place.name.endswith(_XPLANE)}
    copies = {host.with_name(host.name + end) for host in hosts for end in _COPIES}
    copies |= {host.with_name(name) for host in hosts for name in _PERFETTO}
    plain = {place.with_name(place.name.removesuffix(".gz")) for place in places}
    copies |= {place for place in places if _source(place) in plain}
    return [one for one, place in zip(candidates, places, strict=True) if place not in copies]


def _source(place: Path) -> Path | None:
    """The trace, unpacked, of which HolisticTraceAnalysis made a file of this name; `None` of other names."""
    made = _OF_HTA.fullmatch(place.name.removesuffix(".gz"))
    return place.with_name(made[1] or f"{made[2]}.json") if made else None


def leads_out(path: Path, folder: Path) -> bool:
    """Whether a path below the folder is a link to what lies outside it, or a folder of files that holds such a link.

    Broken links lead nowhere, and neither does what cannot be looked into.
    """
    top = folder.resolve()
    try:
        files = [path, *path.iterdir()] if path.is_dir() else [path]
        return any(file.is_symlink() and file.exists() and not file.resolve().is_relative_to(top) for file in files)
    except OSError:
        return False


def looked_into(path: Path) -> None:
    """Raise `OSError` for a folder whose files cannot be listed and opened."""
    if path.is_dir():
        with os.scandir(path) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
                return


def all_below(folder: Path, *, follows_links: bool = False) -> list[Path]:
    """Regular files below a folder, in order; links to what lies outside it only where they are followed.

    Raises:
        InputError: a folder in it cannot be looked into.
    """
    if closed := closed_below(folder):
        raise InputError(f"{closed[0]}: cannot be read; open it to this user, or name what is to be read")
    found = [path for path in walked(folder) if path.is_file()]
    return found if follows_links else [path for path in found if not leads_out(path, folder)]


def walked(folder: Path) -> list[Path]:
    """All that is no folder below one, in order; of a folder that cannot be listed (its path is too long) nothing."""
    return sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)


def closed_below(folder: Path) -> list[Path]:
    """Folders whose files cannot be listed, or opened."""
    errors: list[OSError] = []
    places = [Path(place) for place, _, _ in os.walk(folder, onerror=errors.append)]
    return [*(Path(error.filename) for error in errors), *(place for place in places if not os.access(place, os.X_OK))]


def packed_by(path: Path) -> str | None:
    """What packed it, where that is not unpacked here, and it may be a trace by the rest of its name."""
    return packing.NOT_UNPACKED.get(path.suffix) if is_json(path.stem) or path.suffix in (".7z", ".rar") else None


def _may_be_trace(path: Path) -> bool:
    """Whether to look into it; what cannot be read, a damaged database or a broken link is then named as skipped."""
    try:
        is_broken = path.suffix == ".sqlite" and not path.is_dir()
        is_broken |= is_no_file(path) and (is_json(path.name) or path.suffix == ".nsys-rep")
        return is_broken or reader_of(path) is not None
    except OSError:
        return True


def is_no_file(path: Path) -> bool:
    """Whether there are no bytes to read: a link to nowhere, or a pipe, a socket, a device."""
    return not path.is_file() and not path.is_dir() and (path.is_symlink() or path.exists())


def is_wanted(name: str) -> bool:
    """Whether a member of an archive may be a trace, or is the run's own record."""
    is_trace = is_json(name) or name.lower().endswith((*_OF_OTHERS, *SUFFIXES))
    return name == RUN_INFO or (name not in OURS and is_trace)
