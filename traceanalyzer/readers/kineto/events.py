"""Typed decoding of Kineto events: only the fields that are used, and damaged events told apart from whole ones."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Union

import msgspec

from traceanalyzer.readers.kineto.stream import end_of_object

_NOT_RECORDED = msgspec.Raw()


class Args(msgspec.Struct, gc=False):
    """`args` of a complete event."""

    correlation: int = -1
    external_id: int = msgspec.field(default=-1, name="External id")
    device: int | None = None
    stream: int | None = None
    size_bytes: int | None = msgspec.field(default=None, name="bytes")
    grid: list[int] | None = None
    block: list[int] | None = None
    graph_node: int | None = msgspec.field(default=None, name="graph node id")
    in_device: int | None = msgspec.field(default=None, name="inDevice")
    from_device: int | None = msgspec.field(default=None, name="fromDevice")
    to_device: int | None = msgspec.field(default=None, name="toDevice")
    op_sequence: int | None = msgspec.field(default=None, name="Sequence number")
    forward_thread: int | None = msgspec.field(default=None, name="Fwd thread id")
    shapes: msgspec.Raw = msgspec.field(default=_NOT_RECORDED, name="Input Dims")
    dtypes: msgspec.Raw = msgspec.field(default=_NOT_RECORDED, name="Input type")
    arguments: msgspec.Raw = msgspec.field(default=_NOT_RECORDED, name="Concrete Inputs")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    in_elements: int | None = msgspec.field(default=None, name="In msg nelems")
    out_elements: int | None = msgspec.field(default=None, name="Out msg nelems")
    group_size: int | None = msgspec.field(default=None, name="Group size")
    dtype: str | None = None
    in_split: str | None = msgspec.field(default=None, name="In split size")
    out_split: str | None = msgspec.field(default=None, name="Out split size")
    group: str | None = msgspec.field(default=None, name="Process Group Name")
    group_description: str | None = msgspec.field(default=None, name="Process Group Description")
    group_ranks: str | None = msgspec.field(default=None, name="Process Group Ranks")
    sequence: int | None = msgspec.field(default=None, name="Seq")
    rank: int | None = msgspec.field(default=None, name="Rank")
    source_rank: int | None = msgspec.field(default=None, name="Src Rank")
    target_rank: int | None = msgspec.field(default=None, name="Dst Rank")


class Complete(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event; times in µs."""

    ts: float
    name: str = ""
    cat: str = ""
    dur: float = 0.0
    pid: int | str = -1
    tid: int | str = -1
    args: Args | None = None


class ExactComplete(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event whose `ts` is too large for a float to be exact to the nanosecond."""

    ts: Decimal
    name: str = ""
    cat: str = ""
    dur: float = 0.0
    pid: int | str = -1
    tid: int | str = -1
    args: Args | None = None


class MemoryArgs(msgspec.Struct, gc=False):
    """`args` of a `[memory]` event."""

    allocated: int | None = msgspec.field(default=None, name="Total Allocated")
    reserved: int | None = msgspec.field(default=None, name="Total Reserved")
    device: int | None = msgspec.field(default=None, name="Device Id")
    device_type: int | None = msgspec.field(default=None, name="Device Type")


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An instant event."""

    ts: float = 0.0
    name: str = ""
    args: MemoryArgs | None = None


def _ignored(phase: str) -> type[msgspec.Struct]:
    return msgspec.defstruct(f"Ignored{ord(phase)}", [], gc=False, tag_field="ph", tag=phase)


# Flows, counters, metadata and whatever else the Chrome format knows: decoding them costs next to nothing.
_IGNORED = tuple(_ignored(phase) for phase in "sftMCBEbenNODPpRcvVISTF(),")


@dataclass(slots=True)
class EventDecoder:
    """Decodes chunks of events; remembers whether this file's times need more than a float, and what it lost.

    Attributes:
        skipped: events that could not be decoded, so far.
    """

    skipped: int = 0
    _needs_exact: bool | None = None

    def decode(self, chunk: bytes) -> list[Any]:
        """Events of a chunk (text of whole events without brackets)."""
        try:
            events: list[Any] = self._decoder().decode(b"[" + chunk + b"]")
        except (msgspec.DecodeError, UnicodeDecodeError):
            events = list(self._one_by_one(chunk))
        if self._needs_exact is None:  # times of one file are of one magnitude: its first chunk tells
            self._needs_exact = _is_beyond_float(events)
            if self._needs_exact:
                self.skipped = 0
                return self.decode(chunk)
        return events

    def _decoder(self, *, strict: bool = True) -> msgspec.json.Decoder[Any]:
        complete = ExactComplete if self._needs_exact else Complete
        event: Any = Union[(complete, Instant, *_IGNORED)]
        return msgspec.json.Decoder(list[event], strict=strict)

    def _one_by_one(self, chunk: bytes) -> Iterator[Any]:
        """Every event that can be understood, however odd its neighbours are."""
        decoder = self._decoder(strict=False)
        for text in _objects(chunk):
            try:
                yield from decoder.decode(b"[" + text + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError):
                event = self._lenient(text, decoder)
                if event is None:
                    self.skipped += 1
                else:
                    yield event

    def _lenient(self, text: bytes, decoder: msgspec.json.Decoder[Any]) -> Any | None:
        """One event with NaN, Infinity, control characters or invalid UTF-8 in it; `None` when it is beyond help."""
        try:
            plain = json.loads(text.decode("utf-8", errors="replace"), strict=False, parse_constant=_absent)
            args = plain.get("args")
            if isinstance(args, dict):
                plain["args"] = {key: value for key, value in args.items() if value is not None}
            return decoder.decode(json.dumps([plain]).encode())[0]
        except (ValueError, AttributeError, RecursionError, msgspec.DecodeError):
            return None


def _absent(_constant: str) -> None:
    """NaN and infinities are not quantities."""


def _objects(chunk: bytes) -> Iterator[bytes]:
    """Texts of the chunk's objects; one that is not closed ends where the next event begins."""
    position = 0
    while (start := chunk.find(b"{", position)) >= 0:
        following = _EVENT_START.search(chunk, start + 1)
        limit = following.start() if following else len(chunk)
        position = end_of_object(chunk, start, limit) or limit
        yield chunk[start:position]


# Not found inside an event: objects in its arguments have other first keys.
_EVENT_START = re.compile(rb'\{\s*"(?:ph|cat)"\s*:')

_EXACT_BELOW_US = 2.0**43
"""Below it the float nearest to a time in µs is less than half a nanosecond away from it; whole µs are exact to 2⁵³."""


def _is_beyond_float(events: list[Any]) -> bool:
    return any(
        type(event) is Complete and abs(event.ts) >= _EXACT_BELOW_US and event.ts != int(event.ts) for event in events
    )
