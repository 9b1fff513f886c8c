"""Text of events to events, around what is damaged."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Union

import msgspec
import numpy as np

from traceanalyzer.decoding.columns import IGNORED, Args, Complete, ExactComplete, Instant, MemoryArgs, Sample
from traceanalyzer.decoding.stream import NEXT_OBJECT, cut_near, end_of_object

# Text of events → events: at full speed where all is well, and around whatever is not.


# A ValueError is bad UTF-8, or an integer of thousands of digits.
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)

_EXACT_BELOW_US = 2.0**43
"""Below it the float nearest to a time in µs is less than half a nanosecond away from it; whole µs are exact to 2⁵³."""

_LIST_OF_EVENTS = b'"traceEvents"'

_ARGS = re.compile(rb'"args"\s*:\s*(?=\{)')


@dataclass(slots=True)
class EventDecoder:
    """Decodes chunks of events; remembers whether this file's times need more than a float, and what it lost.

    Attributes:
        skipped: events that could not be decoded, so far.
        read: those that could.
        followed: traces that follow the first one in the same file, each with a list of events of its own.
        needs_exact: whether this file's times need more than a float; `None` until a chunk has events that tell.
    """

    read: int = 0
    skipped: int = 0
    followed: int = 0
    needs_exact: bool | None = None

    def decode(self, chunk: bytes) -> list[Any]:
        """Events of a chunk (text of whole events without brackets)."""
        skipped, followed = self.skipped, self.followed
        events = self._decoded(chunk)
        self.read += len(events)
        if self.needs_exact is None:
            self.needs_exact = _is_beyond_float(events)
            if self.needs_exact:
                self.skipped, self.followed = skipped, followed
                return self._decoded(chunk)
        return events

    def merge(self, later: "EventDecoder") -> None:
        """Count what was decoded of the events that follow."""
        self.read += later.read
        self.skipped += later.skipped
        self.followed += later.followed

    def _decoded(self, text: bytes) -> list[Any]:
        """All events; text that does not decode is halved until only what is bad is left."""
        try:
            whole = b"".join((b"[", text, b"]"))  # `+` would copy twice
            events: list[Any] = _decoder(is_exact=bool(self.needs_exact), strict=True).decode(whole)
        except _UNREADABLE:
            cut = cut_near(text, len(text) // 2)
            if cut is None:
                return list(self._repaired(text))
            return self._decoded(text[: cut[0]]) + self._decoded(text[cut[1] :])
        return events

    def _repaired(self, text: bytes) -> Iterator[Any]:
        """What can be understood of text with one bad event, or with several that run into each other."""
        decoder = _decoder(is_exact=bool(self.needs_exact), strict=False)
        self.followed += text.count(_LIST_OF_EVENTS)
        end = 0
        for start, event_text in _objects(text):
            # The list ended, and another began: a second list, or a second file behind the first.
            self.skipped += b"]" in text[end:start]
            end = start + len(event_text)
            event = _lenient(event_text, decoder)
            if event is None:
                self.skipped += 1
            else:
                yield event


@cache
def _decoder(*, is_exact: bool, strict: bool) -> msgspec.json.Decoder[Any]:
    event: Any = Union[(ExactComplete if is_exact else Complete, Instant, Sample, *IGNORED)]
    return msgspec.json.Decoder(list[event], strict=strict)


def _is_beyond_float(events: list[Any]) -> bool | None:
    """Times of one file are of one magnitude: the first chunk with complete events tells."""
    times = np.array([event.ts for event in events if type(event) is Complete])
    return bool(((np.abs(times) >= _EXACT_BELOW_US) & (times != np.trunc(times))).any()) if len(times) else None


def _objects(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Beginnings and texts of the text's objects; one that is not closed ends where the next in an array begins."""
    position = 0
    while (start := text.find(b"{", position)) >= 0:
        position = end_of_object(text, start)
        if not position:
            following = NEXT_OBJECT.search(text, start + 1)
            position = following.end() if following else len(text)
        yield start, text[start:position]


def _lenient(text: bytes, decoder: msgspec.json.Decoder[Any]) -> Any | None:
    """One event without what cannot be understood of it; `None` when its time or phase is beyond help.

    Numbers as text count, NaN and Infinity are absent, odd arguments are left out.
    """
    try:
        return decoder.decode(b"[" + text + b"]")[0]
    except _UNREADABLE:
        pass
    try:
        plain = json.loads(text.decode(errors="replace"), strict=False, parse_constant=_absent)
    except (ValueError, RecursionError):
        shorter = _without_args(text)
        return None if shorter is None else _lenient(shorter, decoder)
    known = {key: value for key, value in plain.items() if value is not None}
    if isinstance(known.get("args"), dict) and known.get("ph") != "C":
        known["args"] = _fitting(known["args"], MemoryArgs if known.get("ph") == "i" else Args)
    elif "args" in known and not isinstance(known["args"], dict):
        del known["args"]
    try:
        return decoder.decode(_text_of([known]))[0]
    except _UNREADABLE:
        return None


def _absent(_constant: str) -> None:
    """NaN and infinities are not quantities."""


def _fitting(args: dict[str, Any], type_: type[msgspec.Struct]) -> dict[str, Any]:
    """The arguments that are of the type that they should be."""
    return {key: value for key, value in args.items() if value is not None and _fits({key: value}, type_)}


def _fits(args: dict[str, Any], type_: type[msgspec.Struct]) -> bool:
    try:
        msgspec.json.decode(_text_of(args), type=type_, strict=False)
    except _UNREADABLE:
        return False
    return True


def _text_of(plain: Any) -> bytes:
    return json.dumps(plain, ensure_ascii=False).encode(errors="replace")


def _without_args(text: bytes) -> bytes | None:
    """The event's text without its arguments; `None` when they are not closed, or there are none."""
    args = _ARGS.search(text)
    end = end_of_object(text, args.end()) if args else 0
    return text[: args.start()] + b'"args":null' + text[end:] if args and end else None


# Whose recording a file is: one process's, as profilers write it, or those of several, merged into one file.


_EVERY = 16
"""Of each chunk's events of a category as many are looked at, and the last: recordings hold thousands."""

_HOST = ("cpu_op", "operator", "cuda_runtime", "cuda_driver", "runtime")


Origin = tuple[str | int, int | str]
"""A category of the host's calls and the process that called, or a GPU and the number that its operations have.

Categories are separate: within a container the operators' number of one process may be another than its calls'.
"""


def origins_of_calls(category: str, events: list[Any]) -> set[Origin]:
    """Of the host's events of one category; of others than operators and calls none."""
    return {(category, event.pid) for event in _some(events)} if category in _HOST else set()


def origins_of_operations(events: list[Any]) -> set[Origin]:
    """Of GPU operations."""
    return {(event.args.device, event.pid) for event in _some(events) if event.args and event.args.device is not None}


def are_of_several(origins: set[Origin]) -> bool:
    """Whether a file with these origins holds the recordings of several processes."""
    return len({place for place, _ in origins}) < len(origins)


def _some(events: list[Any]) -> list[Any]:
    """Events to look at of those of a chunk, which are one recording's, or several recordings' in turns."""
    return [*events[::_EVERY], *events[-1:]]


# Devices whose events are not read: by which categories a capture of them is known, and what it is called.


API_CALLS = re.compile(r"^(\w+)_(?:runtime|driver)$")
"""Categories of the calls of other devices: `xpu_runtime`, `mtia_runtime`, `privateuse1_runtime`, `npu_runtime`."""

FOREIGN = {
    "hpu_op": "a capture of HPU devices",
    "mtia_ccp_events": "a capture of MTIA devices",
    "mtia_workloadd": "a capture of MTIA devices",
    "mtia_insight": "a capture of MTIA devices",
    "xpu_scope_profiler": "a capture of XPU devices",
    "cuda_profiler_range": "a capture of CUPTI's range profiler, which counts but does not time kernels",
}
"""Categories of device events whose meaning is not Kineto's usual one: what such a capture is, by category."""

DEVICES = {"privateuse1": "PrivateUse1 devices, such as NPUs"}
"""What devices are called whose categories begin with something else; others are called by that, in capitals."""

OUT_OF_TREE = "privateuse1"
"""Begin of the categories of devices that PyTorch itself does not know, such as NPUs."""
