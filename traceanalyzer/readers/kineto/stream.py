"""A Kineto file's text: its head, then its events in chunks of whole events, then its tail.

The file is never in memory whole. Events are not parsed here; a chunk ends where one event ends and the next
begins, which is known by the key that opens the file's first event.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from isal import isal_zlib

from traceanalyzer.errors import NotATraceError

CHUNK_BYTES = 16 << 20

HEAD_BYTES = 1 << 20
"""Properties before the events are searched this far."""

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE_ARRAY = re.compile(rb"\s*\[")
_FIRST_KEY = re.compile(rb'\s*\{\s*("[^"\\]{1,40}")')
_PACKED_BYTES = 256 << 10

_BadGzip: Any = isal_zlib.error

_FIRST_TIME = re.compile(rb'"ts"\s*:\s*(\d+(?:\.\d+)?)')
_END = re.compile(rb"\s*,?\s*\]")


@dataclass(slots=True)
class EventText:
    """An open trace; `head` is known at once, `tail` and `is_truncated` when `chunks` has been used up.

    Attributes:
        head: text before the events, without the opening bracket of their array.
        tail: text after the events' closing bracket.
        is_truncated: the file ended before the events did.
    """

    path: Path
    head: bytes = b""
    tail: bytes = b""
    is_truncated: bool = False
    _rest: bytes = b""
    _first_key: bytes = b""
    _file: "_Input" = field(default_factory=lambda: _Input())  # noqa: PLW0108 - the class is defined below

    @classmethod
    def open(cls, path: Path) -> "EventText":
        """Open the file and find where its events begin.

        Raises:
            NotATraceError: it cannot be read, or has no array of events.
        """
        text = cls(path, _file=_Input.open(path))
        start = text._file.read(HEAD_BYTES)
        match = _EVENTS_KEY.search(start) or _BARE_ARRAY.match(start)
        while match is None and len(start) < 64 * HEAD_BYTES and (more := text._file.read(HEAD_BYTES)):
            start += more
            match = _EVENTS_KEY.search(start)
        if match is None:
            text._file.close()
            raise NotATraceError(f"{path}: not a PyTorch-profiler trace: it has no traceEvents")
        text.head, text._rest = start[: match.end() - 1], start[match.end() :]
        first = _FIRST_KEY.match(text._rest)
        text._first_key = first[1] if first else b'"ph"'
        return text

    def first_time_us(self) -> float | None:
        """`ts` of the first event that has one; `None` without events near the beginning."""
        match = _FIRST_TIME.search(self._rest)
        self._file.close()
        return float(match[1]) if match else None

    def chunks(self, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Texts of whole events separated by commas, without brackets."""
        boundary = re.compile(rb"\}\s*,\s*\{\s*" + re.escape(self._first_key))
        try:
            while block := self._file.read(size_bytes):
                self._rest += block
                cut = _last_boundary(self._rest, boundary)
                if cut:
                    chunk, self._rest = self._rest[:cut], self._rest[cut:].lstrip(b" \r\n\t,")
                    yield chunk
        finally:
            self._file.close()
        yield from self._last_chunk(boundary)

    def _last_chunk(self, boundary: re.Pattern[bytes]) -> Iterator[bytes]:
        """What is left holds the last events, and the array's end unless the file was cut."""
        end = _last_boundary(self._rest, boundary)
        while (closing := _END.match(self._rest, end)) is None:
            following = end_of_object(self._rest, end)
            if not following:
                self.is_truncated = True
                yield self._rest[:end]
                return
            end = following
        self.tail = self._rest[closing.end() :]
        yield self._rest[: closing.start()]


def end_of_object(text: bytes, start: int, limit: int | None = None) -> int:
    """Position after the `}` that closes the first object at or after `start`; 0 when it is not closed."""
    limit = len(text) if limit is None else limit
    position = text.find(b"{", start, limit)
    depth = 0
    while position >= 0 and (match := _STRUCTURE.search(text, position, limit)):
        position = match.end()
        depth += {b"{": 1, b"}": -1}.get(match[0], 0)
        if depth == 0:
            return position
    return 0


# A whole string (so that braces in names do not count), or a brace.
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


def _last_boundary(text: bytes, boundary: re.Pattern[bytes], reach: int = 1 << 16) -> int:
    """Position after the last `}` that ends an event before another; 0 when there is none."""
    while True:
        last = 0
        for match in boundary.finditer(text, max(0, len(text) - reach)):
            last = match.start() + 1
        if last or reach >= len(text):
            return last
        reach *= 8


@dataclass(slots=True)
class _Input:
    """Bytes of a plain or gzip file; a damaged end reads as the end, and all before it is kept."""

    file: BinaryIO | None = None
    _unpacker: Any = None
    _packed: bytes = b""

    @classmethod
    def open(cls, path: Path) -> "_Input":
        try:
            file = path.open("rb")
            is_gzip = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        except OSError as error:
            raise NotATraceError(f"{path}: cannot be read ({error.strerror or error})") from error
        return cls(file, _new_unpacker() if is_gzip else None)

    def read(self, size_bytes: int) -> bytes:
        """Up to `size_bytes`; fewer only at the end of what can be read."""
        parts: list[bytes] = []
        missing = size_bytes
        while missing and (part := self._read_some(missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def _read_some(self, size_bytes: int) -> bytes:
        assert self.file is not None
        try:
            return self.file.read(size_bytes) if self._unpacker is None else self._unpacked(size_bytes)
        except (_BadGzip, OSError):
            return b""

    def _unpacked(self, size_bytes: int) -> bytes:
        """The next bytes of the gzip stream, which may consist of several members."""
        assert self.file is not None
        while True:
            self._packed = self._packed or self.file.read(_PACKED_BYTES)
            if not self._packed:
                return b""
            text: bytes = self._unpacker.decompress(self._packed, size_bytes)
            self._packed = self._unpacker.unconsumed_tail
            if self._unpacker.eof:
                self._packed = self._unpacker.unused_data
                self._unpacker = _new_unpacker()
            if text:
                return text


def _new_unpacker() -> Any:
    return isal_zlib.decompressobj(wbits=31)  # 31: gzip with its header
