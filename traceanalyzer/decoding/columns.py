"""Fields of Kineto events, and decoded events as growing columns of integer nanoseconds."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from io import FileIO
from mmap import ACCESS_WRITE, mmap
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from traceanalyzer.files.bounds import BLOCK_BYTES, LARGE_BYTES, ROWS_AT_ONCE, append, mapped, spill_file
from traceanalyzer.meaning.rows import LATEST_NS, LONGEST_NS, NONE

# Decoded events → growing columns, one set a table: integer nanoseconds, names as codes.


ABSENT = np.iinfo(np.int64).min
"""Stands for an integer that is not there."""

SEPARATOR = b"\0"
"""Between texts that are kept as one; JSON text has none."""

_TIMES = ("start_ns", "end_ns", "time_ns")


class Coded(NamedTuple):
    """Texts of rows: each row's code, -1 where it has none, and the texts that codes stand for."""

    codes: np.ndarray
    texts: list[str]


class Growing:
    """Numbers of one type, the later ones behind the earlier: neither their pieces nor a copy lie beside them.

    Where they are many, all but the last ones lie in a file.
    """

    def __init__(self, dtype: type[np.generic]) -> None:
        self._dtype, self._held = dtype, bytearray()
        self._file: FileIO | None = None
        self._whole: np.ndarray | None = None

    def extend(self, numbers: np.ndarray) -> None:
        """Append numbers of this type."""
        self._held.extend(numbers.data)  # large ones grow in place: the system moves pages, and copies nothing
        if len(self._held) > (LARGE_BYTES if self._file is None else BLOCK_BYTES):
            self._lay()

    def array(self) -> np.ndarray:
        """All of them; there can be no more then."""
        if self._whole is None:
            if self._file is not None:
                self._lay()
            self._whole = np.frombuffer(self._held if self._file is None else _memory_of(self._file), self._dtype)
        return self._whole

    def _lay(self) -> None:
        """Move what is held to the file; where that finds no room for it, all back to memory."""
        self._file = self._file or spill_file(len(self._held))
        if self._file is None:
            return
        before = self._file.tell()
        try:
            append(self._file, self._held)
            self._held.clear()
        except OSError:
            with self._file as file:
                file.truncate(before)
                file.seek(0)
                self._held[:0] = file.readall()
            self._file = None


def _memory_of(file: FileIO) -> mmap:
    with file:
        return mapped(file, access=ACCESS_WRITE)


class _Codes(dict[str | bytes | None, int]):
    """Code of each text; one that is new is given the next code when it is asked for."""

    def __missing__(self, text: str | bytes | None) -> int:
        code = self[text] = len(self)
        return code


@dataclass(slots=True)
class Names:
    """Distinct texts in order of appearance, and each row's code."""

    codes: _Codes = field(default_factory=_Codes)
    rows: Growing = field(default_factory=partial(Growing, np.int32))

    def extend(self, texts: list[Any]) -> None:
        """Append rows."""
        self.rows.extend(np.fromiter(map(self.codes.__getitem__, texts), dtype=np.int32, count=len(texts)))

    def merge(self, later: "Names") -> None:
        """Append the rows of texts that were collected elsewhere: codes are given as if they came here one by one."""
        new_code = np.array([self.codes[text] for text in later.codes], dtype=np.int32)
        self.rows.extend(new_code[later.rows.array()])

    def column(self, part: int, plain: Callable[[str], str]) -> "Coded":
        """All rows, of joined texts the part at this position, made plain; `None` and "" are absent."""
        parts = [text.split(SEPARATOR)[part] if isinstance(text, bytes) else text or "" for text in self.codes]
        return self._coded([plain(own.decode(errors="replace") if isinstance(own, bytes) else own) for own in parts])

    def _coded(self, texts: list[str]) -> "Coded":
        """All rows, given the text of each code."""
        kept = [text for text in dict.fromkeys(texts) if text]
        new_code = {text: code for code, text in enumerate(kept)}
        # The type that pandas gives to codes of so many texts: it copies those of any other.
        dtype = np.min_scalar_type(-len(kept) - 2)
        lookup = np.array([new_code.get(text, -1) for text in texts] or [-1], dtype=dtype)
        rows, codes = self.rows.array(), Growing(lookup.dtype.type)
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            codes.extend(lookup[rows[begin : begin + ROWS_AT_ONCE]])
        return Coded(codes.array(), kept)


@dataclass(slots=True)
class Columns:
    """One table that grows by chunks of events."""

    _texts: dict[tuple[str, ...], tuple[Names, Callable[[str], str]]] = field(default_factory=dict)
    _numbers: dict[str, Growing] = field(default_factory=dict)
    rows: int = 0

    def times(self, events: list[Any]) -> None:
        """`start_ns` and `end_ns` of complete events."""
        starts = to_ns([event.ts for event in events])
        durations = to_ns([event.dur for event in events])
        self._grow("start_ns", starts)
        self._grow("end_ns", starts + durations)
        self.rows += len(events)

    def instants(self, events: list[Any]) -> None:
        """`time_ns` of instant events."""
        self._grow("time_ns", to_ns([event.ts for event in events]))
        self.rows += len(events)

    def texts(self, column: str, values: list[Any]) -> None:
        """A column of texts that repeat, as text or UTF-8; `None` and "" are absent."""
        self.joined_texts((column,), values)

    def joined_texts(self, columns: tuple[str, ...], values: list[Any], plain: Callable[[str], str] = str) -> None:
        """Several columns of JSON texts that repeat together, each row's joined by `SEPARATOR`.

        `plain` makes of each distinct text what the column shows.
        """
        self._texts.setdefault(columns, (Names(), plain))[0].extend(values)

    def integers(self, column: str, values: list[Any]) -> None:
        """A column of integers; `None` and `ABSENT` are NA."""
        try:
            numbers = np.fromiter(values, np.int64, len(values))
        except TypeError:
            if values.count(None) == len(values):
                numbers = np.full(len(values), ABSENT)
            else:
                numbers = np.array([ABSENT if value is None else value for value in values], dtype=np.int64)
        self._grow(column, numbers)

    def fields(self, items: list[Any], **names: str) -> None:
        """Columns of integers, each the field of that name of these items."""
        for column, name in names.items():
            self.integers(column, [*map(attrgetter(name), items)])

    def floats(self, column: str, values: list[Any]) -> None:
        """A column of numbers."""
        self._grow(column, np.array(values, dtype=np.float64))

    def _grow(self, column: str, numbers: np.ndarray) -> None:
        if column not in self._numbers:
            self._numbers[column] = Growing(numbers.dtype.type)
        self._numbers[column].extend(numbers)

    def merge(self, later: "Columns", rows_before: Mapping[str, int]) -> None:
        """Append the rows of a table that was collected elsewhere.

        `rows_before` says by how much its columns that hold rows of another table move; -1 means "none" and stays.
        """
        for names, (texts, plain) in later._texts.items():  # noqa: SLF001 - of its own class
            self._texts.setdefault(names, (Names(), plain))[0].merge(texts)
        for name, grown in later._numbers.items():  # noqa: SLF001 - of its own class
            numbers, moved = grown.array(), rows_before.get(name, 0)
            self._grow(name, np.where(numbers == NONE, NONE, numbers + moved) if moved else numbers)
        self.rows += later.rows

    def taken(self, base_ns: int) -> Iterator[tuple[str, "np.ndarray | Coded"]]:
        """Each column, with `base_ns` added to times; rows are handed over, so that none is in memory twice.

        `ABSENT` stands for integers that are not there.
        """
        for name in list(self._numbers):
            values = self._numbers.pop(name).array()
            if name in _TIMES:
                values += base_ns
            yield name, values
        for names in list(self._texts):
            texts, plain = self._texts.pop(names)
            for part, name in enumerate(names):
                yield name, texts.column(part, plain)


def to_ns(times_us: list[Any]) -> np.ndarray:
    """Microseconds (floats, or decimals where a float is too short) to int64 ns, rounded once.

    Whole microseconds and the rest go apart: 1000 · a large float would be rounded before it is an integer.
    """
    if times_us and type(times_us[0]) is Decimal:
        return np.array([int((time * 1000).to_integral_value()) for time in times_us], dtype=np.int64)
    times = np.fromiter(times_us, np.float64, len(times_us))
    whole = np.floor(times)
    return whole.astype(np.int64) * 1000 + np.rint((times - whole) * 1000.0).astype(np.int64)


# The fields of Kineto events that are used, with their types and ranges.


_TIME_US = LATEST_NS // 1000

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]

Time: TypeAlias = Annotated[float, msgspec.Meta(ge=-_TIME_US, le=_TIME_US)]

Duration: TypeAlias = Annotated[float, msgspec.Meta(ge=-_TIME_US, le=LONGEST_NS // 1000)]

_NOT_RECORDED = msgspec.Raw()


def _called(name: str, default: Any = None) -> Any:
    """A field under the profiler's own name."""
    return msgspec.field(default=default, name=name)


class Args(msgspec.Struct, gc=False):
    """`args` of a complete event, in the profiler's own order: a key out of order has to be searched for."""

    external_id: Int = _called("External id", -1)
    op_sequence: Int | None = _called("Sequence number", ABSENT)
    forward_thread: Int | None = _called("Fwd thread id", ABSENT)
    arguments: msgspec.Raw = _called("Concrete Inputs", _NOT_RECORDED)
    dtypes: msgspec.Raw = _called("Input type", _NOT_RECORDED)
    strides: msgspec.Raw = _called("Input Strides", _NOT_RECORDED)
    shapes: msgspec.Raw = _called("Input Dims", _NOT_RECORDED)
    kernel: str | None = None
    device: Int | None = None
    stream: Int | None = None
    correlation: Int = -1
    registers: msgspec.Raw = _called("registers per thread", _NOT_RECORDED)
    graph_node: Int | None = _called("graph node id")
    note: str | None = _called("name")
    module: str | None = _called("module_fqn")
    size_bytes: Int | None = _called("bytes")
    grid: msgspec.Raw = _NOT_RECORDED
    block: msgspec.Raw = _NOT_RECORDED
    occupancy_pct: msgspec.Raw = _called("est. achieved occupancy %", _NOT_RECORDED)
    occupancy: msgspec.Raw = _NOT_RECORDED
    priority: msgspec.Raw = _NOT_RECORDED
    channel: msgspec.Raw = _NOT_RECORDED
    copy: str | int = _called("copy kind", "")
    source_memory: str | int = _called("src kind", "")
    target_memory: str | int = _called("dst kind", "")
    in_device: Int | None = _called("inDevice")
    from_device: Int | None = _called("fromDevice")
    to_device: Int | None = _called("toDevice")
    collective: str | None = _called("Collective name")
    in_elements: Int | None = _called("In msg nelems")
    out_elements: Int | None = _called("Out msg nelems")
    group_size: Int | None = _called("Group size")
    dtype: str | None = None
    in_split: str | None = _called("In split size")
    out_split: str | None = _called("Out split size")
    group: str | None = _called("Process Group Name")
    group_description: str | None = _called("Process Group Description")
    group_ranks: str | None = _called("Process Group Ranks")
    sequence: Int | None = _called("Seq")
    rank: Int | None = _called("Rank")
    source_rank: Int | None = _called("Src Rank")
    target_rank: Int | None = _called("Dst Rank")
    comms_id: int | str | None = _called("Comms Id")
    source_stream: Int | None = _called("wait_on_stream")
    record_correlation: Int = _called("wait_on_cuda_event_record_corr_id", -1)
    old_shapes: msgspec.Raw = _called("Input dims", _NOT_RECORDED)  # PyTorch 1.8 and 1.9


class _Complete(msgspec.Struct, gc=False):
    cat: str = ""
    name: str = ""
    pid: Int | str = -1
    tid: Int | str = -1
    dur: Duration = 0.0
    args: Args | None = None


class Complete(_Complete, gc=False, kw_only=True, tag_field="ph", tag="X"):
    """A complete event; times in µs."""

    ts: Time


class ExactComplete(_Complete, gc=False, kw_only=True, tag_field="ph", tag="X"):
    """A complete event whose `ts` is too large for a float to be exact to the nanosecond."""

    ts: Decimal

    def __post_init__(self) -> None:
        if not (self.ts.is_finite() and abs(self.ts) <= _TIME_US):
            raise ValueError("ts is out of range")


class MemoryArgs(msgspec.Struct, gc=False):
    """`args` of a `[memory]` event."""

    allocated: Int | None = _called("Total Allocated")
    reserved: Int | None = _called("Total Reserved")
    address: Int | None = _called("Addr")
    device: Int | None = _called("Device Id")
    device_type: Int | None = _called("Device Type")


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An instant event."""

    ts: Time = 0.0
    name: str = ""
    tid: Int | str = -1
    args: MemoryArgs | None = None


class Sample(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    """A counter event: `args` are values by counter."""

    ts: Time = 0.0
    cat: str = ""
    pid: Int | str = -1
    args: msgspec.Raw = _NOT_RECORDED


# Flows, metadata and whatever else the Chrome format knows: decoding them costs next to nothing.
IGNORED = tuple(
    msgspec.defstruct(f"Ignored{ord(phase)}", [], gc=False, tag_field="ph", tag=phase)
    for phase in "sftMBEbenNODPpRcvVISTF(),"
)


# Counters of Kineto files: memory of the GPU as it changes, and what was sampled: CUPTI's PM sampling, power, clocks.


MEMORY = "[memory]"
"""Name of the events that tell how much memory is allocated and reserved."""

_GPU_MEMORY = 1
"""`Device Type` of memory events on the GPU."""


def add_memory(table: Columns, events: list[Instant], threads: list[int]) -> None:
    """Append levels of the GPU's memory; the host's memory is left out."""
    held = [
        (event, thread, event.args)
        for event, thread in zip(events, threads, strict=True)
        if event.args and event.args.device_type == _GPU_MEMORY
    ]
    for name in ("allocated", "reserved"):
        known = [each for each in held if getattr(each[2], name) is not None]
        _add_counters(
            table,
            [event for event, _, _ in known],
            thread=[thread for _, thread, _ in known],
            name=[f"memory_{name}_bytes"] * len(known),
            value=[getattr(args, name) for _, _, args in known],
            address=[args.address if name == "allocated" else None for _, _, args in known],
            device=[args.device for _, _, args in known],
        )


def add_samples(table: Columns, events: list[Sample]) -> None:
    """Append what was counted, a row for each counter of an event; what is no number is left out."""
    rows = [(event, name, value) for event in events if event.cat for name, value in _values(event.args).items()]
    _add_counters(
        table,
        [event for event, _, _ in rows],
        thread=[NONE] * len(rows),
        name=[name for _, name, _ in rows],
        value=[value for _, _, value in rows],
        address=[None] * len(rows),
        device=[event.pid if isinstance(event.pid, int) else None for event, _, _ in rows],
    )


def _add_counters(table: Columns, events: list[Any], *, name: list[str], value: list[float], **numbers: Any) -> None:
    if events:
        table.instants(events)
        table.texts("name", name)
        table.floats("value", value)
        for column, values in numbers.items():
            table.integers(column, values)


def _values(args: msgspec.Raw) -> dict[str, float]:
    try:
        return msgspec.json.decode(args, type=dict[str, float])
    except msgspec.DecodeError:
        return {}


# What arguments say, as the tables write it.


def first_of(*values: int | None) -> int | None:
    """The first that is known."""
    return next((value for value in values if value is not None), None)


def extent(sizes: str) -> str:
    """`[24, 1, 1]` as `24x1x1`."""
    return "x".join(re.findall(r"\d+", sizes))


def launch_fact(text: str) -> str:
    """A number as it is, and what limits the occupancy, of the object that says so; else nothing."""
    found = re.search(r'"limitingFactors"\s*:\s*"([^"]*)"', text) or re.fullmatch(r"(-?\d{1,9}(?:\.\d{1,9})?)", text)
    return found[1] if found else ""


def as_list(text: str | None) -> str | None:
    """`[0, 1]` as `0,1`; an empty list is absent."""
    return text.strip("[] ").replace(" ", "") or None if text else None


def number_in(text: str | int) -> int:
    """The number in `stream 7` or `thread 12 (python)`, as old traces write them; -1 where there is none."""
    digits = re.search(r"\d{1,18}", str(text))
    return int(digits[0]) if digits else -1
