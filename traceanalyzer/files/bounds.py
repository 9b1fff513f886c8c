"""How much may become of a file: when it is unpacked, and in memory while it is read."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traceanalyzer.errors import InputError

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

_HELD = threading.Lock()


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
    if (soft != resource.RLIM_INFINITY and soft <= wanted) or not _HELD.acquire(blocking=False):
        yield
        return
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        _HELD.release()


TOO_LARGE = f"it needs more memory than {ROOM_BYTES >> 30} GiB and {ROOM_TIMES} times its size"
