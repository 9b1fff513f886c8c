"""Input formats: every reader, and which one reads a file."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from traceanalyzer.errors import NotATraceError
from traceanalyzer.files.bounds import TOO_LARGE, memory_for, size_of
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import FILE_ORDER, GUESSED, NODE_ORDER, Format, Header, RankHint, Reader

_MODULES: Mapping[str, Any] = {one.name: import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__)}

FORMATS: Mapping[str, Format] = {name: one.FORMAT for name, one in _MODULES.items() if hasattr(one, "FORMAT")}
"""By the name of their reader."""

READERS: tuple[Reader, ...] = tuple(sorted((_MODULES[name] for name in FORMATS), key=lambda one: one.FORMAT.is_general))
"""Tried in this order."""

__all__ = [
    "FILE_ORDER", "FORMATS", "GUESSED", "NODE_ORDER", "READERS", "Format", "Header", "RankHint", "Reader", "ended_ns",
    "header_of", "ranks_of", "reader_of",
]  # fmt: skip


def reader_of(path: Path) -> Reader | None:
    """The first reader that recognises the file; `None` when none does."""
    return next((reader for reader in READERS if reader.recognises(path)), None)


def header_of(path: Path) -> Header:
    """The file's head; errors as `ranks_of`."""
    with _bounded(path) as reader:
        return reader.peek(path)


def ended_ns(path: Path) -> int | None:
    """When the capture ended, ns since the epoch; `None` where the file does not say."""
    with _bounded(path) as reader:
        of_whole: Callable[[Path], int | None] | None = getattr(reader, "ended_ns", None)
        return of_whole(path) if of_whole else reader.peek(path).end_ns


def ranks_of(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """Each rank of a file, one at a time.

    Raises:
        NotATraceError: no reader knows the file, nothing in it can be analysed, or it needs more memory than it gets.
    """
    ranks: Iterator[RankTrace] | None = None
    while True:
        with _bounded(path) as reader:
            ranks = ranks or reader.read(path, hint, rules)
            trace = next(ranks, None)
        if trace is None:
            return
        yield trace
        del trace  # it would be held while the next one is read


@contextmanager
def _bounded(path: Path) -> Iterator[Reader]:
    """The reader of a file, and as much memory as reading it may take."""
    reader = reader_of(path)
    if reader is None:
        raise NotATraceError(f"{path}: not there any more, not seen from here, or no trace")
    try:
        with memory_for(size_of(path)):
            yield reader
    except MemoryError as error:
        raise NotATraceError(f"{path}: not read: {TOO_LARGE}") from error
