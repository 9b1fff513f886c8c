"""Pickles that others made, read as plain containers: nothing is imported, nothing of them runs."""

import gc
import gzip
import io
import pickle
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from traceanalyzer.errors import InputError, first_line
from traceanalyzer.files.bounds import BLOCK_BYTES, TOO_LARGE, Bounded, memory_for

MOST_DEPTH = 64
"""Containers inside containers: dumps of PyTorch have less than ten."""

_GZIP = b"\x1f\x8b"


class PlainUnpickler(pickle.Unpickler):
    """Builds dict, list, tuple, set, str, bytes, int, float, bool and None; whatever names code is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuses: what it would find is code."""
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only plain data is read")

    def persistent_load(self, pid: Any) -> Any:
        """Refuses: it would come from elsewhere."""
        raise pickle.UnpicklingError(f"it refers to something outside itself ({type(pid).__name__})")


def loads(content: bytes, name: str, most_depth: int | None = MOST_DEPTH) -> Any:
    """The plain data of a pickle, of any protocol, packed with gzip or not.

    Raises:
        InputError: it is no pickle, is cut, is too large or too deep, or holds more than plain data.
    """
    return load(io.BytesIO(content), name, most_depth)


def read(path: Path) -> Any:
    """The plain data of a pickle in a file; errors as `loads`."""
    try:
        with path.open("rb") as file:
            return load(file, str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def load(file: IO[bytes], name: str, most_depth: int | None = MOST_DEPTH) -> Any:
    """The plain data of a pickle in a file that can be sought; errors as `loads`.

    Who reads named fields only, at known depths, need not ask how deep the rest is: `most_depth=None`.
    """
    size = file.seek(0, 2)
    file.seek(0)
    source = io.BufferedReader(Bounded(unpacked(file), size), BLOCK_BYTES)
    try:
        with without_collection(), memory_for(size), without_complaints():
            found = PlainUnpickler(source).load()
            is_too_deep = most_depth is not None and depth_exceeds(found, most_depth)
    except (pickle.UnpicklingError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name}: refused, not a pickle of plain data ({first_line(error)})") from error
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or type(error).__name__})") from error
    except MemoryError as error:
        raise InputError(f"{name}: refused: {TOO_LARGE}") from error
    except Exception as error:  # hostile opcodes end in nearly any error of the C unpickler
        raise InputError(f"{name}: not a pickle that can be read ({type(error).__name__})") from error
    if is_too_deep:
        raise InputError(f"{name}: refused, its containers lie more than {most_depth} deep in each other")
    return found


@contextmanager
def without_collection() -> Iterator[None]:
    """Millions of small objects that are read are no garbage: looking for some takes longer than reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def without_complaints() -> Iterator[None]:
    """Nothing on stderr where a pickle asks for a bytearray that does not fit.

    Its MemoryError is reported as any other. CPython prints a SystemError besides: it looks at how often the array
    is exported before it has set that.
    """
    shown = sys.excepthook
    sys.excepthook = lambda kind, error, trace: None if kind is SystemError else shown(kind, error, trace)
    try:
        yield
    finally:
        sys.excepthook = shown


def is_pickle(head: bytes) -> bool:
    """Whether a file's first bytes are those of a pickle of protocol 2 or newer, packed or not."""
    return (len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5) or head[:2] == _GZIP


def unpacked(file: IO[bytes]) -> IO[bytes]:
    """The file's content, unpacked when it is gzip."""
    head = file.read(2)
    file.seek(0)
    return cast("IO[bytes]", gzip.open(file)) if head == _GZIP else file


def depth_exceeds(value: Any, most: int) -> bool:
    """Whether containers lie deeper than `most`; each is looked at once a level, however often it is referred to."""
    level = [value]
    for _ in range(most):
        below = [item for item in chain.from_iterable(map(_items, level)) if type(item) in _CONTAINERS]
        level = list(dict(zip(map(id, below), below, strict=True)).values())
        if not level:
            return False
    return True


_CONTAINERS = frozenset({dict, list, tuple, set, frozenset})


def _items(container: Any) -> Any:
    if type(container) is dict:
        return chain(container, container.values())
    return container if type(container) in _CONTAINERS else ()
