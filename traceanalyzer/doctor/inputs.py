"""Which inputs of the doctor a folder or a file holds, by what stands at the beginning of its files."""

from pathlib import Path

from msgspec import Struct

from traceanalyzer.discovery.candidates import all_below
from traceanalyzer.doctor.examination import is_log
from traceanalyzer.doctor.ras import is_ras
from traceanalyzer.doctor.topology import is_topology
from traceanalyzer.errors import InputError

_HEAD_BYTES = 1 << 18

_OF_RECORDER = (b"pg_status", b"profiling_name")
"""Keys of a dump, whose texts pickles and JSON hold alike; traces of the profiler have neither (but `pg_config`)."""

_OF_INSPECTOR = (b"coll_perf",)

_OF_XPU_TIMER = (b"XPU_TIMER_",)


class Inputs(Struct, frozen=True):
    """As `examine` takes them; what is not there is `None`, or nothing."""

    topo: Path | None = None
    nccl_logs: tuple[Path, ...] = ()
    flight_recorder: Path | None = None
    inspector: Path | None = None
    xpu_timer: Path | None = None

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
    heads = {path: _head(path) for path in _files(place, follows_links)}
    topologies = [path for path, head in heads.items() if is_topology(_text(head))]
    logs = [path for path, head in heads.items() if is_log(head) or is_ras(_text(head))]

    def holds(marks: tuple[bytes, ...]) -> Path | None:
        return place if any(mark in head for head in heads.values() for mark in marks) else None

    found = Inputs(
        next(iter(topologies), None), tuple(logs), holds(_OF_RECORDER), holds(_OF_INSPECTOR), holds(_OF_XPU_TIMER)
    )
    if found == Inputs():
        raise InputError(
            f"{place}: no topology, log of NCCL, dump of PyTorch's flight recorder, record of NCCL Inspector or "
            "metrics of xpu_timer in it; docs/doctor.md says how to get them"
        )
    return found


def _files(place: Path, follows_links: bool) -> list[Path]:
    return list(all_below(place, follows_links=follows_links)) if place.is_dir() else [place]


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def _text(head: bytes) -> str:
    return head.decode("utf-8", errors="replace")
