"""Input formats: every reader, and which one reads a file."""

from pathlib import Path

from traceanalyzer.readers import kineto, nsys, rocpd, rocprofv3, xplane
from traceanalyzer.readers.base import FILE_ORDER, GUESSED, NODE_ORDER, Header, RankHint, Reader

READERS: tuple[Reader, ...] = (rocpd, nsys, rocprofv3, xplane, kineto)
"""Tried in this order."""

__all__ = ["FILE_ORDER", "GUESSED", "NODE_ORDER", "READERS", "Header", "RankHint", "Reader", "reader_of"]


def reader_of(path: Path) -> Reader | None:
    """The first reader that recognises the file; `None` when none does."""
    return next((reader for reader in READERS if reader.recognises(path)), None)
