"""Files that are read at once: no more of them than was agreed on, whatever the file says of its size."""

import errno
from pathlib import Path

MOST_SMALL_BYTES = 256 << 20
"""Of what people write by hand, or a tool for one of them: lists of hosts, gates, metrics."""

_HEAD = 4096


def content(path: Path, most: int = MOST_SMALL_BYTES) -> bytes:
    """The file's bytes: of a device or a pipe too, which tell no size and may never end.

    Raises:
        OSError: it cannot be read, holds more than `most` bytes, or begins with NULs, as no text does.
    """
    with path.open("rb") as file:
        head = file.read(_HEAD)
        if head[:1] == b"\0":
            raise OSError(errno.EINVAL, "not a text file")
        found = head + file.read(most + 1 - len(head))
    if len(found) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20:,} MiB")
    return found
