"""A snapshot of PyTorch's allocator read into tables."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.errors import InputError
from traceanalyzer.files import safe_pickle
from traceanalyzer.files.bounds import TOO_LARGE, memory_for
from traceanalyzer.model.schema import printable

# The different stacks of a snapshot, numbered.


Stack = tuple[tuple[str, int, str], ...]
"""Frames of a call, innermost first: file, line, function."""

_FRAME = itemgetter("filename", "line", "name")


class Stacks:
    """Numbers different stacks, in order."""

    def __init__(self) -> None:
        self.numbers: dict[Stack, int] = {}

    def number(self, frames: Any) -> int:
        """The stack's number.

        Raises:
            TypeError: it is no list of frames.
        """
        stack = tuple(map(_FRAME, frames)) if frames else ()
        known = self.numbers.get(stack)
        if known is None:  # checked once a stack, and not once an event
            for file, line, name in stack:
                if not (isinstance(file, str) and isinstance(line, int) and isinstance(name, str)):
                    raise TypeError("a frame is no file, line and function")
            known = self.numbers.setdefault(stack, len(self.numbers))
        return known


# What an allocator held when a snapshot was written: its segments and the blocks in them.


MOST_SIZE_BYTES = 1 << 50
"""Beyond all GPUs: what is larger is damage, and sums of it would not be exact."""


def sizes_of(given: Sequence[int] | np.ndarray | pd.Series) -> np.ndarray:
    """Sizes as integers.

    Raises:
        ValueError: one is negative, or more than any GPU has.
    """
    sizes = np.array(given, "int64")
    if (odd := sizes[(sizes < 0) | (sizes > MOST_SIZE_BYTES)]).size:
        raise ValueError(f"a size of {odd[0]}")
    return sizes


def state_of(segments: Sequence[Mapping[str, Any]], stacks: Stacks) -> dict[str, pd.DataFrame]:
    """Segments and blocks at the time of the snapshot."""
    is_private = [tuple(one.get("segment_pool_id", (0, 0))) != (0, 0) for one in segments]
    keeps_rest = [one.get("segment_type") == "large" and not one.get("is_expandable") for one in segments]
    blocks = pd.DataFrame(_blocks(segments, stacks), columns=[*_BLOCK_COLUMNS]).astype(_BLOCK_COLUMNS)
    return {
        "segments": pd.DataFrame(
            {
                "addr": np.array([segment["address"] for segment in segments], "int64"),
                "size_bytes": sizes_of([segment["total_size"] for segment in segments]),
                "is_private": np.array(is_private, "bool"),
                "keeps_rest": np.array(keeps_rest, "bool"),
            }
        ),
        "blocks": blocks.assign(**{name: sizes_of(blocks[name]) for name in ("size_bytes", "requested_bytes")}),
    }


_BLOCK_COLUMNS = {"segment": "int64", "addr": "int64", "size_bytes": "int64", "requested_bytes": "int64",
                  "state": "str", "stack": "int32"}  # fmt: skip


def _blocks(segments: Sequence[Mapping[str, Any]], stacks: Stacks) -> Iterator[tuple[Any, ...]]:
    """Blocks lie behind each other; versions before 2.1 print no addresses, and what was asked for in a history."""
    for number, segment in enumerate(segments):
        at = segment["address"]
        for block in segment["blocks"]:
            first = (block.get("history") or [{}])[0]
            requested = block.get("requested_size", first.get("real_size", block["size"]))
            stack = stacks.number(block.get("frames", first.get("frames")))
            yield number, block.get("address", at), block["size"], int(requested), block["state"], stack
            at += block["size"]


# A snapshot of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`), read into tables.


_RANK = re.compile(r"(?:(?<![a-z])(?:rank|worker)[_\-=\[]?|-TP-|^(?=\d+_step_\d))(\d{1,9})(?!\d)", re.IGNORECASE)
"""In a name: `rank3`, `worker_3`; SGLang's `-TP-3-memory`, torchtitan's `000003_step_10`."""
_NEEDED = frozenset({"action", "addr", "size", "time_us", "frames"})
ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
    "oom", "snapshot", "user_defined",
)  # fmt: skip
"""What a history may hold."""
_CODES = {name: code for code, name in enumerate(ACTIONS)}
MOST_TIME_US = 1 << 52
"""A hundred years from now: what is later is damage."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One process' allocator on one GPU.

    Attributes:
        path: the file.
        rank: by the file's name, `None` where it does not say.
        device: the GPU, as the process numbers it.
        history: one row for each event in order: `action`, `addr`, `size_bytes`, `time_ns` (since the epoch), `stack`
            (number in `stacks`).
        blocks: one row for each block: `segment` (row in `segments`), `addr`, `size_bytes`, `requested_bytes`, `state`,
            `stack`.
        segments: one row for each segment: `addr`, `size_bytes`, `is_private`, `keeps_rest` (what is left over
            of a free block and too small to be of use stays with the block cut from it).
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
        with safe_pickle.without_collection(), memory_for(path.stat().st_size), path.open("rb") as file:
            return _snapshot(path, safe_pickle.load(file, str(path), most_depth=None))
    except MemoryError as error:
        raise InputError(f"{path}: refused: {TOO_LARGE}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"[:120]
        raise InputError(f"{path}: not a snapshot as PyTorch writes it ({why})") from error


def _snapshot(path: Path, content: Any) -> Snapshot:
    if (
        not isinstance(content, dict)
        or "segments" not in content
        or not isinstance(content.get("device_traces", []), list)
    ):
        raise InputError(f"{path}: no memory snapshot: it has no segments")
    stacks, segments, traces = Stacks(), content["segments"], content.get("device_traces") or [[]]
    device = max(range(len(traces)), key=lambda number: len(traces[number]))
    history = _history(traces[device], stacks)
    if history.empty and segments:
        device = segments[0]["device"]
    settings = content.get("allocator_settings")
    return Snapshot(
        path=path,
        rank=rank_of(path),
        device=device,
        history=history,
        **state_of([one for one in segments if one.get("device", device) == device], stacks),
        annotations=_annotations(content.get("external_annotations") or (), device),
        stacks=tuple(
            tuple((printable(file), line, printable(name)) for file, line, name in stack) for stack in stacks.numbers
        ),
        settings=_settings(settings) if isinstance(settings, Mapping) else {},
        other_events={number: len(trace) for number, trace in enumerate(traces) if number != device and len(trace)},
    )


def _settings(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Whole numbers, flags and mappings as they are, anything else as text."""
    return {
        printable(str(name)): _settings(value)
        if isinstance(value, Mapping)
        else value
        if isinstance(value, int)
        else printable(str(value))
        for name, value in given.items()
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
            "time_ns": _times(column("time_us", "int64")),
            "stack": np.fromiter(map(stacks.number, map(itemgetter("frames"), events)), "int32", len(events)),
        }
    )


def _times(given: Sequence[int] | np.ndarray) -> np.ndarray:
    """Times in nanoseconds, of microseconds.

    Raises:
        ValueError: one is not of this age.
    """
    times = np.array(given, "int64")
    if (odd := times[np.abs(times) > MOST_TIME_US]).size:
        raise ValueError(f"a time of {odd[0]} µs")
    return times * 1000


def _completed(event: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(event.get("action"), str):
        raise ValueError("an event without an action")  # noqa: TRY004 - what is wrong is the file
    absent = {"addr": event.get("device_free", 0), "frames": None}  # without frames: recorded with context=None
    return dict.fromkeys(_NEEDED, 0) | absent | dict(event)


def _annotations(given: Sequence[Mapping[str, Any]], device: int) -> pd.DataFrame:
    own = [one for one in given if one.get("device", device) == device]
    return pd.DataFrame(
        {
            "name": pd.Series([printable(str(one.get("name", ""))) for one in own], dtype="str"),
            "stage": pd.Series([str(one.get("stage", "")) for one in own], dtype="str"),
            "time_ns": _times([int(one.get("time_us", 0)) for one in own]),
        }
    )
