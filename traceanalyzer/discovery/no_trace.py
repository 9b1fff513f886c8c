"""Why a file or a folder gives no trace, and what else it is."""

from pathlib import Path

from traceanalyzer.discovery.candidates import all_below, is_no_file, packed_by
from traceanalyzer.discovery.memory_snapshots import is_snapshot
from traceanalyzer.errors import InputError
from traceanalyzer.files.other_tools import FLIGHT_RECORDER, begun_as, named_by
from traceanalyzer.files.remote import named, url_of
from traceanalyzer.model import Skipped

EXPECTED = (
    ".json files of the PyTorch profiler, plain or packed (.gz, .zst, .xz, .bz2); of Nsight Systems .nsys-rep files or "
    "their exports, .sqlite files or folders of Parquet; .json or .db files of rocprofv3; .xplane.pb files of JAX; "
    ".zip or .tar archives of these"
)
"""What a trace may be, for people."""

_SNAPSHOTS = (
    "memory snapshots of PyTorch, and no traces; analyze-traces memory FOLDER, or its report, says what they tell"
)

_RECORD = (
    "record them with torch.profiler or nsys (README: How to record traces), or see a report without any by "
    "analyze-traces demo."
)

_MOST_LOOKED_AT = 200
"""Files without a trace's name that are looked into: there is one for each rank."""

_BEGIN_BYTES = 1 << 16
"""Of each of them: a program may print much before NCCL does."""


def why_none(path: Path) -> str:
    """Why no reader takes the file."""
    if not path.exists():
        return "a link to a file that is not there"
    if is_no_file(path):
        return "a pipe, a socket or a device, and no file"
    if packed := packed_by(path):
        return f"packed by {packed}, which is not unpacked here; unpack it, or pack it with gzip or zstd"
    if other := named_by(path.name) or _what_it_is(path):
        return other
    return (
        "not an SQLite database; export the report again"
        if path.suffix == ".sqlite"
        else f"no trace; expected {EXPECTED}"
    )


def nothing_in(folder: Path, skipped: list[Skipped]) -> str:
    """Why nothing below the folder is a trace: its first file's reason, or what it holds instead."""
    if not skipped and (other := _known(folder)):
        return other
    if not skipped:
        return f"{named(folder)}: no traces here; {_RECORD} Expected are {EXPECTED}"
    first, *others = skipped
    are = "file that is no trace" if len(others) == 1 else "files that are no traces"
    more = f" (and {len(others)} more {are})" if others else ""
    return f"{first.what}: {first.why}{more}"


def _known(folder: Path) -> str | None:
    """The first file below that is known by its name or by what it begins with, and what it is; dumps before others."""
    if url_of(folder) is not None or not folder.is_dir():
        return None
    try:
        some = all_below(folder)[:_MOST_LOOKED_AT]
    except (InputError, OSError):
        return None
    told = [(path, what) for path in some if (what := named_by(path.name) or _what_it_is(path))]
    if FLIGHT_RECORDER in (what for _, what in told):  # their folder is asked for, and logs may lie beside them
        return f"{named(folder)}: {FLIGHT_RECORDER}"
    if not told and any(map(is_snapshot, some)):
        return f"{named(folder)}: {_SNAPSHOTS}"
    return f"{named(told[0][0])}: {told[0][1]}" if told else None


def _what_it_is(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return begun_as(file.read(_BEGIN_BYTES))
    except OSError:
        return None
