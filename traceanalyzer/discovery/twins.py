"""Files that hold the same bytes as another one: `rank1 (copy).json` beside `rank1.json`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from traceanalyzer.discovery.clustering import TraceFile, natural
from traceanalyzer.files.remote import named
from traceanalyzer.model import Skipped
from traceanalyzer.model.schema import printable

_BLOCK, _BEGIN = 1 << 20, 1 << 14


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
            twin = next((one for one in kept if _is_same(one.path, capture.path)), None)
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


def _alike(captures: Sequence[TraceFile]) -> Iterator[list[TraceFile]]:
    """Those of one size that begin alike: files of a thousand ranks may be as long, and each is opened once."""
    by_size: dict[int, list[TraceFile]] = defaultdict(list)
    for capture in captures:
        if capture.url is None and capture.path.is_file() and capture.header.start_ns is not None:
            by_size[capture.path.stat().st_size].append(capture)
    for of_size in by_size.values():
        by_begin: dict[int, list[TraceFile]] = defaultdict(list)
        for capture in of_size if len(of_size) > 1 else ():
            with capture.path.open("rb") as file:
                by_begin[hash(file.read(_BEGIN))].append(capture)
        yield from by_begin.values()


def _is_same(one: Path, other: Path) -> bool:
    """Whether the files hold the same bytes."""
    return all(mine == its for mine, its in zip(_blocks(one), _blocks(other), strict=True))


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block
