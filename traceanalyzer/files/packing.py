"""Packed files: which names they have, and their bytes unpacked as they are read."""

import bz2
import lzma
import re
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

_NAME = r"\.json(?:\.(?:gz|zst|xz|bz2))?$"

_JSON = re.compile(_NAME)

NOT_UNPACKED: Mapping[str, str] = {".lz4": "lz4", ".7z": "7-Zip", ".rar": "RAR", ".br": "Brotli", ".Z": "compress"}
"""Suffixes of files that are named as skipped, and what packed them."""

MOST_TIMES = 400
"""A file that unpacks to more than this times its size is not read on, beyond `FREE_BYTES`: JSON packs by 5 to 100."""

FREE_BYTES = 512 << 20


def is_json(name: str) -> bool:
    """Whether a file is JSON by its name, packed or not."""
    return _JSON.search(name) is not None


def unpacked(file: BinaryIO, first: bytes) -> BinaryIO | None:
    """A stream of the unpacked bytes of an xz, bzip2 or zstd file; `None` for others.

    Args:
        file: the open file, at its start; closing the stream closes it.
        first: its first bytes, six at least where it has so many.
    """
    opener = next((make for magic, make in _OPENERS.items() if first.startswith(magic)), None)
    return None if opener is None else opener(file)


def most_bytes(packed_bytes: int) -> int:
    """How many bytes so few may become: when they are unpacked, or as what is made of them."""
    return max(FREE_BYTES, MOST_TIMES * packed_bytes)


ERRORS: tuple[type[Exception], ...] = (lzma.LZMAError, EOFError, OSError, ValueError)
"""What the streams raise on damage."""


def _zstd(file: BinaryIO) -> BinaryIO:
    import pyarrow as pa

    # Closing it closes the file below it.
    stream: BinaryIO = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    return stream


def _closing(stream: Any, file: BinaryIO) -> BinaryIO:
    """The stream, which closes the file below it when it is closed: those of the standard library do not."""
    close = stream.close

    def both() -> None:
        close()
        file.close()

    stream.close = both
    made: BinaryIO = stream
    return made


_OPENERS: Mapping[bytes, Callable[[BinaryIO], BinaryIO]] = {
    b"\xfd7zXZ\x00": lambda file: _closing(lzma.LZMAFile(file), file),  # noqa: SIM115 - its reader closes it
    b"BZh": lambda file: _closing(bz2.BZ2File(file), file),
    b"\x28\xb5\x2f\xfd": _zstd,
}
