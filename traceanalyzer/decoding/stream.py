"""The text of a Kineto file, cut into chunks of whole events, and the events in it, around what is damaged."""

import codecs
import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Union

import msgspec
import numpy as np

from traceanalyzer.decoding.columns import IGNORED, Args, Complete, ExactComplete, Instant, MemoryArgs, Sample
from traceanalyzer.errors import NotATraceError
from traceanalyzer.files import archives, bounds
from traceanalyzer.files.other_tools import written_by
from traceanalyzer.meaning.rows import LATEST_NS

# Bytes of a plain or packed file; a damaged end reads as the end, and all before the damage is kept.


_PACKED_BYTES = 256 << 10

_GZIP = 16 + zlib.MAX_WBITS
"""`wbits` of gzip with its header."""

USUAL_RATIO = 10
"""Traces are text that repeats: packed they take a tenth of it, and less."""


@dataclass(slots=True)
class PackedFile:
    """An open file, read without a buffer of Python's: one that fails gives nothing of what lies before the failure.

    Attributes:
        is_damaged: its packed data are wrong, or the disk fails.
    """

    file: BinaryIO
    is_damaged: bool = False
    _path: Path = Path()
    _stream: BinaryIO | None = None
    _is_over: bool = False
    _given_bytes: int = 0
    _saved: bytes = b""

    @classmethod
    def open(cls, path: Path) -> "PackedFile":
        """Open the file; its first bytes show how it is packed.

        Raises:
            NotATraceError: it cannot be read.
        """
        try:
            file: Any = path.open("rb", buffering=0)
            first = file.read(6)
            file.seek(0)
            return cls(file, _path=path, _stream=archives.unpacked(file, first))
        except OSError as error:
            raise NotATraceError(f"{path}: cannot be read ({error.strerror or error})") from error

    def read(self, size_bytes: int) -> bytes:
        """Up to `size_bytes`; fewer only at the end of what can be read.

        Raises:
            NotATraceError: a small file unpacks without end.
        """
        parts: list[bytes] = []
        missing = size_bytes
        while missing and (part := self._read_some(missing)):
            parts.append(part)
            missing -= len(part)
            self._given_bytes += len(part)
        if self._given_bytes > bounds.FREE_BYTES and self._given_bytes > bounds.most_bytes(self.file.tell()):
            raise NotATraceError(
                f"{self._path}: unpacks to over {bounds.MOST_TIMES} times its size; if that is meant, unpack it first"
            )
        return b"".join(parts)

    @property
    def expected_bytes(self) -> int:
        """About how many bytes there are to read."""
        try:
            size = self._path.stat().st_size
        except OSError:
            return 0
        return size if self.is_plain else size * USUAL_RATIO

    @property
    def is_plain(self) -> bool:
        """Whether its bytes are the text itself: any part of it can be read alone."""
        return self._stream is None

    def close(self) -> None:
        """Close it; reading is over."""
        for each in (self._stream, self.file):
            if each is not None:
                each.close()

    def _read_some(self, size_bytes: int) -> bytes:
        if self._is_over:
            part, self._saved = self._saved[:size_bytes], self._saved[size_bytes:]
            return part
        try:
            if self._stream is None:
                return self.file.read(size_bytes)
            return self._stream.read(min(size_bytes, _PACKED_BYTES))  # small: a piece with damage in it is lost
        except archives.ERRORS as error:  # of what is packed, the disk or the network
            is_gzip = isinstance(self._stream, gzip.GzipFile)
            self.is_damaged, self._is_over = not (is_gzip and isinstance(error, EOFError)), True
            self._saved = b"".join(_before_the_damage(self.file, self._given_bytes)) if is_gzip else b""
            return self._read_some(size_bytes)


def _before_the_damage(file: BinaryIO, skipped_bytes: int) -> Iterator[bytes]:
    """What follows the first `skipped_bytes` of text, up to the damage.

    A call that meets damage gives nothing, so that the last stretch is unpacked one packed byte a call.
    """
    file.seek(0)
    unpacker, packed = zlib.decompressobj(_GZIP), b""
    try:
        while skipped_bytes and (packed := packed or file.read(_PACKED_BYTES)):
            skipped_bytes -= len(unpacker.decompress(packed, skipped_bytes))
            packed = unpacker.unconsumed_tail
            if unpacker.eof:
                packed, unpacker = unpacker.unused_data, zlib.decompressobj(_GZIP)
        while packed := packed or file.read(_PACKED_BYTES):
            for place in range(len(packed)):
                yield unpacker.decompress(packed[place : place + 1])
                if unpacker.eof:
                    unpacker = zlib.decompressobj(_GZIP)
            packed = b""
    except (zlib.error, OSError):
        return


# Where one event of a trace's text ends and the next begins, without parsing it.


# A whole string (so that braces in names do not count), or a brace.
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)

NEXT_OBJECT = re.compile(rb',\s*(?=\{\s*")')

_REACH = 1 << 12
"""Of a text's end, where its last event mostly begins; all that lies in it is cut to find the last cut."""

_PHASE = re.compile(rb'"ph"\s*:\s*"')


def end_of_object(text: bytes, start: int, limit: int | None = None) -> int:
    """Position after the `}` that closes the first object at or after `start`; 0 when it is not closed."""
    limit = len(text) if limit is None else limit
    position = text.find(b"{", start, limit)
    depth = 0
    while position >= 0 and (match := _STRUCTURE.search(text, position, limit)):
        position = match.end()
        depth += {b"{": 1, b"}": -1}.get(match[0], 0)
        if depth == 0:
            return position
    return 0


def last_cut(text: bytes, limit: int | None = None) -> tuple[int, int] | None:
    """Where the text can be cut last: end of the events before, start of the last event; `None` for nowhere."""
    limit, reach = len(text) if limit is None else limit, _REACH
    while True:
        begin = max(0, limit - reach)
        cuts = list(_cuts(text, begin, limit))
        if cuts or not begin:
            return cuts[-1] if cuts else None
        reach *= 8


def cut_near(text: bytes, position: int) -> tuple[int, int] | None:
    """The first cut from `position` on, else the last one before it."""
    return next(_cuts(text, position, len(text)), None) or last_cut(text, position)


def _cuts(text: bytes, begin: int, limit: int) -> Iterator[tuple[int, int]]:
    """Between two events: an event has a phase of its own, which an object in an event's arguments has not."""
    for phase in _PHASE.finditer(text, begin, limit):
        for match in NEXT_OBJECT.finditer(text, begin, phase.start() + 1):  # the phase may be the first key
            if not end_of_object(text, match.end(), phase.start()):
                yield match.span()
                break
        begin = phase.end()


# A Kineto file's text: its head, then its events in chunks of whole events, then its tail.
#
# The file is never in memory whole. Events are not parsed here; a chunk ends where one event ends and the next begins.


CHUNK_BYTES = 512 << 10
"""Small enough that a chunk's text and events stay in the processor's cache."""

HEAD_BYTES = bounds.BLOCK_BYTES
"""Read at once to find the events; where they begin later, as much again, up to sixteen times."""

EVENT_BYTES_MOST = 64 << 20
"""No event is so long: what goes on for longer without one's end is damage, or meant to fill the memory."""

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE_ARRAY = re.compile(rb"\s*\[(?=\s*\{[^\0]*?\"ph\"|\s*\])")
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*(\d+(?:\.\d+)?)')
_WINDOW_END = re.compile(rb'"Record Window End"[^{}]*"ts"\s*:\s*(\d+(?:\.\d+)?)')

# What is no object may end the array (a null), and is no event.
_END = re.compile(rb"[^{}\]]*\]")

_COMPLETE = re.compile(rb'"ph"\s*:\s*"X"')

_UTF_8_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(slots=True)
class EventText:
    """An open trace; `head` is known at once, `tail` and `is_truncated` when `chunks` has been used up.

    Attributes:
        head: text before the events, without the opening bracket of their array.
        tail: text after the events' closing bracket.
        is_truncated: the file ended before the events did.
        beyond: events after the end of their array, which are not read.
        oversized: stretches without an event's end that were let go, for no event is so long.
    """

    path: Path
    file: Any  # a `PackedFile`, or what makes UTF-8 of one
    head: bytes = b""
    tail: bytes = b""
    is_truncated: bool = False
    beyond: int = 0
    oversized: int = 0
    _rest: bytes = b""

    @classmethod
    def open(cls, path: Path) -> "EventText":
        """Open the file and find where its events begin.

        Raises:
            NotATraceError: it cannot be read, or has no array of events.
        """
        packed = PackedFile.open(path)
        text = cls(path, packed)
        start = text.file.read(HEAD_BYTES).removeprefix(_UTF_8_MARK)
        if encoding := _wide_encoding(start):
            packed.close()
            again: Any = PackedFile.open(path)
            text.file = codecs.EncodedFile(again, "utf-8", encoding, errors="replace")
            start = text.file.read(HEAD_BYTES).removeprefix(_UTF_8_MARK)
        match = _EVENTS_KEY.search(start) or _BARE_ARRAY.match(start)
        is_json = start.lstrip()[:1] in (b"{", b"[")
        while match is None and is_json and len(start) < 16 * HEAD_BYTES and (more := text.file.read(HEAD_BYTES)):
            start += more
            match = _EVENTS_KEY.search(start)
        if match is None:
            text.file.close()
            raise NotATraceError(f"{path}: {_why_no_events(start, packed)}")
        text.head, text._rest = start[: match.end() - 1], start[match.end() :]
        return text

    @property
    def begin(self) -> bytes:
        """The text that was read to find the events, as long as `chunks` was not begun."""
        return self.head + self._rest

    def first_time_us(self) -> float | None:
        """`ts` of the first event that has one; `None` without events near the beginning."""
        match = _FIRST_TIME.search(self._rest)
        self.file.close()
        return _time_us(match)

    def window_end_us(self) -> float | None:
        """`ts` of the profiler's mark near the file's end that its window ended; `None` without it."""
        end = self._rest
        while block := self.file.read(CHUNK_BYTES):
            end = (end + block)[-CHUNK_BYTES:]
        self.file.close()
        match = _WINDOW_END.search(end)
        return _time_us(match)

    def chunks(self, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Texts of whole events separated by commas, without brackets."""
        parts = [self._rest]  # in which no event begins but the first
        try:
            while block := self.file.read(size_bytes):
                cut = last_cut(block)
                if cut is None and _PHASE.search(b"".join(parts[-1:])[-_REACH:] + block):
                    block, parts = b"".join((*parts, block)), []  # an event larger than the block, or between two
                    cut = last_cut(block)
                if cut:
                    chunk = b"".join((*parts, memoryview(block)[: cut[0]]))  # copied once
                    parts = [block[cut[1] :]]
                    yield chunk
                elif len(block) + sum(map(len, parts)) > EVENT_BYTES_MOST:
                    self.oversized += 1
                    parts = []
                else:
                    parts.append(block)
        finally:
            self.file.close()
        self._rest = b"".join(parts)
        yield from self._last_chunk()

    def _last_chunk(self) -> Iterator[bytes]:
        """What is left holds the last events, and the array's end unless the file was cut."""
        cut = last_cut(self._rest)
        end = cut[0] if cut else 0
        while (closing := _END.match(self._rest, end)) is None:
            following = end_of_object(self._rest, end)
            if not following:
                self.is_truncated = True
                yield self._rest[:end]
                return
            end = following
        self.tail = self._rest[closing.end() :]
        self.beyond = len(_COMPLETE.findall(self.tail))
        yield self._rest[:end]


def _wide_encoding(start: bytes) -> str | None:
    """UTF-16, where a file begins with its mark or as JSON does in it."""
    if start.startswith(_UTF_16_MARKS):
        return "utf-16"
    first = start[:2]
    return {b"{\0": "utf-16-le", b"[\0": "utf-16-le", b"\0{": "utf-16-be", b"\0[": "utf-16-be"}.get(first)


def _why_no_events(start: bytes, file: PackedFile) -> str:
    if not start and file.is_plain and file.is_damaged:
        return "it cannot be read: the disk or the network fails"
    if not start:
        return (
            "the file is empty: the job has not written it yet, or ended before it had; record it again"
            if file.is_plain
            else "nothing can be unpacked from it: it is empty, cut off or damaged"
        )
    if b"\0" in start[:4]:
        return "not text: it begins with bytes that are none"
    return written_by(start) or "not a PyTorch-profiler trace: it has no traceEvents"


def _time_us(match: re.Match[bytes] | None) -> float | None:
    """The time that was found, if it can be one."""
    time = float(match[1]) if match else math.inf
    return time if time <= LATEST_NS / 1000 else None


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
