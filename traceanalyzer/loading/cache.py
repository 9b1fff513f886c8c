"""The cache in the user's folder: what its entries are called, how one appears whole, and which go when it is full.

An entry is of one file as it was: its path, size, inode, times of change, and what else decides what is made of it.
What entries hold is for their makers: `kept_traces`, `kept_ranks`, and `report.kept_report` of whole runs.
"""

import hashlib
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
import pyarrow as pa
from isal import isal_zlib
from msgspec import Struct

from traceanalyzer.errors import InputError
from traceanalyzer.files.cached import name_of

MOST_BYTES = 4 << 30
"""Of all entries together; those that nobody asked for longest go first."""

_UNSETTLED_NS = 2 * 10**9
"""A file that changed so shortly ago may change again within one tick of its clock: it is not kept.

That is of clocks of whole seconds, or of two; where a time has parts of a second, a twentieth of it will do.
"""

_FORGOTTEN_S = 86_400
"""Age of drafts whose process must have been ended."""

_DRAFT = ".draft-"

_CHECKSUMS = "checksums.json"
"""Of all other files of an entry, by their paths in it."""

_AT_TIMES = 64
"""A process looks at all entries once it has kept this part of the limit: there may be hundreds."""

_AT_ONCE = 1 << 20

UNREADABLE = (OSError, ValueError, TypeError, KeyError, pa.ArrowException, msgspec.MsgspecError)


class Contents(Struct, frozen=True):
    """What the cache holds.

    Attributes:
        folder: where.
        read: files of which there is what was read.
        analysed: those of which there is what analyses made of their ranks.
        reports: runs of which Results and findings are there.
        size_bytes: of all that.
    """

    folder: Path
    read: int
    analysed: int
    reports: int
    size_bytes: int

    @property
    def entries(self) -> int:
        """How many there are of all kinds."""
        return self.read + self.analysed + self.reports


def contents(folder: Path) -> Contents:
    """How much there is."""
    sizes = {entry.name: _size_of(entry) for entry in _entries(folder)}
    of_kind = Counter(name.partition("-")[2] for name in sizes)
    return Contents(folder, of_kind[""], of_kind["ranks"], of_kind["report"], sum(sizes.values()))


def clear(folder: Path) -> Contents:
    """Remove all entries and drafts; what there was.

    Raises:
        InputError: some of them cannot be removed.
    """
    held = contents(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if left := contents(folder).entries:
        raise InputError(f"{folder}: {left} of {held.entries} entries cannot be removed")
    return held


def key_of(path: Path, options: tuple[object, ...], least_bytes: int) -> str | None:
    """Names the file as it is; `None` for what is not worth keeping or may not be."""
    try:
        state = path.stat()
        name = name_of(path, state, options)
    except OSError:
        return None
    changed_ns = max(state.st_mtime_ns, state.st_ctime_ns)
    unsettled_ns = _UNSETTLED_NS // 20 if changed_ns % 10**9 else _UNSETTLED_NS
    if not path.is_file() or state.st_size < least_bytes or time.time_ns() - changed_ns < unsettled_ns:
        return None
    return name


def code_of(files: Iterable[Path], *others: object) -> str:
    """Names files of code as they are, and what else there is to tell of it; short: it is in all entries' names."""
    states = ((file, file.stat()) for file in sorted(files) if file.is_file() and "__pycache__" not in file.parts)
    told = [(str(file), state.st_size, state.st_mtime_ns) for file, state in states]
    return hashlib.sha256(repr((told, others)).encode(errors="surrogateescape")).hexdigest()


@dataclass(slots=True)
class Draft:
    """An entry that is being written; it appears when it is whole. An error ends it, and nothing else."""

    folder: Path
    ranks: int = 0
    is_usable: bool = True

    @classmethod
    def begun(cls, folder: Path) -> "Draft | None":
        """An empty one in the cache's folder; `None` where nothing can be written."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return cls(Path(tempfile.mkdtemp(prefix=_DRAFT, dir=folder)))
        except OSError:
            return None

    def add(self, write: Callable[[Path], None]) -> None:
        """One rank more: `write` puts it into a folder."""
        if not self.is_usable:
            return
        try:
            place = self.folder / str(self.ranks)
            place.mkdir()
            write(place)
            self.ranks += 1
        except UNREADABLE:
            self.is_usable = False

    def settle(self, target: Path) -> None:
        """Make it the entry, if all of it was written."""
        if self.is_usable and self.ranks:
            with suppress(OSError):  # another process was first
                (self.folder / _CHECKSUMS).write_bytes(msgspec.json.encode(_checksums(self.folder)))
                self.folder.rename(target)

    def drop(self) -> None:
        """Remove what is left of it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def ranks_of(entry: Path) -> list[Path]:
    """The folders of an entry's ranks, in the order in which they were added.

    Raises:
        ValueError, and others of `UNREADABLE`: a file of the entry is not as it was written.
    """
    if msgspec.json.decode((entry / _CHECKSUMS).read_bytes()) != _checksums(entry):
        raise ValueError("not as it was written")
    return sorted((place for place in entry.iterdir() if place.is_dir()), key=lambda place: int(place.name))


def _checksums(entry: Path) -> dict[str, int]:
    files = (file for file in entry.rglob("*") if file.is_file() and file.name != _CHECKSUMS)
    return {file.relative_to(entry).as_posix(): _checksum(file) for file in files}


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while part := file.read(_AT_ONCE):
            checksum = isal_zlib.crc32(part, checksum)
    return checksum


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if re.fullmatch(r"[0-9a-f]{64}(-ranks|-report)?", entry.name)]
    except OSError:
        return []


def _size_of(entry: Path) -> int:
    with suppress(OSError):  # another process removes it
        return sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
    return 0


def prune(folder: Path) -> None:
    """Keep within the limit, and forget what ended processes left."""
    with suppress(OSError):
        aged = sorted(((entry.stat().st_mtime_ns, entry) for entry in _entries(folder)), reverse=True)
        total = 0
        for _, entry in aged:
            total += _size_of(entry)
            if total > MOST_BYTES:
                shutil.rmtree(entry, ignore_errors=True)
        for draft in folder.glob(f"{_DRAFT}*"):
            if time.time() - draft.stat().st_mtime > _FORGOTTEN_S:
                shutil.rmtree(draft, ignore_errors=True)


class _Unpruned:
    """What this process has kept since it looked at all entries."""

    size_bytes: ClassVar[int] = 0


def prune_at_times(entry: Path) -> None:
    """`prune`, but not for each of the many small entries that one run keeps."""
    _Unpruned.size_bytes += _size_of(entry)
    if _AT_TIMES * _Unpruned.size_bytes >= MOST_BYTES:
        _Unpruned.size_bytes = 0
        prune(entry.parent)
