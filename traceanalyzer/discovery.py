"""Which files of a folder are traces, and which of them were captured together: files → runs and ranks."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from traceanalyzer.errors import InputError, NotATraceError
from traceanalyzer.model import Skipped
from traceanalyzer.readers import FILE_ORDER, Header, RankHint, reader_of

RUN_INFO = "run.json"

SAME_RUN_NS = 60 * 10**9
"""Ranks of one job begin their captures within a minute of each other."""

DISTINCT_NS = 10**6
"""Two captures of one rank that begin closer than this are copies of one file, not two captures."""

_RANK_FOLDER = re.compile(r"(?:rank|worker|gpu|proc|local_rank|node|host)s?[_\-=]?\d+", re.IGNORECASE)

_RANK_IN_NAME = re.compile(r"(?<![a-z])(?:rank|worker)[_\-=]?(\d+)(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Capture:
    """One trace file (or folder that a reader takes whole) and what its head says."""

    path: Path
    header: Header
    hint: RankHint | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that the file is known to hold: from its head, else from its path."""
        if self.header.ranks is not None:
            return self.header.ranks
        return (self.hint.rank,) if self.hint else ()


@dataclass(frozen=True, slots=True)
class Run:
    """Captures that belong together: one of each rank of one job.

    Attributes:
        label: folder below the one that was searched; empty when it is that one.
        info: path of the run.json beside them.
    """

    label: str
    captures: tuple[Capture, ...]
    start_ns: int
    info: Path | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """All runs in order of time, and files that looked like traces but are none."""

    runs: tuple[Run, ...]
    skipped: tuple[Skipped, ...]


def discover(folder: Path) -> Found:
    """Find all traces below a folder and sort them into runs.

    Raises:
        InputError: the folder does not exist or holds no trace.
    """
    if not folder.exists():
        raise InputError(f"{folder}: no such folder; --trace-dir takes the folder that holds the traces")
    if not folder.is_dir() or reader_of(folder):
        return of_files([folder])
    captures, skipped = _peeked(list(_candidates(folder)))
    if not captures:
        raise InputError(_nothing_in(folder, skipped))
    by_folder: dict[Path, list[Capture]] = {}
    for capture in captures:
        by_folder.setdefault(_run_folder(capture.path, folder), []).append(capture)
    runs = [
        _run(group, "" if place == folder else str(place.relative_to(folder)), place)
        for place, members in by_folder.items()
        for group in _grouped(members)
    ]
    return Found(tuple(sorted(_merged(runs), key=lambda run: run.start_ns)), tuple(skipped))


def of_files(paths: Sequence[Path]) -> Found:
    """The named files as one run.

    Raises:
        InputError: a file does not exist, or none of them is a trace.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file")
    captures, skipped = _peeked(paths)
    if not captures:
        raise InputError(_nothing_in(paths[0], skipped))
    return Found((_run(captures, "", paths[0].parent),), tuple(skipped))


def _candidates(folder: Path) -> Iterator[Path]:
    """Files that a reader takes by name, in natural order; a folder that one takes whole is not entered."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=_natural)
        for name in list(folders):
            if reader_of(Path(place, name)):
                folders.remove(name)
                yield Path(place, name)
        for name in sorted(files, key=_natural):
            path = Path(place, name)
            if name != RUN_INFO and reader_of(path):
                yield path


def _natural(name: str) -> list[tuple[int, str]]:
    """rank2 before rank10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _peeked(paths: Sequence[Path]) -> tuple[list[Capture], list[Skipped]]:
    captures, skipped = [], []
    for path in paths:
        try:
            captures.append(Capture(path, _peek(path), _hint(path)))
        except NotATraceError as error:
            skipped.append(Skipped(str(path), _without_path(str(error), path)))
    return captures, skipped


def _peek(path: Path) -> Header:
    reader = reader_of(path)
    if reader is None:
        raise NotATraceError(f"{path}: not a trace that this program knows (.json, .json.gz, Nsight exports)")
    return reader.peek(path)


def _hint(path: Path) -> RankHint | None:
    """The rank in a path: `rank_3`, `rank3`, `worker_3` in the file's name, else in the nearest folder's."""
    for part in (path.name, *reversed(path.parts[:-1])):
        match = _RANK_IN_NAME.search(part)
        if match:
            return RankHint(int(match[1]), "path")
    return None


def _run_folder(path: Path, top: Path) -> Path:
    """The folder that stands for the run: above folders named after ranks."""
    place = path.parent
    while place not in (top, place.parent) and _RANK_FOLDER.fullmatch(place.name):
        place = place.parent
    return place


def _grouped(captures: list[Capture]) -> list[list[Capture]]:
    """Captures of one folder by run; a file that does not say when it began joins the newest run that lacks it."""
    timed = [capture for capture in captures if capture.header.start_ns is not None]
    groups = _split(timed) if timed else []
    for capture in captures:
        if capture.header.start_ns is None:
            lacking = [group for group in groups if not _ranks(group) & set(capture.ranks)]
            if lacking:
                lacking[-1].append(capture)
            else:
                groups.append([capture])
    return groups


def _ranks(captures: list[Capture]) -> set[int]:
    return {rank for capture in captures for rank in capture.ranks}


def _split(captures: list[Capture]) -> list[list[Capture]]:
    """Split at the widest pause between starts until no rank occurs twice and all are near in time."""
    ordered = sorted(captures, key=_start_ns)
    starts = [_start_ns(capture) for capture in ordered]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    if not gaps or not (max(gaps) > SAME_RUN_NS or _is_mixed(ordered)):
        return [captures]
    cut = gaps.index(max(gaps)) + 1
    return [*_split(ordered[:cut]), *_split(ordered[cut:])]


def _is_mixed(captures: list[Capture]) -> bool:
    sizes = {capture.header.world_size for capture in captures} - {None}
    if len(sizes) > 1:
        return True
    times: dict[int, list[int]] = {}
    for capture in captures:
        for rank in capture.ranks:
            times.setdefault(rank, []).append(_start_ns(capture))
    return any(max(starts) - min(starts) > DISTINCT_NS for starts in times.values())


def _start_ns(capture: Capture) -> int:
    if capture.header.start_ns is not None:
        return capture.header.start_ns
    return capture.path.stat().st_mtime_ns


def _run(captures: list[Capture], label: str, place: Path) -> Run:
    info = place / RUN_INFO
    return Run(
        label=label,
        captures=tuple(_numbered(captures)),
        start_ns=min(map(_start_ns, captures)),
        info=info if info.is_file() else None,
    )


def _numbered(captures: list[Capture]) -> list[Capture]:
    """Give the files that name no rank the free numbers, in natural order of their paths."""
    taken = _ranks(captures)
    free = (number for number in range(len(captures) + len(taken)) if number not in taken)
    ordered = sorted(captures, key=lambda capture: _natural(str(capture.path)))
    return [
        capture if capture.ranks else replace(capture, hint=RankHint(next(free), FILE_ORDER)) for capture in ordered
    ]


def _merged(runs: list[Run]) -> list[Run]:
    """Join runs of different folders that are parts of one job: other ranks, same world size, same time."""
    joined: list[Run] = []
    for run in sorted(runs, key=lambda run: run.start_ns):
        partner = next((other for other in joined if _is_same_job(other, run)), None)
        if partner is None:
            joined.append(run)
        else:
            joined[joined.index(partner)] = replace(
                partner, label="", captures=(*partner.captures, *run.captures), info=partner.info or run.info
            )
    return joined


def _is_same_job(one: Run, other: Run) -> bool:
    sizes = {capture.header.world_size for run in (one, other) for capture in run.captures}
    counts = Counter(rank for run in (one, other) for capture in run.captures for rank in capture.ranks)
    size = next(iter(sizes))
    return (
        len(sizes) == 1
        and size is not None
        and one.label != other.label
        and abs(one.start_ns - other.start_ns) <= SAME_RUN_NS
        and max(counts.values(), default=2) == 1
        and len(counts) <= size
    )


def _nothing_in(folder: Path, skipped: list[Skipped]) -> str:
    if not skipped:
        expected = "expected .json or .json.gz files of the PyTorch profiler, or exports of Nsight Systems (.sqlite)"
        return f"{folder}: no traces here; {expected}"
    first = skipped[0]
    more = f" (and {len(skipped) - 1} more files that are no traces)" if len(skipped) > 1 else ""
    return f"{first.what}: {first.why}{more}"


def _without_path(message: str, path: Path) -> str:
    return message.removeprefix(f"{path}: ")
