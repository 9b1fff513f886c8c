"""How much may become of a file: when it is unpacked, and in memory while it is read; what is large lies in files."""

import io
import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from io import FileIO
from pathlib import Path
from typing import Any
from weakref import WeakSet

from traceanalyzer.errors import InputError
from traceanalyzer.execution import anonymous_bytes, give_back_freed

MOST_TIMES = 200
"""A file that unpacks to more than this times its size is not read on, beyond `FREE_BYTES`: traces pack by 5 to 50."""

FREE_BYTES = 128 << 20

ROOM_BYTES, ROOM_TIMES = 2 << 30, 20
"""Memory that reading a file may take, and how many times its size more."""

BLOCK_BYTES = 1 << 20
"""Read, copied or held at once, where the whole may be of any size."""

BEGIN_BYTES = 1 << 16
"""Of a file's begin, which shows what it is: a program may print much before NCCL does."""

ROWS_AT_ONCE = 1 << 16
"""Rows of a table that are asked for or written at once, where there may be any number."""

_IS_BOUNDED = threading.Lock()


def most_bytes(packed_bytes: int) -> int:
    """How many bytes so few may become: when they are unpacked, or as what is made of them."""
    return max(FREE_BYTES, MOST_TIMES * packed_bytes)


TOO_MANY = f"unpacks to over {MOST_TIMES} times its size; not unpacked"


class Bounded(io.RawIOBase):
    """What a file of this size unpacks to, headers and what nobody wants included.

    Reading raises `InputError` when it is more than such a file should hold, and `EOFError` when it is asked again
    after its end, as `tarfile` does to skip what a header promises.
    """

    def __init__(self, stream: Any, size: int) -> None:
        self._stream, self._left, self._is_over = stream, most_bytes(size), False

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer; returns how many bytes there were."""
        try:
            data = self._next(len(buffer))
        except BaseException:
            if isinstance(buffer, memoryview):  # else the error's traceback holds it, and its owner complains on stderr
                buffer.release()
            raise
        buffer[: len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        if self._is_over:
            raise EOFError("it ends too early")
        data: bytes = self._stream.read(size)
        self._left -= len(data)
        self._is_over = not data
        if self._left < 0:
            raise InputError(TOO_MANY)
        return data


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


@contextmanager
def memory_for(size: int) -> Iterator[None]:
    """Room for what reading a file of this size takes, where the system can bound it; what asks for more fails.

    The bound is the process's: of readers in several threads, and of one inside another, the first one's holds.

    Raises:
        MemoryError: there is no more room.
    """
    try:
        import resource  # noqa: PLC0415 - Windows has none

        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + ROOM_BYTES + ROOM_TIMES * size
    if (soft != resource.RLIM_INFINITY and soft <= wanted) or not _IS_BOUNDED.acquire(blocking=False):
        yield
        return
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        _IS_BOUNDED.release()


TOO_LARGE = f"it needs more memory than {ROOM_BYTES >> 30} GiB and {ROOM_TIMES} times its size"


# Files in which large columns lie, so that the system has in memory what of them is used; they have no name.


LARGE_BYTES = 8 << 20
"""What is smaller stays in memory."""

_FOLDER: ContextVar[Path | None] = ContextVar("folder of large tables", default=None)

_MAPS: "WeakSet[mmap.mmap]" = WeakSet()

_MOUNTS = Path("/proc/self/mounts")

_IN_MEMORY = ("tmpfs", "ramfs")
"""File systems whose files are memory that nobody takes back."""


@contextmanager
def spilling_to(folder: Path | None) -> Iterator[None]:
    """What is large and made meanwhile lies in files of this folder, else of that of temporary files: on a disk."""
    place = (
        folder if folder and os.access(folder, os.W_OK | os.X_OK) and folder.is_dir() else Path(tempfile.gettempdir())
    )
    before = _FOLDER.set(place if _is_on_disk(place) else None)
    try:
        yield
    finally:
        _FOLDER.reset(before)


def can_spill() -> bool:
    """Whether there is one for what is large."""
    return _FOLDER.get() is not None


def spill_file(size: int) -> FileIO | None:
    """A file for so many bytes, gone when nobody uses it any more; `None` for what stays in memory."""
    folder = _FOLDER.get()
    if folder is None or size <= LARGE_BYTES:
        return None
    with suppress(OSError):
        if shutil.disk_usage(folder).free > _LEFT_FREE * size:
            return tempfile.TemporaryFile(dir=folder, buffering=0)
    return None


_LEFT_FREE = 8
"""Times of what is laid there that the disk must have free: what is left is for others, the cache and the report."""


def append(file: FileIO, content: Any) -> None:
    """Write all of it where the file is at.

    Raises:
        OSError: there is no room; some of it may be there.
    """
    left = memoryview(content).cast("B")
    while left:
        left = left[file.write(left) :]


def mapped(file: FileIO, *, access: int = mmap.ACCESS_READ) -> mmap.mmap:
    """All of the file as memory, which needs the file open no longer.

    Raises:
        OSError: the system gives none.
    """
    held = mmap.mmap(file.fileno(), 0, access=access)
    _MAPS.add(held)
    return held


def give_back_memory() -> None:
    """Give the system what was freed, and of such files what was read: what is asked for again is read again."""
    give_back_freed()
    for held in _MAPS:
        with suppress(AttributeError, OSError, ValueError):  # not on every system; or closed
            held.madvise(mmap.MADV_DONTNEED)


def give_back_grown() -> None:
    """Give the system what was freed, where there are such files and this process holds much more than the last time.

    Asked often: each time costs reading again what is used next.
    """
    if _MAPS and anonymous_bytes() > _HELD.get() + _GROWN_BYTES:
        give_back_freed()
        _HELD.set(anonymous_bytes())


_HELD: ContextVar[int] = ContextVar("bytes in use when freed memory was returned", default=0)

_GROWN_BYTES = 8 * LARGE_BYTES


def _is_on_disk(folder: Path) -> bool:
    """Whether files of the folder are on one: the mount that it lies in is not of memory. Known of Linux alone."""
    try:
        place = folder.resolve()
        mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
    except (OSError, RuntimeError):
        return False
    around = [(len(Path(mount[1]).parts), number, mount[2]) for number, mount in enumerate(mounts)
              if place.is_relative_to(mount[1])]  # fmt: skip
    return max(around, default=(0, 0, "tmpfs"))[2] not in _IN_MEMORY
