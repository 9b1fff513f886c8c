"""A snapshot of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`), read into tables."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from traceanalyzer.errors import InputError
from traceanalyzer.files import safe_pickle
from traceanalyzer.model.schema import printable
from traceanalyzer.snapshots import pieces
from traceanalyzer.snapshots.segments import sizes_of, state_of
from traceanalyzer.snapshots.stacks import Stack, Stacks

_RANK = re.compile(r"(?<![a-z])(?:rank|worker)[_\-=]?(\d{1,9})(?!\d)", re.IGNORECASE)
_NEEDED = frozenset({"action", "addr", "size", "stream", "time_us", "frames"})
ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
    "oom", "snapshot", "user_defined",
)  # fmt: skip
"""What a history may hold."""
_CODES = {name: code for code, name in enumerate(ACTIONS)}
_LONGEST = 120
"""Characters of an error's own text that a message carries."""
MOST_TIME_US = 1 << 52
"""A hundred years from now: what is later is damage."""
LARGE_BYTES = 8 << 20
"""Files from this size on are read in pieces."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One process' allocator on one GPU.

    Attributes:
        path: the file.
        rank: by the file's name, `None` where it does not say.
        device: the GPU, as the process numbers it.
        history: one row for each event in order: `action`, `addr`, `size_bytes`, `stream`, `time_ns` (since the epoch),
            `stack` (number in `stacks`).
        blocks: one row for each block: `segment` (row in `segments`), `addr`, `size_bytes`, `requested_bytes`, `state`,
            `stack`.
        segments: one row for each segment: `addr`, `size_bytes`, `type`, `stream`, `is_expandable`, `is_private`.
        stacks: Python (and C++) frames, each different stack once.
        annotations: ranges that PyTorch marked: `name`, `stage`, `time_ns`.
        settings: the allocator's.
        other_events: events of other GPUs that the file has too, by GPU: they are not looked at.
    """

    path: Path
    rank: int | None
    device: int
    history: pd.DataFrame
    blocks: pd.DataFrame
    segments: pd.DataFrame
    stacks: tuple[Stack, ...]
    annotations: pd.DataFrame
    settings: Mapping[str, Any]
    other_events: Mapping[int, int] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What to call it."""
        return f"rank {self.rank}" if self.rank is not None else self.path.name


def rank_of(path: Path) -> int | None:
    """The rank that the name of the file, else of its folder, tells."""
    found = _RANK.search(path.name) or _RANK.search(path.parent.name)
    return int(found[1]) if found else None


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot, packed with gzip or not; nothing that the pickle names is imported or run.

    Raises:
        InputError: it cannot be read, or is no snapshot.
    """
    try:
        with safe_pickle.without_collection(), path.open("rb") as file, _plain(file) as content:
            size = content.seek(0, 2)
            content.seek(0)
            return _snapshot(path, content, size)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"[:_LONGEST]
        raise InputError(f"{path}: not a snapshot as PyTorch writes it ({why})") from error


def _plain(file: IO[bytes]) -> IO[bytes]:
    """The file, or a temporary one with its unpacked content."""
    source = safe_pickle.unpacked(file)
    if source is file:
        return file
    unpacked = tempfile.TemporaryFile()  # noqa: SIM115 - its caller closes it
    left = safe_pickle.MOST_BYTES
    while block := source.read(1 << 20):
        unpacked.write(block)
        left -= len(block)
        if left < 0:
            raise OSError(f"larger than {safe_pickle.MOST_BYTES >> 30} GiB when unpacked")
    return unpacked


def _snapshot(path: Path, content: IO[bytes], size: int) -> Snapshot:
    if size >= LARGE_BYTES:
        try:
            stacks = Stacks()
            return _made(path, _in_pieces(content, stacks, size), stacks)
        except (pieces.NotInPieces, TypeError):  # something refers to a list that was left out, or is malformed
            pass
    stacks = Stacks()
    return _made(path, _whole(path, content, stacks), stacks)


Parts = tuple[list[pd.DataFrame], dict[str, Any], int]
"""Tables of the history, all that is no history, and the GPU that it is of."""


def _made(path: Path, parts: Parts, stacks: Stacks) -> Snapshot:
    tables, rest, device = parts
    segments = rest["segments"]
    if not tables or not len(tables[0]):
        device = segments[0]["device"] if segments else 0
    return Snapshot(
        path=path,
        rank=rank_of(path),
        device=device,
        history=pd.concat(tables, ignore_index=True),
        **state_of([one for one in segments if one.get("device", device) == device], stacks),
        annotations=_annotations(rest.get("external_annotations") or (), device),
        stacks=tuple(
            tuple((printable(file), line, printable(name)) for file, line, name in stack) for stack in stacks.numbers
        ),
        settings=_settings(settings) if isinstance(settings := rest.get("allocator_settings"), Mapping) else {},
        other_events={
            number: len(trace)
            for number, trace in enumerate(rest.get("device_traces") or ())
            if number != device and len(trace)
        },
    )


def _settings(told: Mapping[Any, Any]) -> dict[str, Any]:
    """Whole numbers, flags and mappings as they are, anything else as text."""
    return {
        printable(str(name)): _settings(value)
        if isinstance(value, Mapping)
        else value
        if isinstance(value, int)
        else printable(str(value))
        for name, value in told.items()
    }


def _in_pieces(content: IO[bytes], stacks: Stacks, size: int) -> Parts:
    """A large file; raises `NotInPieces` where it is laid out so that it cannot be cut."""
    tables: list[pd.DataFrame] = []
    rest: dict[str, Any] = {}
    for events, told in pieces.events(content, size, stacks.stand_in):
        tables.append(_history(events, stacks))
        events.clear()
        rest |= told
    return tables, rest, int(rest["device"])


def _whole(path: Path, content: IO[bytes], stacks: Stacks) -> Parts:
    content.seek(0)
    told = safe_pickle.load(content, str(path), most_depth=None)
    if not isinstance(told, dict) or "segments" not in told or not isinstance(told.get("device_traces", []), list):
        raise InputError(f"{path}: no memory snapshot: it has no segments")
    traces = told.get("device_traces") or [[]]
    device = max(range(len(traces)), key=lambda number: len(traces[number]))
    return [_history(traces[device], stacks)], told, device


def _history(events: Sequence[Mapping[str, Any]], stacks: Stacks) -> pd.DataFrame:
    try:
        return _columns(events, stacks)
    except KeyError:  # an out-of-memory event tells what the GPU has left instead of an address
        return _columns([event if event.keys() >= _NEEDED else _completed(event) for event in events], stacks)


def _columns(events: Sequence[Mapping[str, Any]], stacks: Stacks) -> pd.DataFrame:
    def column(name: str, dtype: str) -> np.ndarray:
        return np.fromiter(map(itemgetter(name), events), dtype, len(events))

    codes = np.fromiter(map(_CODES.get, map(itemgetter("action"), events), repeat(-1)), "int8", len(events))
    return pd.DataFrame(
        {
            "action": pd.Categorical.from_codes(codes, ACTIONS),
            "addr": column("addr", "uint64").view("int64"),
            "size_bytes": sizes_of(column("size", "int64")),
            "stream": column("stream", "uint64").view("int64"),
            "time_ns": _times(column("time_us", "int64")),
            "stack": stacks.numbered(map(itemgetter("frames"), events)),
        }
    )


def _times(told: Sequence[int] | np.ndarray) -> np.ndarray:
    """Times in nanoseconds, of microseconds.

    Raises:
        ValueError: one is not of this age.
    """
    times = np.array(told, "int64")
    if (odd := times[np.abs(times) > MOST_TIME_US]).size:
        raise ValueError(f"a time of {odd[0]} µs")
    return times * 1000


def _completed(event: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(event.get("action"), str):
        raise ValueError("an event without an action")  # noqa: TRY004 - what is wrong is the file
    absent = {"addr": event.get("device_free", 0), "frames": None}  # without frames: recorded with context=None
    return dict.fromkeys(_NEEDED, 0) | absent | dict(event)


def _annotations(told: Sequence[Mapping[str, Any]], device: int) -> pd.DataFrame:
    own = [one for one in told if one.get("device", device) == device]
    return pd.DataFrame(
        {
            "name": pd.Series([printable(str(one.get("name", ""))) for one in own], dtype="str"),
            "stage": pd.Series([str(one.get("stage", "")) for one in own], dtype="str"),
            "time_ns": _times([int(one.get("time_us", 0)) for one in own]),
        }
    )
