"""Files written whole or not at all, and files read within bounds."""

import errno
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from traceanalyzer.errors import UsageError
from traceanalyzer.execution import signals_wait
from traceanalyzer.files.bounds import BEGIN_BYTES, FREE_BYTES
from traceanalyzer.validation import place_of

# Files that are written: they appear when they are whole, and until then what lay there stays.


DRAFT = ".writing-"
"""How the names of folders begin in which drafts lie."""

DAY_S = 86_400


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write what becomes `path` when the block ends well, in a folder that nobody else uses.

    What is no file, such as a pipe or /dev/null, keeps its place and is given the content.

    Raises:
        UsageError: it cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{path}: cannot be written (it is a folder); name the file")
    if path.exists() and not path.is_file():
        with _errors_of(path, path.parent), tempfile.TemporaryDirectory() as folder:
            draft = Path(folder, path.name)
            yield draft
            with draft.open("rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
        return
    with whole_files(path.parent, path) as folder_of_drafts:
        yield folder_of_drafts / path.name


@contextmanager
def whole_files(folder: Path, only: Path | None = None) -> Iterator[Path]:
    """A folder for drafts of files, which take their places in `folder` when the block ends well.

    When it does not, nothing is left of them, and folders that were made for them go again.

    Args:
        folder: where the files will lie; it is made.
        only: the one that will; `None` for all that are written.

    Raises:
        UsageError: they cannot be written.
    """
    absent = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        with _errors_of(only or folder, folder):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=DRAFT, dir=folder) as drafts:
                yield Path(drafts)
                with signals_wait():
                    for draft in [Path(drafts, only.name)] if only else sorted(Path(drafts).iterdir()):
                        if not draft.is_dir():
                            draft.replace(folder / draft.name)
    finally:
        remove_old_drafts(folder)
        for made in absent:
            with suppress(OSError):  # it holds what was written, here or by others
                made.rmdir()


@contextmanager
def made(folder: object, what: str) -> Iterator[Path]:
    """The folder that was given for `what`, made where it is not there, to write files into.

    Raises:
        UsageError: it is no path, or cannot be written.
    """
    place = place_of(folder, what)
    with _errors_of(place, place):
        place.mkdir(parents=True, exist_ok=True)
        yield place


@contextmanager
def _errors_of(path: Path, folder: Path) -> Iterator[None]:
    """Reports errors of the file system as this file's, but for those that name a file outside of the folder."""
    try:
        yield
    except OSError as error:
        place = None if error.filename is None else Path(error.filename)
        if place is not None and not (place.is_relative_to(folder) or folder.is_relative_to(place)):
            raise
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another place") from error


def remove_old_drafts(folder: Path) -> None:
    """Remove drafts that a killed process left, a day after."""
    for draft in folder.glob(f"{DRAFT}*"):
        with suppress(OSError):
            if time.time() - draft.stat().st_mtime > DAY_S:
                shutil.rmtree(draft, ignore_errors=True)


# Files that are read at once: no more of them than was agreed on, whatever the file says of its size.


def content(path: Path, most: int = FREE_BYTES) -> bytes:
    """The file's bytes: of a device or a pipe too, which tell no size and may never end.

    Raises:
        OSError: it cannot be read, holds more than `most` bytes, or begins with NULs, as no text does.
    """
    with path.open("rb") as file:
        head = file.read(BEGIN_BYTES)
        if head[:1] == b"\0":
            raise OSError(errno.EINVAL, "not a text file")
        found = head + file.read(most + 1 - len(head))
    if len(found) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20:,} MiB")
    return found
