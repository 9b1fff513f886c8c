"""Files that hold the same bytes as another one: `rank1 (copy).json` beside `rank1.json`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from traceanalyzer.discovery.clustering import TraceFile, natural
from traceanalyzer.files.remote import named
from traceanalyzer.model import Skipped
from traceanalyzer.model.schema import printable

_BLOCK = 1 << 20


def without_twins(captures: Sequence[TraceFile], skipped: list[Skipped]) -> list[TraceFile]:
    """The captures without copies of others; of several the one with the shortest name is kept.

    A copy is named in `skipped`. Files that say other ranks, or are called by them, are none; folders, and files of
    which only the head was fetched, are not compared.
    """
    by_size: dict[tuple[int, tuple[int, ...]], list[TraceFile]] = defaultdict(list)
    for capture in captures:
        if capture.url is None and capture.path.is_file():
            by_size[capture.path.stat().st_size, capture.ranks].append(capture)
    copies: dict[Path, TraceFile] = {}
    for alike in by_size.values():
        kept: list[TraceFile] = []
        for capture in sorted(alike, key=lambda one: (len(str(one.place)), natural(str(one.place)))):
            twin = next((one for one in kept if _is_same(one.path, capture.path)), None)
            if twin is None:
                kept.append(capture)
            else:
                copies[capture.path] = twin
    skipped += [
        Skipped(
            printable(named(one.place)), f"a copy of {printable(named(copies[one.path].place))}, which is read instead"
        )
        for one in captures
        if one.path in copies
    ]
    return [one for one in captures if one.path not in copies]


def _is_same(one: Path, other: Path) -> bool:
    """Whether the files hold the same bytes; those of other recordings differ in the first ones."""
    return all(mine == its for mine, its in zip(_blocks(one), _blocks(other), strict=True))


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block
