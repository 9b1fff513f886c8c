"""Packed files and archives: their members as files of their own."""

import atexit
import bz2
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

from isal import igzip, isal_zlib
from msgspec import Struct

from traceanalyzer.errors import InputError, first_line
from traceanalyzer.files.bounds import BLOCK_BYTES, ROOM_BYTES, TOO_MANY, Bounded, most_bytes

# Packed files: which names they have, and their bytes unpacked as they are read.


JSON_END = r"\.json(?:\.(?:gz|zst|xz|bz2))?$"
"""How names of JSON end, packed or not, as an expression."""

_JSON = re.compile(JSON_END)

NOT_UNPACKED: Mapping[str, str] = {".lz4": "lz4", ".7z": "7-Zip", ".rar": "RAR", ".br": "Brotli", ".Z": "compress"}
"""Suffixes of files that are named as skipped, and what packed them."""


def is_json(name: str) -> bool:
    """Whether a file is JSON by its name, packed or not."""
    return _JSON.search(name) is not None


def unpacked(file: BinaryIO, first: bytes) -> BinaryIO | None:
    """A stream of the unpacked bytes of a gzip, xz, bzip2 or zstd file; `None` for others.

    Args:
        file: the open file, at its start; whoever opened it closes it, after the stream.
        first: its first bytes, six at least where it has so many.
    """
    opener = next((make for magic, make in _OPENERS.items() if first.startswith(magic)), None)
    return None if opener is None else opener(file)


_BAD_GZIP: Any = isal_zlib.error

ERRORS: tuple[type[Exception], ...] = (lzma.LZMAError, _BAD_GZIP, EOFError, OSError, ValueError)
"""What the streams raise on damage."""


def _zstd(file: BinaryIO) -> BinaryIO:
    import pyarrow as pa

    # Closing it closes the file below it.
    stream: BinaryIO = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    return stream


_OPENERS: Mapping[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": lambda file: igzip.IGzipFile(fileobj=file),  # type: ignore[no-untyped-call]
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"BZh": bz2.BZ2File,
    b"\x28\xb5\x2f\xfd": _zstd,
}


# Zip and tar files of traces: their members as files of their own, in a temporary folder.


_TAR = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst")

SUFFIXES = (".zip", *_TAR)


@dataclass(slots=True)
class Unpacked:
    """What became of an archive.

    Attributes:
        folder: where its wanted members lie, below their own folders; gone when the process ends.
        skipped: member (empty: the whole archive) and why it was left out.
        others: members that are not wanted by their names.
    """

    folder: Path
    skipped: list[tuple[str, str]] = field(default_factory=list)
    others: int = 0
    written_bytes: int = 0


def is_archive(path: Path) -> bool:
    """Whether a file is an archive by its name."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def without_suffix(path: Path) -> Path:
    """Where the members would lie, were it unpacked beside itself: `run.tar.gz` in `run`."""
    suffix = max((one for one in SUFFIXES if path.name.lower().endswith(one)), key=len)
    return path.with_name(path.name[: -len(suffix)] or path.name)


def unpack(path: Path, is_wanted: Callable[[str], bool]) -> Unpacked:
    """Unpack the members with names that are wanted.

    Links, devices, names that lead out of the folder and archives inside it are left out. What unpacks to more than
    `bounds.MOST_TIMES` times its size, or fills the disk, is not unpacked further.
    """
    folder = Path(tempfile.mkdtemp(prefix="traceanalyzer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = Unpacked(folder)
    try:
        members = _of_zip(path) if path.name.lower().endswith(".zip") else _of_tar(path)
        for member in members:
            _take(member, path, made, is_wanted)
    except InputError as error:
        made.skipped.append(("", str(error)))
    except _errors() as error:
        made.skipped.append(("", f"cannot be unpacked to its end ({first_line(error)})"))
    return made


def _errors() -> tuple[type[Exception], ...]:
    """What damaged archives raise."""
    others = (tarfile.TarError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)
    return (*ERRORS, *others)


class _Member(Struct, frozen=True):
    """`why_not` says what keeps it from being unpacked; `packed_bytes` is `None` where it is not known by member."""

    name: str
    modified_s: float | None
    opened: Callable[[], Any]
    packed_bytes: int | None = None
    why_not: str | None = None


def _of_zip(path: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith("/"):
                why = "encrypted; unpack it yourself" if info.flag_bits & 1 else None
                yield _Member(info.filename, None, lambda info=info: archive.open(info), info.compress_size, why)  # type: ignore[misc]  # the default binds


def _of_tar(path: Path) -> Iterator[_Member]:
    with _plain(path) as stream, tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
        for info in archive:
            if not info.isdir():
                why = None if info.isreg() else "a link or a device"
                yield _Member(info.name, info.mtime, lambda info=info: archive.extractfile(info), None, why)  # type: ignore[misc]  # the default binds


@contextmanager
def _plain(path: Path) -> Iterator[Any]:
    """The tar file's bytes, unpacked."""
    with path.open("rb") as file:
        first = file.read(6)
        file.seek(0)
        yield Bounded(unpacked(file, first) or file, path.stat().st_size)


_MORE_HEADER = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE
)  # fmt: skip


class _Header(tarfile.TarInfo):
    """A header of a tar file; one that goes on in blocks of its own (a long name) is read at once, and is small."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.size > BLOCK_BYTES and self.type in _MORE_HEADER:
            raise InputError(f"a header in it has {self.size:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]  # no part of what is documented


def _take(member: _Member, archive: Path, made: Unpacked, is_wanted: Callable[[str], bool]) -> None:
    name = PurePosixPath(member.name.replace("\\", "/"))
    if name.name.lower().endswith(SUFFIXES):
        made.skipped.append((member.name, "an archive inside an archive; unpack it"))
        return
    if not is_wanted(name.name):
        made.others += 1
        return
    target = made.folder.joinpath(*name.parts)
    try:
        why = member.why_not or _why_not(name, target)
        if why is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            with member.opened() as source:
                why = _copied(source, target, archive, member, made)
    except _errors() as error:  # of this member: those after it may be whole
        why = f"cannot be unpacked ({getattr(error, 'strerror', None) or first_line(error)})"
        with suppress(OSError):  # another member's folder, or a name that is too long
            target.unlink()
    if why is not None:
        made.skipped.append((member.name, why))
    elif member.modified_s is not None:
        with suppress(OverflowError, ValueError, OSError):  # a time that no file can have
            os.utime(target, (member.modified_s, member.modified_s))


def _why_not(name: PurePosixPath, target: Path) -> str | None:
    if name.is_absolute() or ".." in name.parts or any(":" in part for part in name.parts[:1]):
        return "its name leads out of the archive"
    return "another member has the same name" if target.exists() else None


def _copied(source: IO[bytes], target: Path, archive: Path, member: _Member, made: Unpacked) -> str | None:
    """Copy a member; returns why it could not be."""
    before = made.written_bytes
    with target.open("xb") as file:
        while block := source.read(BLOCK_BYTES):
            made.written_bytes += len(block)
            if (
                made.written_bytes % (64 * BLOCK_BYTES) < BLOCK_BYTES
                and shutil.disk_usage(made.folder).free < ROOM_BYTES
            ):
                target.unlink()
                raise InputError(f"fills the disk of {made.folder.parent}; unpack it elsewhere (TMPDIR)")
            own = made.written_bytes - before
            of_member = member.packed_bytes is not None and own > most_bytes(member.packed_bytes)
            if of_member or made.written_bytes > most_bytes(archive.stat().st_size):
                target.unlink()
                return TOO_MANY
            file.write(block)
    return None
