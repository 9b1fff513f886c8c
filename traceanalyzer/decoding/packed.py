"""Bytes of a plain or packed file; a damaged end reads as the end, and all before the damage is kept."""

import contextlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from isal import isal_zlib

from traceanalyzer.errors import NotATraceError
from traceanalyzer.files import packing

_PACKED_BYTES = 256 << 10

_SECTOR_BYTES = 4096
"""Of a disk that fails are read at once."""

_GZIP = 31
"""`wbits` of gzip with its header."""

_BadGzip: Any = isal_zlib.error

_USUAL_RATIO = 10
"""Traces are text that repeats: packed they take a tenth of it, and less."""


@dataclass(slots=True)
class PackedFile:
    """An open file.

    Attributes:
        is_damaged: its packed data are not whole, or their checksum is wrong.
    """

    file: BinaryIO
    is_damaged: bool = False
    _path: Path = Path()
    _stream: BinaryIO | None = None
    _unpacker: Any = None
    _packed: bytes = b""
    _is_between: bool = False
    _given_bytes: int = 0
    _saved: bytes = b""

    @classmethod
    def open(cls, path: Path) -> "PackedFile":
        """Open the file; how it is packed is told by its first bytes.

        Raises:
            NotATraceError: it cannot be read.
        """
        try:
            file = path.open("rb")
            first = file.read(6)
            file.seek(0)
            stream = packing.unpacked(file, first)
        except OSError as error:
            raise NotATraceError(f"{path}: cannot be read ({error.strerror or error})") from error
        is_gzip = first.startswith(b"\x1f\x8b")
        return cls(
            file, _path=path, _stream=stream, _unpacker=isal_zlib.decompressobj(wbits=_GZIP) if is_gzip else None
        )

    def read(self, size_bytes: int) -> bytes:
        """Up to `size_bytes`; fewer only at the end of what can be read.

        Raises:
            NotATraceError: a small file unpacks without end.
        """
        parts: list[bytes] = []
        missing = size_bytes
        while missing and (part := self._read_some(missing)):
            parts.append(part)
            missing -= len(part)
            self._given_bytes += len(part)
        if self._given_bytes > packing.FREE_BYTES and self._given_bytes > packing.most_bytes(self.file.tell()):
            raise NotATraceError(
                f"{self._path}: unpacks to over {packing.MOST_TIMES} times its size; if that is meant, unpack it first"
            )
        return b"".join(parts)

    @property
    def expected_bytes(self) -> int:
        """About how many bytes there are to read."""
        try:
            size = self._path.stat().st_size
        except OSError:
            return 0
        return size if self.is_plain else size * _USUAL_RATIO

    @property
    def is_plain(self) -> bool:
        """Whether its bytes are the text itself: any part of it can be read alone."""
        return self._stream is None and self._unpacker is None

    def close(self) -> None:
        """Close it; reading is over."""
        (self._stream or self.file).close()

    def _read_some(self, size_bytes: int) -> bytes:
        if self._stream is not None:
            return self._streamed(size_bytes)
        try:
            if self._unpacker is None:
                return up_to_the_error(self.file, size_bytes)
            if not self.is_damaged:
                return self._unpacked(size_bytes)
        except OSError:  # the disk's, or the network's
            self.is_damaged = True
            return b""
        except _BadGzip:
            self.is_damaged = True
            self._saved = b"".join(_before_the_damage(self.file, self._given_bytes))
        part, self._saved = self._saved[:size_bytes], self._saved[size_bytes:]
        return part

    def _streamed(self, size_bytes: int) -> bytes:
        """The next bytes of an xz, bzip2 or zstd stream; in small pieces, so that little before a damage is lost."""
        if self.is_damaged or self._stream is None:
            return b""
        try:
            return self._stream.read(min(size_bytes, _PACKED_BYTES))
        except packing.ERRORS:
            self.is_damaged = True
            return b""

    def _unpacked(self, size_bytes: int) -> bytes:
        """The next bytes of the gzip stream, which may consist of several members."""
        while True:
            self._packed = self._next_packed()
            if not self._packed:
                return b""
            text: bytes = self._unpacker.decompress(self._packed, size_bytes)
            self._packed, self._is_between = self._unpacker.unconsumed_tail, self._unpacker.eof
            if self._is_between:
                self._packed = self._unpacker.unused_data
                self._unpacker = isal_zlib.decompressobj(wbits=_GZIP)
            if text:
                return text

    def _next_packed(self) -> bytes:
        """Packed bytes to go on with, without zeros behind a member: they fill a block, and gzip skips them too."""
        packed = self._packed or up_to_the_error(self.file, _PACKED_BYTES)
        while self._is_between and packed and not packed.strip(b"\0"):
            packed = up_to_the_error(self.file, _PACKED_BYTES)
        return packed.lstrip(b"\0") if self._is_between else packed


def up_to_the_error(file: BinaryIO, size_bytes: int) -> bytes:
    """The next bytes of a file; fewer where the disk fails, for a buffered read gives none of those before the failure.

    Raises:
        OSError: the first of them cannot be read.
    """
    at = file.tell()
    try:
        return file.read(size_bytes)
    except OSError:
        found = bytearray()
        with contextlib.suppress(OSError):
            while part := os.pread(file.fileno(), min(_SECTOR_BYTES, size_bytes - len(found)), at + len(found)):
                found += part
        if not found:
            raise
        file.seek(at + len(found))
        return bytes(found)


def _before_the_damage(file: BinaryIO, skipped_bytes: int) -> Iterator[bytes]:
    """What follows the first `skipped_bytes` of text, up to the damage.

    A call that meets damage gives nothing, so that the last stretch is unpacked one packed byte a call.
    """
    file.seek(0)
    unpacker, packed = zlib.decompressobj(_GZIP), b""
    while skipped_bytes and (packed := packed or file.read(_PACKED_BYTES)):
        skipped_bytes -= len(unpacker.decompress(packed, skipped_bytes))
        packed = unpacker.unconsumed_tail
        if unpacker.eof:
            packed, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP)
    try:
        while packed := packed or file.read(_PACKED_BYTES):
            for place in range(len(packed)):
                yield unpacker.decompress(packed[place : place + 1])
                if unpacker.eof:
                    unpacker = zlib.decompressobj(_GZIP)
            packed = b""
    except zlib.error:
        return
