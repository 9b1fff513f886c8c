"""Which captures were made together: one of each rank of one job is a run."""

import filecmp
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from traceanalyzer.decoding.stream import EventText
from traceanalyzer.errors import NotATraceError
from traceanalyzer.files.bounds import BEGIN_BYTES, FREE_BYTES
from traceanalyzer.files.remote import LocalFile, fetched, named
from traceanalyzer.model import Skipped
from traceanalyzer.model.schema import printable
from traceanalyzer.readers import FILE_ORDER, NODE_ORDER, Header, RankHint, reader_of

RUN_INFO = "run.json"

SAME_RUN_NS = 60 * 10**9
"""Ranks of one job begin their captures within a minute of each other."""

DISTINCT_NS = 10**6
"""Two captures of one rank that begin closer than this are copies of one file, not two captures."""

# PyTorch's own handler writes <host>_<pid>.<time>.pt.trace.json: one process's captures differ in their time only.
_CAPTURE_TIME = re.compile(r"\.\d{10,}(?=\.pt\.trace\.json)")


class TraceFile(LocalFile, frozen=True, kw_only=True):
    """One trace file (or folder that a reader takes whole) and what its head says.

    Attributes:
        header: of the file.
        hint: the rank in its path.
        end_ns: when it ended; `None` where that is not known, or was not asked because the file says which rank it is.
    """

    header: Header
    hint: RankHint | None = None
    end_ns: int | None = None

    @contextmanager
    def whole(self) -> Iterator[Path]:
        """The whole file on this machine; a remote one is fetched for as long as the context lasts.

        Raises:
            InputError: it cannot be fetched.
        """
        if self.url is None:
            yield self.path
        else:
            with fetched(self.url, self.path.name) as path:
                yield path

    @property
    def is_numbered_by_order(self) -> bool:
        """Whether neither the file nor its name says which rank it is."""
        return self.header.ranks is None and (self.hint is None or self.hint.source == FILE_ORDER)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that the file is known to hold: from its head, else from its path."""
        if self.header.ranks is not None:
            return self.header.ranks
        return (self.hint.rank,) if self.hint else ()

    @property
    def start_ns(self) -> int:
        """When it began; when the file was written, for one that does not say."""
        return self.path.stat().st_mtime_ns if self.header.start_ns is None else self.header.start_ns


class Run(Struct, frozen=True):
    """Captures that belong together: one of each rank of one job.

    Attributes:
        label: folder below the one that was searched; empty when it is that one.
        info: path of the run.json beside them.
    """

    label: str
    captures: tuple[TraceFile, ...]
    start_ns: int
    info: Path | None = None

    @property
    def began(self) -> str:
        """Its start in UTC, as names of folders have it: 20261121-014051."""
        return datetime.fromtimestamp(self.start_ns / 1e9, UTC).strftime("%Y%m%d-%H%M%S")


def runs_of(captures: list[TraceFile], label: str, place: Path) -> list[Run]:
    """The runs of one folder."""
    return [run_of(numbered(group), label, place) for group in _grouped(numbered(captures))]


def run_of(captures: Sequence[TraceFile], label: str, place: Path) -> Run:
    """The captures as one run; its run.json lies in `place`, as people know it, or where that really is."""
    unpacked = [capture for capture in captures if capture.shown]
    places = [place, *(_really(place, capture) for capture in unpacked), *(c.path.parent for c in unpacked)]
    info = next((folder / RUN_INFO for folder in places if (folder / RUN_INFO).is_file()), None)
    ordered = sorted(captures, key=lambda capture: (capture.ranks, natural(str(capture.path))))
    return Run(label, tuple(ordered), min(c.start_ns for c in captures), info)


def _really(place: Path, capture: TraceFile) -> Path:
    """Where a folder around an archive's member was unpacked."""
    if capture.shown is None or not capture.shown.is_relative_to(place):
        return place
    return capture.path.parents[len(capture.shown.relative_to(place).parts) - 1]


def numbered(captures: Sequence[TraceFile]) -> list[TraceFile]:
    """Give the files that name no rank the free numbers, in natural order; one process's captures share one."""
    taken = _ranks([capture for capture in captures if not capture.is_numbered_by_order])
    unnamed = sorted({process(c.path) for c in captures if c.is_numbered_by_order}, key=natural)
    free = [number for number in range(len(unnamed) + len(taken)) if number not in taken]
    rank = dict(zip(unnamed, free, strict=False))
    return hinted(captures, {c.path: rank[process(c.path)] for c in captures if c.is_numbered_by_order}, FILE_ORDER)


def hinted(captures: Sequence[TraceFile], ranks: Mapping[Path, int], source: str) -> list[TraceFile]:
    """The captures; those that have a rank here with it and where it comes from."""
    return [replace(c, hint=RankHint(ranks[c.path], source)) if c.path in ranks else c for c in captures]


def merged(runs: list[Run]) -> list[Run]:
    """Join runs of different folders that are parts of one job: other ranks, same world size, same time.

    Where they are together each rank of one world, whatever the time.
    """
    if len(runs) > 1 and _is_whole_job([capture for run in runs for capture in run.captures]):
        captures = tuple(capture for run in runs for capture in run.captures)
        info = next((run.info for run in runs if run.info), None)
        return [Run("", captures, min(run.start_ns for run in runs), info)]
    joined: list[Run] = []
    for run in sorted(runs, key=lambda run: run.start_ns):
        partner = next((other for other in joined if _is_same_job(other, run)), None)
        if partner is None:
            joined.append(run)
        else:
            captures = (*partner.captures, *run.captures)
            joined[joined.index(partner)] = replace(partner, label="", captures=captures, info=partner.info or run.info)
    return joined


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key in which rank2 comes before rank10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def process(path: Path) -> str:
    """What the files of one process's captures share: their path, without the time that PyTorch's handler adds."""
    return str(path.with_name(_CAPTURE_TIME.sub("", path.name)))


def _ranks(captures: Sequence[TraceFile]) -> set[int]:
    return {rank for capture in captures for rank in capture.ranks}


def _grouped(captures: list[TraceFile]) -> list[list[TraceFile]]:
    """Captures of one folder by run; a file that does not say when it began joins the newest run that lacks it."""
    timed = [capture for capture in captures if capture.header.start_ns is not None]
    groups = _by_ordinal(timed) or _by_pauses(timed) if timed else []
    for capture in captures:
        if capture.header.start_ns is None:
            lacking = [group for group in groups if not _ranks(group) & set(capture.ranks)]
            if lacking:
                lacking[-1].append(capture)
            else:
                groups.append([capture])
    return groups


def _by_ordinal(captures: list[TraceFile]) -> list[list[TraceFile]] | None:
    """The n-th capture of every rank, when all have as many: right even if their clocks differ.

    `None` when counts differ, or when captures that would be joined lie further apart than one rank's own do.
    """
    by_rank: dict[tuple[int, ...], list[TraceFile]] = defaultdict(list)
    for capture in sorted(captures, key=lambda capture: capture.start_ns):
        by_rank[capture.ranks].append(capture)
    lists = list(by_rank.values())
    if len(lists) < 2 or len(lists[0]) < 2 or len({len(own) for own in lists}) > 1 or _has_several_sizes(captures):
        return None
    groups = [sorted(group, key=lambda capture: capture.start_ns) for group in zip(*lists, strict=True)]
    period = min(two.start_ns - one.start_ns for own in lists for one, two in pairwise(own))
    spread = max(group[-1].start_ns - group[0].start_ns for group in groups)
    return groups if period > DISTINCT_NS and spread < period and not any(map(_is_mixed, groups)) else None


def _by_pauses(captures: list[TraceFile]) -> list[list[TraceFile]]:
    """Split at the widest pause between starts until no rank occurs twice and all are near in time.

    Files that say how large their worlds are, and differ, are of other jobs whatever the time. Those that are each rank
    of their world once are one job, for clocks of hosts may be hours apart: whether they answer each other's calls is
    looked at once they are read.
    """
    done: list[list[TraceFile]] = []
    waiting = [sorted(group, key=lambda capture: capture.start_ns) for group in _by_size(captures)]
    while waiting:
        group = waiting.pop()
        gaps = [two.start_ns - one.start_ns for one, two in pairwise(group)]
        is_one = not gaps or not (max(gaps) > SAME_RUN_NS or _is_mixed(group))
        if is_one or _is_one_trace(group) or _is_whole_job(group):
            done.append(group)
            continue
        cut = gaps.index(max(gaps)) + 1
        waiting += [group[:cut], group[cut:]]
    return done


def _by_size(captures: list[TraceFile]) -> list[list[TraceFile]]:
    """The captures of each size of world; all together where some do not say theirs."""
    by_size: dict[int | None, list[TraceFile]] = defaultdict(list)
    for capture in captures:
        by_size[capture.header.world_size].append(capture)
    return [captures] if None in by_size else list(by_size.values())


def _is_mixed(captures: list[TraceFile]) -> bool:
    """Whether captures in order of time are of several jobs, or of one job's several recordings."""
    times: dict[int, list[TraceFile]] = defaultdict(list)
    for capture in captures:
        for rank in capture.ranks:
            times[rank].append(capture)
    repeats = any(_follow(one, two) for own in times.values() for one, two in pairwise(own))
    # Files that do say which rank they are may come from hosts whose clocks differ.
    ended = accumulate((math.inf if one.end_ns is None else one.end_ns for one in captures), max)
    is_later = any(
        two.is_numbered_by_order and end < two.start_ns for end, two in zip(ended, captures[1:], strict=False)
    )
    return repeats or is_later or _has_several_sizes(captures)


def _follow(one: TraceFile, two: TraceFile) -> bool:
    """Whether one process may have made both, one after the other: captures of one time that claim one rank clash."""
    is_later = two.start_ns - one.start_ns > DISTINCT_NS
    return is_later and not (one.end_ns is not None and two.start_ns < one.end_ns)


def _has_several_sizes(captures: Sequence[TraceFile]) -> bool:
    return len({capture.header.world_size for capture in captures} - {None}) > 1


def _is_whole_job(captures: Sequence[TraceFile]) -> bool:
    """Every rank of one world, as the files say themselves, and each of them once."""
    claimed = sorted(rank for capture in captures for rank in capture.header.ranks or (-1,))
    sizes = {capture.header.world_size for capture in captures}
    return len(sizes) == 1 and claimed == list(range(sizes.pop() or 0))


def _is_one_trace(captures: list[TraceFile]) -> bool:
    """Ranks that were profiled on one request share its trace id."""
    ids = {capture.header.trace_id for capture in captures}
    return len(ids) == 1 and None not in ids and len(_ranks(captures)) == len(captures)


def _is_same_job(one: Run, other: Run) -> bool:
    # What costs nothing first: a folder of a thousand captures of one rank asks it of half a million pairs.
    if one.label == other.label or abs(one.start_ns - other.start_ns) > SAME_RUN_NS:
        return False
    captures = (*one.captures, *other.captures)
    sizes = {capture.header.world_size for capture in captures}
    counts = Counter(rank for capture in captures for rank in capture.ranks)
    is_guessed = any(capture.is_numbered_by_order for capture in captures)
    size = next(iter(sizes))
    return (
        len(sizes) == 1
        and not is_guessed
        and max(counts.values(), default=2) == 1
        and (size is None or len(counts) <= size)
    )


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
