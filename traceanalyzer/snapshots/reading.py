"""A snapshot of PyTorch's allocator read into tables."""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from traceanalyzer.errors import InputError
from traceanalyzer.files import archives, safe_pickle
from traceanalyzer.model.schema import printable

# Lists of frames that a pickle repeats byte for byte: unpickled once, and a number from then on.
#
# Events of the same line have equal lists, each written anew: nine tenths of a large snapshot. Such a list holds
# numbers, texts and references to earlier objects only, so that equal bytes mean equal frames anywhere in the file.


LOST: Final = "\0"
"""Stands for what is in a list that was left out: a file that refers to it is read whole."""

_REFERENCE = rb"h.|j.{4}"
_TEXT = rb"\x8c.[ -~]*+\x94"
_REPEATS_FRAME = rb"\}\x94\((?:" + _REFERENCE + rb"|K.|M..|J.{4}|" + _TEXT + rb"){6}u"
_LIST = re.compile(rb"\]\x94\((?:" + _REPEATS_FRAME + rb"|" + _REFERENCE + rb")++e", re.DOTALL)
_OPCODES = re.compile(rb"[](}]\x94?|[ue]|" + _REFERENCE + rb"|K.|M..|J.{4}|" + _TEXT, re.DOTALL)
_NUMBERED = b"]}\x8c"
_KEY = b"\x8c\rdevice_traces\x94"
_BEGIN, _END = b"]\x94(", b"eu"
"""Start of a list; end of a list, and of the event that it is the last field of."""
_FRAME, _FRAME_BYTES = 0x95, 9
"""The opcode that begins a frame of a pickle, and its bytes with the frame's length."""


def without_repeats(content: bytes) -> bytes:
    """The pickle with `(number, list)` for a list that is new, and its number for one that it repeats.

    As many objects are numbered in it as before, so that references to later ones find them. Any other content than a
    framed pickle of protocol 4 or newer comes back as it is. `with_repeats` undoes it in what is read of it.
    """
    plain = _without_frames(content)
    if plain is None:
        return content
    known: dict[bytes, bytes] = {}
    parts: list[bytes] = []
    done, at = 0, plain.find(_KEY)  # blocks before it share texts with events
    while at >= 0 and (start := plain.find(_BEGIN, at)) >= 0:
        at = plain.find(_END, start) + 1
        short = known.get(plain[start:at])
        if short is None:  # new, or a number inside looks like its end
            found = _LIST.match(plain, start)
            if found is None:  # a number looks like the start of one
                at = start + 1
                continue
            at = found.end()
            short = known.get(found[0])
            if short is None:
                short, known[found[0]] = _numbered(found[0], len(known))
        parts += (plain[done:start], short)
        done = at
    body = b"".join((*parts, plain[done:]))
    return b"\x80\x04" + struct.pack("<BQ", _FRAME, len(body)) + body


def _without_frames(content: bytes) -> bytes | None:
    """All opcodes, without those that say how they were buffered; `None` where frames do not follow each other."""
    at, parts = 2, []
    while at < len(content):
        if content[:1] != b"\x80" or content[at] != _FRAME or at + _FRAME_BYTES > len(content):
            return None
        end = at + _FRAME_BYTES + struct.unpack_from("<Q", content, at + 1)[0]
        parts.append(content[at + _FRAME_BYTES : end])
        at = end
    return b"".join(parts)


def _numbered(content: bytes, number: int) -> tuple[bytes, bytes]:
    """A list with its number, and what stands for it from then on."""
    inside = sum(opcode[0] in _NUMBERED for opcode in _OPCODES.findall(content)) - 1
    lost = b"X\x01\x00\x00\x00" + LOST.encode() + b"\x94" * inside + b"0"
    pushed = b"J" + struct.pack("<i", number)
    return pushed + content + b"\x86", pushed + b"\x94" + (lost if inside else b"")


def with_repeats(told: Any) -> Any:
    """A snapshot with its lists of frames in the places of what `without_repeats` put there.

    Raises:
        KeyError: it names a list that is not in it.
        TypeError: it is no snapshot.
    """
    if not isinstance(told, dict):
        return told
    blocks = (segment["blocks"] for segment in told["segments"])
    holders = list(chain.from_iterable((*blocks, *(told.get("device_traces") or ()))))
    lists: dict[int, Any] = dict(frames for one in holders if type(frames := one.get("frames")) is tuple)
    for one in holders:
        frames = one.get("frames")
        if type(frames) in (int, tuple):
            one["frames"] = lists[frames if type(frames) is int else frames[0]]
    return told


# The different stacks of a snapshot, numbered.


Stack = tuple[tuple[str, int, str], ...]
"""Frames of a call, innermost first: file, line, function."""

_STACKS_FRAME = itemgetter("filename", "line", "name")


class Stacks:
    """Numbers different stacks, in order."""

    def __init__(self) -> None:
        self.numbers: dict[Stack, int] = {}
        self._of_lists: dict[int, int] = {}

    def number(self, frames: Any) -> int:
        """The stack's number; the list of its frames has to live on.

        Raises:
            TypeError: it is no list of frames.
        """
        known = self._of_lists.get(id(frames))
        if known is None:  # looked at once a list, and not once an event
            stack = tuple(map(_STACKS_FRAME, frames or ()))
            for file, line, name in stack:
                if (
                    not (isinstance(file, str) and isinstance(line, int) and isinstance(name, str))
                    or LOST in file + name
                ):
                    raise TypeError("a frame is no file, line and function")
            known = self._of_lists[id(frames)] = self.numbers.setdefault(stack, len(self.numbers))
        return known


# What an allocator held when a snapshot was written: its segments and the blocks in them.


MOST_SIZE_BYTES = 1 << 50
"""Beyond all GPUs: what is larger is damage, and sums of it would not be exact."""


def sizes_of(told: Sequence[int] | np.ndarray) -> np.ndarray:
    """Sizes as integers.

    Raises:
        ValueError: one is negative, or more than any GPU has.
    """
    sizes = np.array(told, "int64")
    if (odd := sizes[(sizes < 0) | (sizes > MOST_SIZE_BYTES)]).size:
        raise ValueError(f"a size of {odd[0]}")
    return sizes


def state_of(segments: Sequence[Mapping[str, Any]], stacks: Stacks) -> dict[str, pd.DataFrame]:
    """Segments and blocks at the time of the snapshot."""
    found = []
    for number, segment in enumerate(segments):
        at = segment["address"]
        for block in segment["blocks"]:  # one behind the other: versions before 2.1 do not print their addresses
            told = {"address": at, **next(iter(block.get("history") or ()), {}), **block}
            found.append(
                (
                    number,
                    told["address"],
                    told["size"],
                    told.get("requested_size", told.get("real_size", told["size"])),
                    told["state"],
                    stacks.number(told.get("frames")),
                )
            )
            at += block["size"]
    blocks = pd.DataFrame(found, columns=["segment", "addr", "size_bytes", "requested_bytes", "state", "stack"])
    table = pd.DataFrame(
        {
            "addr": [segment["address"] for segment in segments],
            "size_bytes": sizes_of([segment["total_size"] for segment in segments]),
            "type": [segment.get("segment_type", "") for segment in segments],
            "stream": [segment.get("stream", 0) for segment in segments],
            "is_expandable": [bool(segment.get("is_expandable")) for segment in segments],
            # of a pool of its own, as CUDA graphs have: others are not served from it
            "is_private": [tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0) for segment in segments],
        }
    )
    sizes = {name: sizes_of(blocks[name].to_numpy()) for name in ("size_bytes", "requested_bytes")}
    types = {"segment": "int64", "addr": "int64", "state": "str", "stack": "int32"}
    return {
        "segments": table.astype(
            {"addr": "int64", "type": "str", "stream": "int64", "is_expandable": "bool", "is_private": "bool"}
        ),
        "blocks": blocks.assign(**sizes).astype(types),
    }


# A snapshot of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`), read into tables.


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
        with safe_pickle.without_collection():
            try:
                return _snapshot(
                    path, with_repeats(safe_pickle.loads(without_repeats(_content(path)), str(path), None))
                )
            except (KeyError, TypeError):  # something refers to a list that was left out, or is malformed
                return _snapshot(path, safe_pickle.loads(_content(path), str(path), None))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"[:_LONGEST]
        raise InputError(f"{path}: not a snapshot as PyTorch writes it ({why})") from error


def _content(path: Path) -> bytes:
    most = min(archives.most_bytes(path.stat().st_size), safe_pickle.MOST_BYTES)
    with path.open("rb") as file, safe_pickle.unpacked(file) as source:
        content = source.read(most + 1)
    if len(content) > most:
        raise OSError(f"larger than {most >> 20} MiB when unpacked")
    return content


def _snapshot(path: Path, told: Any) -> Snapshot:
    if not isinstance(told, dict) or "segments" not in told or not isinstance(told.get("device_traces", []), list):
        raise InputError(f"{path}: no memory snapshot: it has no segments")
    segments, traces = told["segments"], told.get("device_traces") or [[]]
    device = longest = max(range(len(traces)), key=lambda number: len(traces[number]))
    if not traces[longest] and segments:
        device = segments[0]["device"]
    stacks = Stacks()
    return Snapshot(
        path=path,
        rank=rank_of(path),
        device=device,
        history=_history(traces[longest], stacks),
        **state_of([one for one in segments if one.get("device", device) == device], stacks),
        annotations=_annotations(told.get("external_annotations") or (), device),
        stacks=tuple(
            tuple((printable(file), line, printable(name)) for file, line, name in stack) for stack in stacks.numbers
        ),
        settings=_settings(settings) if isinstance(settings := told.get("allocator_settings"), Mapping) else {},
        other_events={number: len(trace) for number, trace in enumerate(traces) if number != device and len(trace)},
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
            "stack": np.fromiter((stacks.number(event["frames"]) for event in events), "int32", len(events)),
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
