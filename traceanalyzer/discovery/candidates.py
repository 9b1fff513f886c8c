"""Which files may be traces, by their names, and what else they are."""

import filecmp
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from traceanalyzer.decoding.stream import EventText
from traceanalyzer.discovery.clustering import RUN_INFO, SAME_RUN_NS, TraceFile, hinted, natural
from traceanalyzer.errors import InputError, NotATraceError
from traceanalyzer.files import archives, safe_pickle
from traceanalyzer.files.archives import SUFFIXES, is_archive, is_json
from traceanalyzer.files.bounds import BEGIN_BYTES, FREE_BYTES
from traceanalyzer.files.other_tools import FLIGHT_RECORDER, format_of_start, named_by
from traceanalyzer.files.remote import LocalFile, mirrored, named, url_of
from traceanalyzer.model import Skipped
from traceanalyzer.model.schema import printable
from traceanalyzer.readers import FORMATS, NODE_ORDER, reader_of

# Which files may be traces by their names: of a folder, of an archive, at a URL.


OURS = (RUN_INFO, "summary.json", ".traceanalyzer.json")
"""Files that the runners and this program write; no traces."""

_XPLANE = ".xplane.pb"

_COPIES = (".trace.json.gz", ".trace.json")

_OF_HTA = re.compile(r"overlaid_critical_path_(.+)|(.+)_with_counters\.json")
"""What HolisticTraceAnalysis writes beside a trace: with marks, of some of its events, or with counters."""

_PERFETTO = ("perfetto_trace.json.gz", "perfetto_trace.json")


def named_files(paths: Sequence[Path]) -> Iterator[LocalFile]:
    """The named files, those of URLs as `at_url` gives them."""
    for path in paths:
        url = url_of(path)
        yield from [LocalFile(path)] if url is None else at_url(url)


def at_url(url: str) -> Iterator[LocalFile]:
    """Files below a URL: the heads of JSON, all others whole."""
    yield from (file for file in mirrored(url, is_wanted, is_json) if file.path.name not in OURS)


def files_below(folder: Path) -> Iterator[LocalFile]:
    """Files that a reader takes by name, and archives, in natural order; a folder that one takes whole stays whole.

    A folder that cannot be looked into is among them, so that it is named as skipped: it may hold a rank.
    """
    closed: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=closed.append):
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=natural)
        for name in list(folders):
            if _may_be_trace(Path(place, name)):
                folders.remove(name)
                yield LocalFile(Path(place, name))
        for name in sorted(files, key=natural):
            path = Path(place, name)
            if name not in OURS and (_may_be_trace(path) or is_archive(path) or packed_by(path)):
                yield LocalFile(path)
    yield from (LocalFile(Path(error.filename)) for error in closed)


def without_copies(candidates: Sequence[LocalFile]) -> list[LocalFile]:
    """The files without copies beside a capture: what JAX writes of it for viewers, and what HTA makes of it."""
    places = [one.place for one in candidates]
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
    """Folders whose files cannot be listed, or opened; a file has none."""
    if folder.is_file():
        return []
    errors: list[OSError] = []
    places = [Path(place) for place, _, _ in os.walk(folder, onerror=errors.append)]
    return [*(Path(error.filename) for error in errors), *(place for place in places if not os.access(place, os.X_OK))]


def packed_by(path: Path) -> str | None:
    """What packed it, where that is not unpacked here, and it may be a trace by the rest of its name."""
    return archives.NOT_UNPACKED.get(path.suffix) if is_json(path.stem) or path.suffix in (".7z", ".rar") else None


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
    suffixes = (*SUFFIXES, *(suffix for one in FORMATS.values() for suffix in one.suffixes))
    return name == RUN_INFO or (name not in OURS and (is_json(name) or name.lower().endswith(suffixes)))


# Which files are memory snapshots of PyTorch, recognized without their reader.


def is_snapshot(path: Path) -> bool:
    """Whether a file is a snapshot, by its first bytes: a pickle whose first key is that of a snapshot."""
    try:
        with path.open("rb") as file:
            if not safe_pickle.is_pickle(file.read(2)):
                return False
            file.seek(0)
            head = safe_pickle.unpacked(file).read(4096)
    except (OSError, EOFError, ValueError):
        return False
    return head[:1] == b"\x80" and (b"segments" in head[:200] or b"device_traces" in head[:200])


def find_snapshots(folder: Path, *, follows_links: bool = False) -> list[Path]:
    """Snapshots below a folder, or the file itself; links to outside the folder only where they are followed."""
    if folder.is_file():
        return [folder] if is_snapshot(folder) else []
    places = sorted(path for path in walked(folder) if path.suffix in {".pickle", ".pkl", ".gz", ".snapshot", ""})
    inside = [path for path in places if path.is_file() and (follows_links or not leads_out(path, folder))]
    return [path for path in inside if is_snapshot(path)]


# Files that hold the same bytes as another one: `rank1 (copy).json` beside `rank1.json`.


def without_twins(captures: Sequence[TraceFile], skipped: list[Skipped]) -> list[TraceFile]:
    """The captures without copies of others; of several the one with the shortest name is kept.

    A copy is named in `skipped`, and so is one that is called by another rank: no two ranks record the same times.
    But where most are, the job was made of one recording, to try what so many ranks cost: these stay. Files that hold
    no time, folders, and files of which only the head was fetched are not compared.
    """
    copies: dict[Path, TraceFile] = {}
    for alike in _alike(captures):
        kept: list[TraceFile] = []
        for capture in sorted(alike, key=lambda one: (len(str(one.place)), natural(str(one.place)))):
            twin = next((one for one in kept if filecmp.cmp(one.path, capture.path, shallow=False)), None)
            if twin is None:
                kept.append(capture)
            else:
                copies[capture.path] = twin
    renamed = {one.path for one in captures if one.path in copies and one.ranks != copies[one.path].ranks}
    if 2 * len(renamed) > len(captures):
        copies = {path: twin for path, twin in copies.items() if path not in renamed}
    skipped += [
        Skipped(printable(named(one.place)), _why(one, copies[one.path])) for one in captures if one.path in copies
    ]
    return [one for one in captures if one.path not in copies]


def _why(copy: TraceFile, twin: TraceFile) -> str:
    why = f"a copy of {printable(named(twin.place))}, which is read instead"
    return why if copy.ranks == twin.ranks else f"{why}: no two ranks record the same times"


def _alike(captures: Sequence[TraceFile]) -> Iterable[list[TraceFile]]:
    """Those of one size that begin alike."""
    found: dict[tuple[int, int], list[TraceFile]] = defaultdict(list)
    for capture in captures:
        if capture.url is None and capture.path.is_file() and capture.header.start_ns is not None:
            with suppress(OSError), capture.path.open("rb") as file:  # a disk that fails tells of no copy
                found[capture.path.stat().st_size, hash(file.read(BEGIN_BYTES))].append(capture)
    return found.values()


# Files of several tools in one folder: recordings of the same ranks are runs of their own.


def by_tool(captures: Sequence[TraceFile]) -> list[list[TraceFile]]:
    """The captures of each format, where two of them claim one rank, or some claim none; else all together.

    A rank's two recordings are of one time or of two, but never parts of one: half of the ranks from one tool and half
    from the other would not answer each other's calls. A number that only follows the order of files makes no rank of
    another tool's job.
    """
    is_unclear = 0 < sum(capture.is_numbered_by_order for capture in captures) < len(captures)
    if len({capture.path.suffix for capture in captures}) < 2 and not is_unclear:
        return [list(captures)]
    by_format: dict[str, list[TraceFile]] = defaultdict(list)
    for capture in captures:
        reader = reader_of(capture.path)
        name = str(getattr(reader, "__name__", "")).rpartition(".")[2]
        by_format[name.partition("_")[0]].append(capture)  # all of Nsight Systems' are of one tool
    claimed = [{rank for capture in own for rank in capture.ranks} for own in by_format.values()]
    is_twice = len(set().union(*claimed)) < sum(map(len, claimed))
    return list(by_format.values()) if is_twice or is_unclear else [list(captures)]


# Files named by their rank within a node, in a folder for each node: which ranks of the job they are.


_LISTED = re.compile(rb'"Process Group Ranks"\s*:\s*"?\[([\d, ]+)\]')
_SIZE = re.compile(rb'"Group size"\s*:\s*(\d+)')


def of_nodes(captures: Sequence[TraceFile]) -> list[TraceFile]:
    """The captures; ranks that stand in names and repeat from folder to folder are counted through the folders.

    Only where neighbouring folders hold the same numbers from 0 on, files do not say which rank they are, all began
    within a minute, and process groups hold the ranks so counted, also of other nodes.
    """
    by_place: dict[Path, dict[Path, list[TraceFile]]] = defaultdict(lambda: defaultdict(list))
    for capture in captures:
        folder = capture.place.parent
        by_place[folder.parent][folder].append(capture)
    ranks: dict[Path, int] = {}
    for folders in by_place.values():
        if len(folders) > 1:
            ranks |= _counted([folders[folder] for folder in sorted(folders, key=lambda one: natural(one.name))])
    return hinted(captures, ranks, NODE_ORDER)


def _counted(nodes: Sequence[list[TraceFile]]) -> dict[Path, int]:
    """Each file's rank, nodes in order; nothing where the files do not bear it out."""
    each = len(nodes[0])
    every = [capture for node in nodes for capture in node]
    starts = [capture.start_ns for capture in every]
    is_local = all(sorted(rank for c in node for rank in c.ranks) == list(range(each)) for node in nodes)
    says_rank = any(c.header.ranks is not None or c.is_numbered_by_order or c.url is not None for c in every)
    if not is_local or says_rank or max(starts) - min(starts) > SAME_RUN_NS:
        return {}
    ranks = {c.path: place * each + c.ranks[0] for place, node in enumerate(nodes) for c in node}
    firsts = [next(c.path for c in node if c.ranks[0] == 0) for node in nodes]
    return ranks if all(_agrees(path, ranks[path], each, len(every)) for path in firsts) else {}


def _agrees(path: Path, rank: int, each: int, world: int) -> bool:
    """Whether every group that the first file of a node lists holds its rank, and one reaches beyond the node."""
    listed: set[bytes] = set()
    sizes: set[int] = set()
    try:
        text = EventText.open(path)
    except NotATraceError:
        return False
    read = 0
    for chunk in text.chunks():
        listed |= {*_LISTED.findall(chunk)}
        sizes |= {int(size) for size in _SIZE.findall(chunk)}
        read += len(chunk)
        if read > FREE_BYTES:
            break
    text.file.close()
    groups = [{int(number) for number in ranks.split(b",")} for ranks in listed]
    is_beyond = any(max(group) >= rank + each or min(group) < rank for group in groups) or world in sizes
    return is_beyond and all(rank in group and max(group) < world for group in groups)


# Why a file or a folder gives no trace, and what else it is.


_FILES = "; ".join(f"{one.tool} ({one.files})" for one in FORMATS.values())

EXPECTED = f"files of {_FILES}; or .zip or .tar archives of these"
"""What a trace may be, for people."""

_SNAPSHOTS = (
    "memory snapshots of PyTorch, and no traces; analyze-traces memory FOLDER, or its report, says what they tell"
)

_RECORD = (
    "record them with torch.profiler or nsys (docs/recording.md); analyze-traces doctor reads logs of a job that hung, "
    "and analyze-traces demo shows a report without any."
)

_MOST_LOOKED_AT = 200
"""Files without a trace's name that are looked into: there is one for each rank."""


def why_none(path: Path) -> str:
    """Why no reader takes the file."""
    if not path.exists():
        return "a link to a file that is not there"
    if is_no_file(path):
        return "a pipe, a socket or a device, and no file"
    if packed := packed_by(path):
        return f"packed by {packed}, which is not unpacked here; unpack it, or pack it with gzip or zstd"
    if other := named_by(path.name) or _what_it_is(path):
        return other
    return (
        "not an SQLite database; export the report again"
        if path.suffix == ".sqlite"
        else f"no trace; expected {EXPECTED}"
    )


def nothing_in(folder: Path, skipped: list[Skipped]) -> str:
    """Why nothing below the folder is a trace: its first file's reason, or what it holds instead."""
    if not skipped and (other := _known(folder)):
        return other
    if not skipped:
        return f"{named(folder)}: no traces here; {_RECORD} Expected are {EXPECTED}"
    first, *others = skipped
    are = "file that is no trace" if len(others) == 1 else "files that are no traces"
    more = f" (and {len(others)} more {are})" if others else ""
    return f"{first.what}: {first.why}{more}"


def _known(folder: Path) -> str | None:
    """The first file below that is known by its name or by what it begins with, and what it is; dumps before others."""
    if url_of(folder) is not None or not folder.is_dir():
        return None
    try:
        some = all_below(folder)[:_MOST_LOOKED_AT]
    except (InputError, OSError):
        return None
    known = [(path, what) for path in some if (what := named_by(path.name) or _what_it_is(path))]
    if FLIGHT_RECORDER in (what for _, what in known):  # their folder is asked for, and logs may lie beside them
        return f"{named(folder)}: {FLIGHT_RECORDER}"
    if not known and any(map(is_snapshot, some)):
        return f"{named(folder)}: {_SNAPSHOTS}"
    return f"{named(known[0][0])}: {known[0][1]}" if known else None


def _what_it_is(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return format_of_start(file.read(BEGIN_BYTES))
    except OSError:
        return None
