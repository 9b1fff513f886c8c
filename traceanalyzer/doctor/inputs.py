"""Which inputs of the doctor a folder or a file holds, and their texts."""

import errno
from pathlib import Path

from msgspec import Struct

from traceanalyzer.discovery import LINK_OUT, all_below, leads_out
from traceanalyzer.doctor.monitors import is_monitors_file, is_ras
from traceanalyzer.doctor.nccl_log import holds_log
from traceanalyzer.doctor.topology import is_inventory, is_topology
from traceanalyzer.errors import InputError
from traceanalyzer.files import whole

_HEAD_BYTES = 1 << 18

_OF_RECORDER = (b"pg_status", b"profiling_name")
"""Keys of a dump, whose texts pickles and JSON hold alike; traces of the profiler have neither (but `pg_config`)."""


class Inputs(Struct, frozen=True):
    """As `examine` takes them; what is not there is `None`, or nothing."""

    topo: Path | None = None
    nccl_logs: tuple[Path, ...] = ()
    flight_recorder: Path | None = None
    monitors: tuple[Path, ...] = ()

    def or_those_of(self, place: Path, *, follows_links: bool = False) -> "Inputs":
        """These, and for each that is not among them what `inputs_of` finds at the place."""
        found = inputs_of(place, follows_links=follows_links)
        return Inputs(*(getattr(self, name) or getattr(found, name) for name in self.__struct_fields__))


def inputs_of(place: Path, *, follows_links: bool = False) -> Inputs:
    """The inputs in a folder and below it, or the one that a file is.

    Raises:
        InputError: there is no such place, or nothing of use in it.
    """
    if not place.exists():
        raise InputError(f"{place}: no such file or folder")
    topologies, logs, records = list[Path](), list[Path](), list[Path]()
    has_dumps = False
    for path in all_below(place, follows_links=follows_links) if place.is_dir() else [place]:
        ends = _ends(path)
        has_dumps |= any(mark in ends for mark in _OF_RECORDER)
        if is_topology(_text(ends)):
            topologies.append(path)
        if is_monitors_file(ends):
            records.append(path)
        elif is_log(ends):
            logs.append(path)
    found = Inputs(next(iter(topologies), None), tuple(logs), place if has_dumps else None, tuple(records))
    if found == Inputs():
        raise InputError(
            f"{place}: no topology, log of NCCL, dump of PyTorch's flight recorder or record of a monitor (NCCL "
            "Inspector, NCCL's profiler plugin, xpu_timer) in it; docs/hangs.md says how to get them"
        )
    return found


def _ends(path: Path) -> bytes:
    """The beginning and the end of a file: what goes wrong is printed last."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            file.seek(max(file.seek(0, 2) - _HEAD_BYTES, len(head)))
            return head + file.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def _text(head: bytes) -> str:
    return head.decode("utf-8", errors="replace")


_SUFFIXES = frozenset({".txt", ".log", ".out", ".err"})

MOST_BYTES = 1 << 30
"""Larger texts are read only when they are named."""


def texts_beside(folder: Path) -> tuple[Path | None, list[Path]]:
    """A topology and NCCL logs among the texts of a folder, without those below it, by what stands in them."""
    texts = {
        path: ends for path in sorted(folder.iterdir())
        if path.suffix.lower() in _SUFFIXES and path.is_file() and not leads_out(path, folder)
        and path.stat().st_size <= MOST_BYTES and b"\0" not in (ends := _ends(path))
    }  # fmt: skip
    logs = [path for path, ends in texts.items() if b"NCCL INFO" in ends or b"NCCL WARN" in ends]
    return next((path for path in texts if path not in logs and is_topology(_text(texts[path]))), None), logs


MOST_TEXT_BYTES = 4 << 30


def read_text(path: Path) -> str:
    """A text file; bytes that are no UTF-8 become marks.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    try:
        content = whole.content(path, MOST_TEXT_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise InputError(f"{path}: {error.strerror}; give the part around the start and the end") from error
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if b"\0" in content[:4096]:
        raise InputError(f"{path}: not a text file")
    return content.decode("utf-8", errors="replace")


def left_out(place: Path) -> list[str]:
    """Which links of a folder lead out of it: what they name is not read."""
    if not place.is_dir():
        return []
    links = [path for path in all_below(place, follows_links=True) if leads_out(path, place)]
    return [f"{path}: skipped, {LINK_OUT}" for path in links]


def log_files(place: Path, *, follows_links: bool = False) -> list[Path]:
    """A file, or the files of a folder that are NCCL logs or what `ncclras` printed.

    Raises:
        InputError: the folder has none.
    """
    if not place.is_dir():
        return [place]
    found = [path for path in all_below(place, follows_links=follows_links) if is_log(_ends(path))]
    if not found:
        why = "" if follows_links else "; ".join(["", *left_out(place)])
        raise InputError(f"{place}: no log in it{why}")
    return found


def is_log(text: bytes) -> bool:
    """Whether a file is a log of NCCL, PyTorch or a launcher, or of nvidia-smi, by its ends."""
    if b"\0" in text:
        return False
    words = _text(text)
    return holds_log(words) or is_ras(words) or is_inventory(words)
