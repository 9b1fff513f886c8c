"""Packed files: which names they have, and their bytes unpacked as they are read."""

import bz2
import importlib
import lzma
import re
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from traceanalyzer.errors import InputError

_NAME = r"\.json(?:\.(?:gz|zst|xz|bz2))?$"

_JSON = re.compile(_NAME)

NOT_UNPACKED: Mapping[str, str] = {".lz4": "lz4", ".7z": "7-Zip", ".rar": "RAR", ".br": "Brotli", ".Z": "compress"}
"""Suffixes of files that are named as skipped, and what packed them."""

MOST_TIMES = 400
"""A file that unpacks to more than this times its size is not read on, beyond `FREE_BYTES`: JSON packs by 5 to 100."""

FREE_BYTES = 512 << 20

_ZSTD_HELP = "packed with zstd: pip install zstandard (or analyze-traces[zstd]), or unpack it"


def is_json(name: str) -> bool:
    """Whether a file is JSON by its name, packed or not."""
    return _JSON.search(name) is not None


def unpacked(file: BinaryIO, first: bytes) -> BinaryIO | None:
    """A stream of the unpacked bytes of an xz, bzip2 or zstd file; `None` for others.

    Args:
        file: the open file, at its start; closing the stream closes it.
        first: its first bytes, six at least where it has so many.

    Raises:
        InputError: it is packed with zstd, and nothing that unpacks it is installed.
    """
    opener = next((make for magic, make in _OPENERS.items() if first.startswith(magic)), None)
    return None if opener is None else opener(file)


def is_bomb(packed_bytes: int, unpacked_bytes: int) -> bool:
    """Whether so few bytes should not have become so many."""
    return unpacked_bytes > max(FREE_BYTES, MOST_TIMES * packed_bytes)


def errors() -> tuple[type[Exception], ...]:
    """What the streams raise on damage."""
    found = _zstandard()
    return (lzma.LZMAError, EOFError, OSError, ValueError, *(() if found is None else (found.ZstdError,)))


def _zstd(file: BinaryIO) -> BinaryIO:
    module = _zstandard()
    if module is None:
        raise InputError(_ZSTD_HELP)
    if hasattr(module, "ZstdFile"):
        return _closing(module.ZstdFile(file), file)
    reader: BinaryIO = module.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=True)
    return reader


def _closing(stream: Any, file: BinaryIO) -> BinaryIO:
    """The stream, which closes the file below it when it is closed: those of the standard library do not."""
    close = stream.close

    def both() -> None:
        close()
        file.close()

    stream.close = both
    made: BinaryIO = stream
    return made


def _zstandard() -> Any:
    """Python's own module from 3.14 on, else the package; `None` without either."""
    for name in ("compression.zstd", "zstandard"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


_OPENERS: Mapping[bytes, Callable[[BinaryIO], BinaryIO]] = {
    b"\xfd7zXZ\x00": lambda file: _closing(lzma.LZMAFile(file), file),  # noqa: SIM115 - its reader closes it
    b"BZh": lambda file: _closing(bz2.BZ2File(file), file),
    b"\x28\xb5\x2f\xfd": _zstd,
}
