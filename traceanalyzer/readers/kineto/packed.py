"""Bytes of a plain or gzip file; a damaged end reads as the end, and all before the damage is kept."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from isal import isal_zlib

from traceanalyzer.errors import NotATraceError

_PACKED_BYTES = 256 << 10

_GZIP = 31
"""`wbits` of gzip with its header."""

_BadGzip: Any = isal_zlib.error


@dataclass(slots=True)
class PackedFile:
    """An open file.

    Attributes:
        is_damaged: its gzip data are not whole, or their checksum is wrong.
    """

    file: BinaryIO
    is_damaged: bool = False
    _unpacker: Any = None
    _packed: bytes = b""
    _given_bytes: int = 0
    _saved: bytes = b""

    @classmethod
    def open(cls, path: Path) -> "PackedFile":
        """Open the file; whether it is gzip is told by its first bytes.

        Raises:
            NotATraceError: it cannot be read.
        """
        try:
            file = path.open("rb")
            is_gzip = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        except OSError as error:
            raise NotATraceError(f"{path}: cannot be read ({error.strerror or error})") from error
        return cls(file, _unpacker=isal_zlib.decompressobj(wbits=_GZIP) if is_gzip else None)

    def read(self, size_bytes: int) -> bytes:
        """Up to `size_bytes`; fewer only at the end of what can be read."""
        parts: list[bytes] = []
        missing = size_bytes
        while missing and (part := self._read_some(missing)):
            parts.append(part)
            missing -= len(part)
            self._given_bytes += len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close it; reading is over."""
        self.file.close()

    def _read_some(self, size_bytes: int) -> bytes:
        try:
            if self._unpacker is None:
                return self.file.read(size_bytes)
            if not self.is_damaged:
                return self._unpacked(size_bytes)
        except OSError:
            return b""
        except _BadGzip:
            self.is_damaged = True
            self._saved = b"".join(_before_the_damage(self.file, self._given_bytes))
        part, self._saved = self._saved[:size_bytes], self._saved[size_bytes:]
        return part

    def _unpacked(self, size_bytes: int) -> bytes:
        """The next bytes of the gzip stream, which may consist of several members."""
        while True:
            self._packed = self._packed or self.file.read(_PACKED_BYTES)
            if not self._packed:
                return b""
            text: bytes = self._unpacker.decompress(self._packed, size_bytes)
            self._packed = self._unpacker.unconsumed_tail
            if self._unpacker.eof:
                self._packed = self._unpacker.unused_data
                self._unpacker = isal_zlib.decompressobj(wbits=_GZIP)
            if text:
                return text


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
