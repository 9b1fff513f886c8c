"""Single files that a command writes: one of another's is not replaced unless the user says so."""

import gzip
import zlib
from pathlib import Path

from traceanalyzer.errors import UsageError

_HEAD_BYTES = 1 << 16


def refuse_others(path: Path | None, mark: bytes, *, force: bool) -> None:
    """Raise `UsageError` where a file is in the way that has no `mark` near its start, as this program's have.

    An empty file is nobody's work, and what is no file, such as /dev/null, keeps nothing.
    """
    if force or path is None or not path.is_file() or not path.stat().st_size:
        return
    if mark not in _head(path):
        raise UsageError(f"{path} is there already, and not of this command: name another, or replace it: --force")


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return gzip.open(file).read(_HEAD_BYTES) if is_packed else file.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""
