"""Files in which large columns lie, so that the system has in memory what of them is used; they have no name.

Such memory is the file's: the system takes it back when there is little, and reads the pages again when they are asked
for. All processes that are forked meanwhile share it.
"""

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from io import FileIO
from pathlib import Path
from typing import Any
from weakref import WeakSet

from traceanalyzer.execution import anonymous_bytes, give_back_freed

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
