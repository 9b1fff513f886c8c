"""A snapshot of PyTorch's allocator read into tables."""

import io
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import numpy as np
import pandas as pd

from traceanalyzer.errors import InputError
from traceanalyzer.files import safe_pickle
from traceanalyzer.files.bounds import TOO_LARGE, Bounded, memory_for
from traceanalyzer.files.safe_pickle import PlainUnpickler, without_complaints
from traceanalyzer.model.schema import printable

# Lists of frames that a pickled history repeats byte for byte: unpickled once, and named from then on.
#
# Events of the same line have equal lists, each written anew: nine tenths of a large snapshot. Such a
# list holds numbers,
# texts and references to earlier objects only, so that equal bytes mean equal frames anywhere in the file.


LOST: Final = "?"
"""Stands for what is in a list that was left out: who refers to it has to be read in another way."""

MOST_LISTS = 200_000
"""Different lists that are kept: files that hold more do not repeat theirs."""

_REFERENCE = rb"h.|j.{4}"
_TEXT = rb"\x8c.[ -~]*+\x94"
_REPEATS_FRAME = rb"\}\x94\((?:" + _REFERENCE + rb"|K.|M..|J.{4}|" + _TEXT + rb"){6}u"
_LIST = re.compile(rb"\]\x94\((?:" + _REPEATS_FRAME + rb"|" + _REFERENCE + rb")++e", re.DOTALL)
_OPCODES = re.compile(rb"[](}]\x94?|[ue]|" + _REFERENCE + rb"|K.|M..|J.{4}|" + _TEXT, re.DOTALL)
_NUMBERED = b"]}\x8c"
_BEGIN, _END = b"]\x94(", b"eu"
"""Start of a list; end of a list, and of the event that it is the last field of."""


class Repeats:
    """The different lists of a file, numbered as they come."""

    def __init__(self) -> None:
        self._short: dict[bytes, bytes] = {}
        """What stands for a list, by its bytes."""

    def shortened(self, piece: bytes) -> bytes:
        """The piece with `(number, list)` in place of a list that is new, and a `negative` of one that is known.

        As many objects are numbered in it as before, so that what refers to later ones finds them.
        """
        parts: list[bytes] = []
        add, find, known = parts.append, piece.find, self._short.get
        done = at = 0
        while (start := find(_BEGIN, at)) >= 0:
            at = find(_END, start) + 1
            short = known(piece[start:at])
            if short is None:
                short, at = self._looked_at(piece, start)
            if short:
                add(piece[done:start])
                add(short)
                done = at
        add(piece[done:])
        return b"".join(parts)

    def _looked_at(self, piece: bytes, start: int) -> tuple[bytes, int]:
        """What stands for the list that starts there, or nothing, and where to go on."""
        found = _LIST.match(piece, start)
        if found is None:  # a number looks like the start of one
            return b"", start + 1
        content = found[0]
        if content in self._short:  # a number inside looks like its end
            return self._short[content], found.end()
        if len(self._short) >= MOST_LISTS:
            return b"", found.end()
        number = len(self._short)
        inside = sum(opcode[0] in _NUMBERED for opcode in _OPCODES.findall(content)) - 1
        lost = b"X\x01\x00\x00\x00" + LOST.encode() + b"\x94" * inside + b"0"
        self._short[content] = _pushed(negative(number)) + b"\x94" + (lost if inside else b"")
        return _pushed(number) + content + b"\x86", found.end()


Numbers = TypeVar("Numbers", int, np.ndarray)


def negative(number: Numbers) -> Numbers:
    """What stands for a list that is known, by its number, and the other way round: at most -2."""
    return -2 - number


def _pushed(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


# Large snapshots, unpickled piece by piece: the events of a memory history never lie in memory all at once.
#
# A pickle of protocol 4 or newer numbers every object that it may refer to again. A piece of it can be read alone when
# the reader counts as many objects as came before, and knows those that the piece refers to: None stands for the rest.


PIECE_BYTES = 32 << 20
"""Of the pickle that are read at once."""

_KEY = b"\x8c\rdevice_traces\x94"
_ENDS = (b"\x8c\x12allocator_settings\x94", b"\x8c\x14external_annotations\x94", b"\x8c\x08segments\x94")
"""Keys of which one follows the history, if any does."""
_CUT = b"ue(}\x94("
"""End of an event, of a batch of events; start of a batch, of an event. No text holds it: it is not UTF-8."""
_OTHER_LIST = b"ue]\x94"
_PIECES_FRAME = 0x95
_CACHED = 1 << 19
"""Bytes that are looked through at once: what a processor keeps near."""
_FEW = 100_000
"""Objects that are sooner all named to a piece than looked for in it."""
_FRAME_BYTES = 9
"""Of the opcode that begins a frame."""


class NotInPieces(Exception):  # noqa: N818 - no error: it is read as a whole then
    """The pickle is laid out in another way."""


def pieces_events(
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
    frames = _pieces_frames(file, size)
    cuts, referred, is_of_one_gpu = _scan(file, size)
    if not cuts:
        raise NotInPieces
    reader = _Pieces(file, frames, referred, stand_in)
    head = reader.load(0, cuts[0], b"", b"au." if is_of_one_gpu else b"eu.")
    traces = head.get("device_traces") if isinstance(head, dict) else None
    if not isinstance(traces, list) or not traces or not isinstance(traces[-1], list):
        raise NotInPieces
    device = len(traces) - 1
    first, traces[device] = traces[device], []
    yield first, {}
    del first
    for start, end in pairwise(cuts):
        yield reader.load(start, end, b"]", b"."), {}
    tail = reader.load(cuts[-1], size, b"}(K\x00]]" if is_of_one_gpu else b"}(K\x00](]", b"")
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
            with without_complaints():
                found = unpickler.load()
        except (NotInPieces, TypeError, MemoryError):
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


def _pieces_frames(file: IO[bytes], size: int) -> np.ndarray:
    """Places of the opcodes that begin a frame; frames follow each other to the pickle's end."""
    file.seek(0)
    head = file.read(2)
    if head[:1] != b"\x80" or head[1] < 4:
        raise NotInPieces
    found, at = [], 2
    while at < size:
        file.seek(at)
        opcode = file.read(9)
        if len(opcode) < 9 or opcode[0] != _PIECES_FRAME:
            raise NotInPieces
        found.append(at)
        at += 9 + struct.unpack("<Q", opcode[1:])[0]
    return np.array(found, "int64")


def _scan(file: IO[bytes], size: int) -> tuple[list[int], np.ndarray, bool]:
    """Places to cut at, a piece apart; the numbers of objects that anything may refer to; whether there is one list.

    A pickle appends a single object (the events of one GPU) to its list in another way than several.
    """
    cuts: list[int] = []
    referred = [np.arange(256, dtype="int64")]
    is_started, is_over, is_of_one_gpu, overlap = False, False, False, 64
    for start in range(0, size, PIECE_BYTES):
        file.seek(start)
        block = file.read(PIECE_BYTES + overlap)
        referred.append(_references(np.frombuffer(block, "uint8"), size))
        at = 0
        if not is_started:
            at = block.find(_KEY)
            is_started = at >= 0
            is_of_one_gpu = is_started and block[at + len(_KEY) :].startswith(b"]\x94]")
        if not is_started or is_over:
            continue
        until = _end(block, at)
        is_over = until < len(block)
        cut = block.find(_CUT, at, until)
        if cut >= 0 and (not cuts or start + cut + 2 - cuts[-1] > PIECE_BYTES // 2):
            cuts.append(start + cut + 2)
        if cuts and not is_over and block.find(_OTHER_LIST, max(cut, 0), until) >= 0:
            raise NotInPieces
    return cuts, _distinct(np.concatenate(referred)), is_of_one_gpu


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


# The different stacks of a snapshot, numbered.


Stack = tuple[tuple[str, int, str], ...]
"""Frames of a call, innermost first: file, line, function."""

NO_FRAMES = -1
"""Stands for what is no list of frames, and no frame."""

_STACKS_FRAME = itemgetter("filename", "line", "name")


class Stacks:
    """Numbers different stacks, in order."""

    def __init__(self) -> None:
        self.numbers: dict[Stack, int] = {}
        self._frames: list[tuple[str, int, str]] = []
        self._repeated = np.full(MOST_LISTS, NO_FRAMES, "int32")

    def numbered(self, many: Iterable[Any]) -> np.ndarray:
        """The stacks' numbers; errors as `number`."""
        told = list(many)
        for at, frames in enumerate(told):
            if type(frames) is not int:
                told[at] = self.number(frames)
        numbers = np.fromiter(told, "int32", len(told))
        is_repeated = numbers < NO_FRAMES
        numbers[is_repeated] = self._repeated[negative(numbers[is_repeated])]
        if ((numbers < 0) | (numbers >= len(self.numbers))).any():
            raise TypeError("no list of frames")
        return numbers

    def number(self, frames: Any) -> int:
        """The stack's number; a stand-in of an earlier piece is one already, and of lists `Repeats` tells.

        Raises:
            TypeError: it is nothing of these.
        """
        if type(frames) is tuple:
            repeated, content = frames
            number = self._repeated[repeated] = self.number(content)
            return number
        if type(frames) is int:
            return int(self.numbered([frames])[0])
        try:
            stack = tuple(map(_STACKS_FRAME, frames)) if frames else ()
        except TypeError:
            stack = tuple(self._frames[frame] if isinstance(frame, int) else _STACKS_FRAME(frame) for frame in frames)
        known = self.numbers.get(stack)
        if known is None:  # checked once a stack, and not once an event
            _check(stack)
            known = self.numbers.setdefault(stack, len(self.numbers))
        return known

    def stand_in(self, value: Any) -> int:
        """A number for a list of frames, or for a frame; what is neither is nothing that an event refers to."""
        if type(value) in (int, tuple):
            return self.number(value)
        if isinstance(value, list) and all(isinstance(frame, int) or _is_frame(frame) for frame in value):
            return self.number(value)
        if isinstance(value, list) and LOST in value:
            raise TypeError("a frame of a list that was left out")
        if _is_frame(value):
            self._frames.append(_STACKS_FRAME(value))
            return len(self._frames) - 1
        return NO_FRAMES


def _check(stack: Stack) -> None:
    """Raise `TypeError` unless files and functions are texts and lines numbers."""
    for file, line, name in stack:
        if not (isinstance(file, str) and isinstance(line, int) and isinstance(name, str)):
            raise TypeError("a frame is no file, line and function")


def _is_frame(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() >= {"filename", "line", "name"}


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
    blocks = [(number, block) for number, segment in enumerate(segments) for block in segment["blocks"]]
    starts = _addresses(segments)
    return {
        "segments": pd.DataFrame(
            {
                "addr": pd.Series([segment["address"] for segment in segments], dtype="int64"),
                "size_bytes": sizes_of([segment["total_size"] for segment in segments]),
                "type": pd.Series([segment.get("segment_type", "") for segment in segments], dtype="str"),
                "stream": pd.Series([segment.get("stream", 0) for segment in segments], dtype="int64"),
                "is_expandable": pd.Series([bool(segment.get("is_expandable")) for segment in segments], dtype="bool"),
                "is_private": pd.Series([_is_private(segment) for segment in segments], dtype="bool"),
            }
        ),
        "blocks": pd.DataFrame(
            {
                "segment": pd.Series([number for number, _ in blocks], dtype="int64"),
                "addr": pd.Series(starts, dtype="int64"),
                "size_bytes": sizes_of([block["size"] for _, block in blocks]),
                "requested_bytes": sizes_of([_requested(block) for _, block in blocks]),
                "state": pd.Series([block["state"] for _, block in blocks], dtype="str"),
                "stack": pd.Series([stacks.number(_segments_frames(block)) for _, block in blocks], dtype="int32"),
            }
        ),
    }


def _is_private(segment: Mapping[str, Any]) -> bool:
    """Whether it is of a pool of its own, as CUDA graphs have: others are not served from it."""
    return tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)


def _addresses(segments: Sequence[Mapping[str, Any]]) -> list[int]:
    """Blocks lie behind each other; versions before 2.1 do not print their addresses."""
    found = []
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            found.append(block.get("address", at))
            at += block["size"]
    return found


def _requested(block: Mapping[str, Any]) -> int:
    """Bytes that were asked for; the block's size where an older version does not tell."""
    history = block.get("history") or [{}]
    return int(block.get("requested_size", history[0].get("real_size", block["size"])))


def _segments_frames(block: Mapping[str, Any]) -> Any:
    history = block.get("history") or [{}]
    return block.get("frames", history[0].get("frames"))


# A snapshot of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`), read into tables.


_RANK = re.compile(r"(?:(?<![a-z])(?:rank|worker)[_\-=\[]?|-TP-|^(?=\d+_step_\d))(\d{1,9})(?!\d)", re.IGNORECASE)
"""In a name: `rank3`, `worker_3`; SGLang's `-TP-3-memory`, torchtitan's `000003_step_10`."""
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
        with (
            safe_pickle.without_collection(),
            memory_for(path.stat().st_size),
            path.open("rb") as file,
            _plain(file) as content,
        ):
            size = content.seek(0, 2)
            content.seek(0)
            return _snapshot(path, content, size)
    except MemoryError as error:
        raise InputError(f"{path}: refused: {TOO_LARGE}") from error
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
    shutil.copyfileobj(Bounded(source, os.fstat(file.fileno()).st_size), unpacked)
    return unpacked


def _snapshot(path: Path, content: IO[bytes], size: int) -> Snapshot:
    if size >= LARGE_BYTES:
        try:
            stacks = Stacks()
            return _made(path, _in_pieces(content, stacks, size), stacks)
        except (NotInPieces, TypeError):  # something refers to a list that was left out, or is malformed
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
    for events, told in pieces_events(content, size, stacks.stand_in):
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
