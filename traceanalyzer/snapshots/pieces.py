"""Large snapshots, unpickled piece by piece: the events of a memory history never lie in memory all at once.

A pickle of protocol 4 or newer numbers every object that it may refer to again. A piece of it can be read alone when
the reader counts as many objects as came before, and knows those that the piece refers to: None stands for the rest.
"""

import io
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import IO, Any

import numpy as np

from traceanalyzer.errors import InputError
from traceanalyzer.files.safe_pickle import PlainUnpickler, memory_for, without_complaints
from traceanalyzer.snapshots.repeats import Repeats

PIECE_BYTES = 32 << 20
"""Of the pickle that are read at once."""

_KEY = b"\x8c\rdevice_traces\x94"
_ENDS = (b"e\x8c\x12allocator_settings\x94", b"e\x8c\x14external_annotations\x94", b"e\x8c\x08segments\x94")
"""End of the history, and a key: one of these follows it, if any does."""
_CUT = b"ue(}\x94("
"""End of an event, of a batch of events; start of a batch, of an event. No text holds it: it is not UTF-8."""
_OTHER_LIST = b"ue]\x94"
_FRAME = 0x95
_CACHED = 1 << 19
"""Bytes that are looked through at once: what a processor keeps near."""
_FEW = 100_000
"""Objects that are sooner all named to a piece than looked for in it."""
_FRAME_BYTES = 9
"""Of the opcode that begins a frame."""


class NotInPieces(Exception):  # noqa: N818 - no error: it is read as a whole then
    """The pickle is laid out in another way."""


def events(
    file: IO[bytes], size: int, stand_in: Callable[[Any], int | str]
) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Events of the history in order, some hundred thousand at a time; with the last ones all that is no event.

    Args:
        file: the pickle, unpacked; it is sought in.
        size: its length.
        stand_in: gives what stands for a container (a stack, a frame of one) that a later piece refers to.

    Raises:
        NotInPieces: before the first piece is given, when the pickle cannot be cut.
        InputError: a piece holds more than plain data, or is damaged.
    """
    frames = _frames(file, size)
    cuts, referred = _scan(file, size)
    if not cuts:
        raise NotInPieces
    reader = _Pieces(file, frames, referred, stand_in)
    head = reader.load(0, cuts[0], b"", b"eu.")
    traces = head.get("device_traces") if isinstance(head, dict) else None
    if not isinstance(traces, list) or not traces or not isinstance(traces[-1], list):
        raise NotInPieces
    device = len(traces) - 1
    first, traces[device] = traces[device], []
    yield first, {}
    del first
    for start, end in pairwise(cuts):
        yield reader.load(start, end, b"]", b"."), {}
    tail = reader.load(cuts[-1], size, b"}(K\x00](]", b"")
    rest = tail.pop(0)
    yield rest[0], {**head, **tail, "device_traces": [*traces, *rest[1:]], "device": device}


class _Pieces:
    """What earlier pieces left for later ones."""

    def __init__(
        self, file: IO[bytes], frames: np.ndarray, referred: np.ndarray, stand_in: Callable[[Any], int | str]
    ) -> None:  # fmt: skip
        self._file, self._frames, self._referred, self._stand_in = file, frames, referred, stand_in
        self._repeats = Repeats()
        self._count = 0
        self._last: tuple[PlainUnpickler, _Fed] | None = None
        self._known: dict[int, bytes] = {}  # opcodes that name it to a piece

    def load(self, start: int, end: int, before: bytes, after: bytes) -> Any:
        """The plain data of a piece, made whole by what stands before and after it.

        Who calls has looked at the events of the piece before: its lists have numbers by now.
        """
        try:
            if self._last is not None:
                self._remember(*self._last)
            piece = self._read(start, end)
            if self._count:  # blocks of the first piece are looked at after the events that would refer to their lists
                piece = self._repeats.shortened(piece)
            source = _Fed(_framed(self._memo(piece), before, piece, after))
            del piece
            unpickler = PlainUnpickler(source)
            with memory_for(end - start), without_complaints():
                found = unpickler.load()
        except (NotInPieces, TypeError):
            raise
        except Exception as error:
            raise InputError(f"a piece of the snapshot cannot be read ({type(error).__name__}: {error})") from error
        self._last = unpickler, source
        return found

    def _read(self, start: int, end: int) -> bytes:
        """The piece's bytes, without the opcodes that say how the whole was buffered."""
        self._file.seek(start)
        piece = memoryview(self._file.read(end - start))
        inside = self._frames[np.searchsorted(self._frames, start) : np.searchsorted(self._frames, end)] - start
        begins, ends = [0, *(inside + _FRAME_BYTES).tolist()], [*inside.tolist(), len(piece)]
        return b"".join(piece[begin:end] for begin, end in zip(begins, ends, strict=True))

    def _memo(self, piece: bytes) -> bytes:
        """Opcodes that count the objects before the piece, and name those that it refers to."""
        if not self._count:
            return b""
        wanted: Iterable[int] = self._known
        if len(self._known) > _FEW:
            found = _references(np.frombuffer(piece, "uint8"), self._count)
            wanted = _distinct(np.concatenate([np.arange(256), found])).tolist()
        told = [self._known[index] for index in wanted if index in self._known]
        return b"".join((b"N", b"\x94" * self._count, b"0", *told))

    def _remember(self, unpickler: PlainUnpickler, source: "_Fed") -> None:
        """Counts the objects up to here, and keeps what later pieces may refer to."""
        count = _objects(unpickler, source, self._count)
        wanted = self._referred[(self._referred >= self._count) & (self._referred < count)]
        source.feed(_framed(b"](", *(b"j" + struct.pack("<I", index) for index in wanted.tolist()), b"e."))
        for index, value in zip(wanted.tolist(), unpickler.load(), strict=True):
            if value is not None:
                self._known[index] = _put(index, value if isinstance(value, str) else self._stand_in(value))
        self._count, self._last = count, None


class _Fed(io.RawIOBase):
    """A file whose content can be changed between two loads."""

    def __init__(self, content: bytes) -> None:
        self._content: io.BytesIO = io.BytesIO(content)

    def feed(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self._content.read(size)

    def readline(self, size: int | None = -1) -> bytes:
        return self._content.readline(size)

    def readinto(self, buffer: Any) -> int:
        return self._content.readinto(buffer)


def _framed(*parts: bytes) -> bytes:
    """One frame: the unpickler asks for its content once instead of an opcode at a time."""
    return b"".join((b"\x80\x04\x95", struct.pack("<Q", sum(map(len, parts))), *parts))


def _put(index: int, value: int | str) -> bytes:
    """Opcodes that store a value under an object's number."""
    pushed = b"J" + struct.pack("<i", value) if isinstance(value, int) else _text(value)
    return pushed + b"r" + struct.pack("<I", index) + b"0"


def _text(value: str) -> bytes:
    content = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(content)) + content


def _objects(unpickler: PlainUnpickler, source: _Fed, least: int) -> int:
    """How many objects the unpickler has numbered: the highest number that it knows, found by asking."""
    low, high = least, least + 1
    while _is_known(unpickler, source, high):
        low, high = high, least + 2 * (high - least)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _is_known(unpickler, source, middle) else (low, middle)
    return low


def _is_known(unpickler: PlainUnpickler, source: _Fed, index: int) -> bool:
    source.feed(b"j" + struct.pack("<I", index) + b".")
    try:
        unpickler.load()
    except Exception:  # noqa: BLE001 - which error tells of an unknown number differs between versions of Python
        return False
    return True


def _frames(file: IO[bytes], size: int) -> np.ndarray:
    """Places of the opcodes that begin a frame; frames follow each other to the pickle's end."""
    file.seek(0)
    head = file.read(2)
    if head[:1] != b"\x80" or head[1] < 4:
        raise NotInPieces
    found, at = [], 2
    while at < size:
        file.seek(at)
        opcode = file.read(9)
        if len(opcode) < 9 or opcode[0] != _FRAME:
            raise NotInPieces
        found.append(at)
        at += 9 + struct.unpack("<Q", opcode[1:])[0]
    return np.array(found, "int64")


def _scan(file: IO[bytes], size: int) -> tuple[list[int], np.ndarray]:
    """Places to cut at, a piece apart, and the numbers of objects that anything may refer to."""
    cuts: list[int] = []
    referred = [np.arange(256, dtype="int64")]
    is_started, is_over, overlap = False, False, 64
    for start in range(0, size, PIECE_BYTES):
        file.seek(start)
        block = file.read(PIECE_BYTES + overlap)
        referred.append(_references(np.frombuffer(block, "uint8"), size))
        at = 0
        if not is_started:
            at = block.find(_KEY)
            is_started = at >= 0
        if not is_started or is_over:
            continue
        until = _end(block, at)
        is_over = until < len(block)
        cut = block.find(_CUT, at, until)
        if cut >= 0 and (not cuts or start + cut + 2 - cuts[-1] > PIECE_BYTES // 2):
            cuts.append(start + cut + 2)
        if cuts and not is_over and block.find(_OTHER_LIST, max(cut, 0), until) >= 0:
            raise NotInPieces
    return cuts, _distinct(np.concatenate(referred))


def _end(block: bytes, at: int) -> int:
    """Place at which the history ends, or the block's length."""
    return min((place for end in _ENDS if (place := block.find(end, at)) >= 0), default=len(block))


def _references(content: np.ndarray, below: int) -> np.ndarray:
    """Object numbers below a bound that LONG_BINGET opcodes in the content ask for, and what looks like such."""
    found = [np.array([], "int64")]
    for start in range(0, len(content), _CACHED):
        block = content[start : start + _CACHED + 4]
        at = np.flatnonzero(block[:-4] == ord("j")) + 1
        at = at[block[at + 3] <= min(below >> 24, 255)]
        numbers = np.zeros(len(at), "int64")
        for byte in range(4):
            numbers |= block[at + byte].astype("int64") << (8 * byte)
        found.append(_distinct(numbers[numbers < below]))
    return _distinct(np.concatenate(found))


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """The different numbers in order; sorting as 32 bits is several times as fast as numpy's table of them."""
    ordered = np.sort(numbers.astype("uint32" if len(numbers) == 0 or numbers.max() < 1 << 32 else "int64"))
    is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    distinct: np.ndarray = ordered[is_first].astype("int64")
    return distinct
