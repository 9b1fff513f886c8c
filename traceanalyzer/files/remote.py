"""Traces in object storage: their heads on this machine for sorting, each whole only while it is read."""

import atexit
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from traceanalyzer.errors import InputError, UsageError, needs_extra
from traceanalyzer.files.bounds import BLOCK_BYTES

HEAD_BYTES = 2 * BLOCK_BYTES
"""Of a file that is read from its beginning: enough for what it says of itself, packed or not."""

# A path of "s3://bucket/run" has lost a slash; one letter is a drive.
_URL = re.compile(r"([a-z][a-z0-9+.]+):/+(.*)", re.DOTALL)


class LocalFile(Struct, frozen=True):
    """A file on this machine, or the head of a remote one.

    Attributes:
        path: here.
        shown: by which path people know it, where that is another; of a remote one its URL.
        url: where it is to be fetched from; `None` when it is here whole.
    """

    path: Path
    shown: Path | None = None
    url: str | None = None

    @property
    def place(self) -> Path:
        """The path by which people know it."""
        return self.shown or self.path


def url_of(path: Path) -> str | None:
    """The URL that was made a path of, such as `s3://bucket/run`; `None` for paths of this machine."""
    match = _URL.fullmatch(path.as_posix())
    if match is None or path.exists():
        return None
    return f"{match[1]}://{'/' if match[1] in ('file', 'local') else ''}{match[2]}"


def named(path: Path) -> str:
    """A path as people write it: URLs with both slashes."""
    return url_of(path) or str(path)


def mirrored(url: str, is_wanted: Callable[[str], bool], is_read_from_head: Callable[[str], bool]) -> list[LocalFile]:
    """The wanted files below a URL, or the one that it is of: whole, or the heads of those for which these do.

    Raises:
        InputError: it cannot be listed or read.
        UsageError: what reads such URLs is not installed.
    """
    root = Path(tempfile.mkdtemp(prefix="traceanalyzer-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    top = Path(url)
    with _explained(url):
        files, base = _open(url)
        below = files.find(base, detail=True)
        found = []
        for place, info in sorted(below.items()):
            relative = PurePosixPath(place).relative_to(base) if place.rstrip("/") != base.rstrip("/") else None
            name = PurePosixPath(place).name
            if not is_wanted(name) or (relative and any(part.startswith(".") for part in relative.parts)):
                continue
            target = root / (relative or name)
            target.parent.mkdir(parents=True, exist_ok=True)
            is_whole = info["size"] <= HEAD_BYTES or not is_read_from_head(name)
            if is_whole:
                files.get_file(place, str(target))
            else:
                target.write_bytes(files.cat_file(place, start=0, end=HEAD_BYTES))
            whence = None if is_whole else files.unstrip_protocol(place)
            found.append(LocalFile(target, top / relative if relative else top, whence))
    return found


@contextmanager
def fetched(url: str, name: str) -> Iterator[Path]:
    """The file on this machine, under its own name, until the context ends.

    Raises:
        InputError: it cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="traceanalyzer-") as folder:
        target = Path(folder, name)
        with _explained(url):
            files, place = _open(url)
            with files.open(place, "rb") as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, BLOCK_BYTES)
        yield target


def _open(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise needs_extra(f"{url}: URLs need fsspec", "remote") from error
    try:
        files, place = url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{url}: {error}") from error
    return files, place


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Errors of a store, of whatever kind: each has its own."""
    try:
        yield
    except (InputError, UsageError):
        raise
    except Exception as error:
        raise InputError(f"{url}: cannot be read ({error or type(error).__name__})") from error
