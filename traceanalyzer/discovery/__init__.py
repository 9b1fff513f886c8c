"""Which files of a folder are traces, and which rank each may be."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from traceanalyzer.cuda_graphs import is_capture
from traceanalyzer.discovery.clustering import (
    RUN_INFO,
    SAME_RUN_NS,
    Run,
    TraceFile,
    by_tool,
    hinted,
    merged,
    natural,
    numbered,
    of_nodes,
    process,
    run_of,
    runs_of,
    without_twins,
)
from traceanalyzer.errors import InputError, NotATraceError, UsageError
from traceanalyzer.files import archives, safe_pickle
from traceanalyzer.files.archives import SUFFIXES, is_archive, is_json, unpack, without_suffix
from traceanalyzer.files.bounds import BEGIN_BYTES
from traceanalyzer.files.other_tools import FLIGHT_RECORDER, format_of_start, named_by
from traceanalyzer.files.remote import LocalFile, mirrored, named, url_of
from traceanalyzer.kinds import Expression
from traceanalyzer.model import Skipped
from traceanalyzer.model.schema import printable
from traceanalyzer.readers import FORMATS, Header, RankHint, ended_ns, header_of, reader_of

LINK_OUT = "a link to outside the folder; --follow-links reads it"

_RANK_FOLDER = re.compile(r"(?:rank|worker|gpu|proc|local_rank|node|host)s?[_\-=\[]?\d+\]?", re.IGNORECASE)

_RANK_IN_NAME = re.compile(r"(?<![a-z])(?:rank|worker)[_\-=\[]?(\d+)(?!\d)", re.IGNORECASE)

_GROUPS = ("dp", "pp", "tp")
"""Groups in which SGLang's (`TP-1-PP-0`) and vLLM's names (`dp0_pp0_tp1`) place a rank, the outermost first."""

_PLACE = re.compile(rf"(?<![a-z])({'|'.join(_GROUPS)})[_-]?(\d+)(?!\d)", re.IGNORECASE)

BY_NAME = "path"
"""How ranks are called that stand in names of files or folders."""

BY_REGEX = "--rank-regex"
"""How ranks are called that the user's expression finds in paths."""


@dataclass(frozen=True, slots=True)
class Found:
    """All runs in order of time, and files that looked like traces but are none."""

    runs: tuple[Run, ...]
    skipped: tuple[Skipped, ...]


def discover(folder: Path, rank_regex: str | None = None, *, follows_links: bool = False) -> Found:
    """Find all traces below a folder and sort them into runs.

    Args:
        folder: where to look; archives in it are looked into.
        rank_regex: finds the rank in the paths (below `folder`) of files that do not say it themselves: its group
            `rank`, or its first one.
        follows_links: read what links in the folder name outside it too; else these are skipped and reported.

    Raises:
        InputError: the folder does not exist or holds no trace.
        UsageError: the expression makes no sense.
    """
    in_path = _rank_pattern(rank_regex)
    url = url_of(folder)
    if url is None and not folder.exists():
        raise InputError(f"{folder}: no such folder; name the folder that holds the traces")
    try:
        looked_into(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror})") from error
    if url is None and (not folder.is_dir() or reader_of(folder)):
        return of_files([folder], rank_regex)
    candidates = list(files_below(folder) if url is None else at_url(url))
    strangers = [] if follows_links or url is not None else [one for one in candidates if leads_out(one.path, folder)]
    candidates = [one for one in candidates if one not in strangers]
    if any(one.shown == folder for one in candidates):  # the URL is a file's
        folder = folder.parent
    captures, skipped = _peeked(candidates, folder, in_path)
    captures = _placed(without_twins(captures, skipped))
    skipped = [*(Skipped(printable(str(one.path)), LINK_OUT) for one in strangers), *skipped]
    if not captures:
        raise InputError(nothing_in(folder, skipped))
    skipped += _unfit(in_path, captures)
    by_folder: dict[tuple[Path, bool], list[TraceFile]] = {}
    for capture in captures if in_path else of_nodes(_ranked_by_folder(captures, folder)):
        by_folder.setdefault((_run_folder(capture.place, folder), is_capture(capture.place)), []).append(capture)
    runs = [
        run
        for (place, _), members in by_folder.items()
        for own in by_tool(members)
        for run in runs_of(_with_ends(own), printable("" if place == folder else str(place.relative_to(folder))), place)
    ]
    # Traces of graphs' captures come first, so that the last run is one that replays them.
    return Found(tuple(sorted(merged(runs), key=lambda run: (not is_of_captures(run), run.start_ns))), tuple(skipped))


def is_of_captures(run: Run) -> bool:
    """Whether a run is nothing but traces of the capture of CUDA graphs, which give a replay its operators."""
    return all(is_capture(capture.path) for capture in run.captures)


def of_files(paths: Sequence[Path], rank_regex: str | None = None) -> Found:
    """The named files, or the members of named archives, as one run.

    Raises:
        InputError: a file does not exist or is named twice, or none of them is a trace.
        UsageError: `rank_regex` makes no sense; see `discover`.
    """
    for path in paths:
        if not path.exists() and url_of(path) is None:
            raise InputError(f"{path}: no such file")
    for path, times in Counter(path.resolve() for path in paths).items():
        if times > 1:
            raise InputError(f"{path}: named {times} times; name each rank's own file once")
    in_path = _rank_pattern(rank_regex)
    captures, skipped = _peeked(named_files(paths), Path(), in_path)
    captures = _placed(without_twins(captures, skipped))
    if not captures:
        raise InputError(nothing_in(paths[0], skipped))
    skipped += _unfit(in_path, captures)
    return Found((run_of(numbered(captures), "", paths[0].parent),), tuple(skipped))


def _peeked(
    candidates: Iterable[LocalFile], top: Path, in_path: re.Pattern[str] | None
) -> tuple[list[TraceFile], list[Skipped]]:
    captures: list[TraceFile] = []
    skipped: list[Skipped] = []
    for one in without_copies(list(candidates)):
        place = one.place
        try:
            if is_archive(one.path):
                captures += _members(one.path, place, top, in_path, skipped)
                continue
            header = _peek(one.path)
            hint = _hint(place, top, in_path)
            captures.append(TraceFile(one.path, one.shown, one.url, header=header, hint=hint))
        except NotATraceError as error:
            skipped.append(Skipped(printable(named(place)), _without_path(str(error), one.path)))
        except OSError as error:  # of its path: one that is longer than the system's are
            skipped.append(Skipped(printable(named(place)), f"cannot be read ({error.strerror})"))
    return captures, skipped


def _members(
    archive: Path, place: Path, top: Path, in_path: re.Pattern[str] | None, skipped: list[Skipped]
) -> list[TraceFile]:
    """The traces of an archive, as if it were unpacked beside itself."""
    made, called = unpack(archive, is_wanted), named(place)
    for name, why in made.skipped:
        skipped.append(Skipped(printable(f"{called}/{name}" if name else called), why))
    beside = without_suffix(place)
    inside = [LocalFile(one.path, beside / one.path.relative_to(made.folder)) for one in files_below(made.folder)]
    captures, more = _peeked(inside, top, in_path)
    skipped += more
    if not inside and not made.skipped:
        skipped.append(
            Skipped(printable(called), f"holds no trace, but {made.others} other file{'' if made.others == 1 else 's'}")
        )
    return captures


def _rank_pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    Expression.parse(text, f"--rank-regex {text!r}")  # what it refuses may take for ever
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(f"--rank-regex {text!r}: no regular expression ({error})") from error
    if not pattern.groups:
        raise UsageError(f"--rank-regex {text!r}: put the rank in parentheses, such as 'gpu(\\d+)'")
    return pattern


def _unfit(in_path: re.Pattern[str] | None, captures: Sequence[TraceFile]) -> list[Skipped]:
    """The user's expression, where it tells no file's rank: it is hardly what was meant."""
    if in_path is None or any(one.hint and one.hint.source == BY_REGEX for one in captures):
        return []
    path = printable(named(captures[0].place))
    return [Skipped(f"--rank-regex {in_path.pattern!r}", f"it finds no rank in any path, such as {path}")]


def _with_ends(captures: list[TraceFile]) -> list[TraceFile]:
    """When those ended that say nowhere which rank they are, or the same as others: time tells then what they are."""
    # One without a rank beside one that has ended may be the same process' next recording.
    has_unnamed = len(captures) > 1 and any(capture.is_numbered_by_order for capture in captures)
    asked = {capture.path for capture in captures} if has_unnamed else set()
    asked |= {one.path for one, two in _near_claims(captures) if one.header.ranks is None or two.header.ranks is None}
    return [replace(c, end_ns=_end_ns(c)) if c.path in asked else c for c in captures]


def _near_claims(captures: list[TraceFile]) -> Iterator[tuple[TraceFile, TraceFile]]:
    """Captures that claim one rank within a minute of each other, but not as one process's are called: in pairs."""
    last: dict[int, TraceFile] = {}
    for capture in sorted((c for c in captures if not c.is_numbered_by_order), key=lambda c: c.start_ns):
        for rank in capture.ranks:
            before = last.get(rank, capture)
            is_near = capture.start_ns - before.start_ns < SAME_RUN_NS
            if is_near and process(before.path) != process(capture.path):
                yield before, capture
            last[rank] = capture


def _end_ns(capture: TraceFile) -> int | None:
    with capture.whole() as path:
        return ended_ns(path)


def _peek(path: Path) -> Header:
    try:
        looked_into(path)
        if reader_of(path) is None:
            raise NotATraceError(f"{path}: {why_none(path)}")
    except OSError as error:
        raise NotATraceError(f"{path}: cannot be read ({error.strerror})") from error
    return header_of(path)


def _hint(path: Path, top: Path, in_path: re.Pattern[str] | None) -> RankHint | None:
    """The rank in a path: as the user's expression finds it, where there is one.

    Else, and where it does not, `rank_3`, `rank3`, `worker_3` in the file's name, else in the nearest folder's.
    """
    below = path.relative_to(top).as_posix() if path.is_relative_to(top) else str(path)
    match = in_path.search(below) if in_path and Expression(in_path.pattern).search(below) else None
    found = match["rank" if match and "rank" in match.re.groupindex else 1] if match else None
    if found and found.isdecimal():
        return RankHint(int(found), BY_REGEX)
    return _named_in((path.name,)) or _named_in(path.parent.parts)


def _named_in(parts: Sequence[str]) -> RankHint | None:
    matches = (_RANK_IN_NAME.search(part) for part in reversed(parts))
    return next((RankHint(int(match[1]), BY_NAME) for match in matches if match), None)


def _placed(captures: Sequence[TraceFile]) -> list[TraceFile]:
    """The captures; those named by their places in parallel groups are ranks of their own, counted through the groups.

    Not where their names have ranks too, each of one place.
    """
    by_folder: dict[Path, dict[Path, tuple[int, ...]]] = {}
    for capture in captures:
        numbers = {name.lower(): int(number) for name, number in _PLACE.findall(capture.place.name)}
        if (
            "tp" in numbers
            and capture.header.ranks is None
            and (capture.hint is None or capture.hint.source == BY_NAME)
        ):
            place = tuple(numbers.get(name, 0) for name in _GROUPS)
            by_folder.setdefault(capture.place.parent, {})[capture.path] = place
    named = {capture.path: capture.hint.rank for capture in captures if capture.hint}
    ranks: dict[Path, int] = {}
    for places in by_folder.values():
        distinct = set(places.values())
        pairs = {(named[path], place) for path, place in places.items() if path in named}
        if len(dict(pairs)) == len(pairs) == len(distinct):
            continue
        _, pipelines, tensors = (1 + max(numbers) for numbers in zip(*distinct, strict=True))
        is_tensor_alone = len({tp for _, _, tp in distinct}) == len(distinct)
        for path, (dp, pp, tp) in places.items():
            ranks[path] = tp if is_tensor_alone else (dp * pipelines + pp) * tensors + tp
    return hinted(captures, ranks, BY_NAME)


def _ranked_by_folder(captures: list[TraceFile], top: Path) -> list[TraceFile]:
    """The captures; where files of several ranks' folders bear one number (`rank_1/worker_0`) the folders decide.

    Only the files of one run, whose heads name no rank, speak of each other so.
    """
    folder_ranks = {
        c.path: _named_in(c.place.relative_to(top).parent.parts) for c in captures if c.header.ranks is None
    }
    under: dict[tuple[Path, int], set[int]] = {}
    for capture in captures:
        own, around = _named_in((capture.path.name,)), folder_ranks.get(capture.path)
        if own and around:
            under.setdefault((_run_folder(capture.place, top), own.rank), set()).add(around.rank)
    shared = {place for (place, _), ranks in under.items() if len(ranks) > 1}
    in_shared = [c.path for c in captures if _run_folder(c.place, top) in shared]
    return hinted(captures, {path: hint.rank for path in in_shared if (hint := folder_ranks.get(path))}, BY_NAME)


def _run_folder(path: Path, top: Path) -> Path:
    """The folder that stands for the run: above folders named after ranks."""
    place = path.parent
    while place not in (top, place.parent) and _RANK_FOLDER.fullmatch(place.name):
        place = place.parent
    return place


def _without_path(message: str, path: Path) -> str:
    return message.removeprefix(f"{path}: ")


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
