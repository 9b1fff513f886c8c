"""The cache in the user's folder: entries, tables as bytes and Arrow columns, large traces."""

import hashlib
import os
import re
import shutil
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, ClassVar, TypeVar

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from isal import isal_zlib
from msgspec import Struct

from traceanalyzer.decoding.columns import Growing
from traceanalyzer.decoding.stream import USUAL_RATIO
from traceanalyzer.errors import InputError
from traceanalyzer.execution import CORES_A_FILE, aside
from traceanalyzer.files.bounds import BLOCK_BYTES
from traceanalyzer.files.whole import DAY_S
from traceanalyzer.model import RankMeta, RankTrace, whole_capture
from traceanalyzer.model.schema import NONE, STEPS, TABLES, conform
from traceanalyzer.model.tables import columns_of, table_of


def default_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The place for it in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`); `None` without a home."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not Path(base).is_absolute():
        home = environment.get("HOME", "")
        if not Path(home).is_absolute():
            return None
        base = str(Path(home, ".cache"))
    return Path(base, "traceanalyzer", "traces")


def name_of(path: Path, state: os.stat_result, options: tuple[object, ...]) -> str:
    """What is made of the file in this state with these options is called so (64 digits).

    Raises:
        OSError: the file is gone.
    """
    place = str(path.resolve(strict=True))
    identity = (place, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev)
    return hashlib.sha256(repr((identity, options)).encode(errors="surrogateescape")).hexdigest()


# The cache in the user's folder: what its entries are called, how one appears whole, and which go when it is full.
#
# An entry is of one file as it was: its path, size, inode, times of change, and what else decides what is made of it.
# What entries hold is for their makers: `kept_traces`, `kept_ranks`, and `report.contents` of whole runs.


T = TypeVar("T")

MOST_BYTES = 4 << 30
"""Of all entries together; those that nobody asked for longest go first."""

_UNSETTLED_NS = 2 * 10**9
"""A file that changed so shortly ago may change again within one tick of its clock: it is not kept.

That is of clocks of whole seconds, or of two; where a time has parts of a second, a twentieth of it will do.
"""

_DRAFT = ".draft-"

_CHECKSUMS = "checksums.json"
"""Of all other files of an entry, by their paths in it."""

_AT_TIMES = 64
"""A process looks at all entries once it has kept this part of the limit: there may be hundreds."""

UNREADABLE = (OSError, struct.error, ValueError, TypeError, KeyError, pa.ArrowException, msgspec.MsgspecError)


class Contents(Struct, frozen=True):
    """What the cache holds.

    Attributes:
        folder: where.
        read: files of which there is what was read.
        analysed: those of which there is what analyses made of their ranks.
        reports: runs of which Results and findings are there.
        size_bytes: of all that.
    """

    folder: Path
    read: int
    analysed: int
    reports: int
    size_bytes: int

    @property
    def entries(self) -> int:
        """How many there are of all kinds."""
        return self.read + self.analysed + self.reports


def contents(folder: Path) -> Contents:
    """How much there is."""
    sizes = {entry.name: _size_of(entry) for entry in _entries(folder)}
    of_kind = Counter(name.partition("-")[2] for name in sizes)
    return Contents(folder, of_kind[""], of_kind["ranks"], of_kind["report"], sum(sizes.values()))


def clear(folder: Path) -> Contents:
    """Remove all entries and drafts; what there was.

    Raises:
        InputError: some of them cannot be removed.
    """
    held = contents(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if left := contents(folder).entries:
        raise InputError(f"{folder}: {left} of {held.entries} entries cannot be removed")
    return held


def key_of(path: Path, options: tuple[object, ...], least_bytes: int) -> str | None:
    """Names the file as it is; `None` for one of less than `least_bytes`, packed, or that may change."""
    try:
        state = path.stat()
        name = name_of(path, state, options)
    except OSError:
        return None
    changed_ns = max(state.st_mtime_ns, state.st_ctime_ns)
    unsettled_ns = _UNSETTLED_NS // 20 if changed_ns % 10**9 else _UNSETTLED_NS
    least = least_bytes * USUAL_RATIO if path.suffix == ".json" else least_bytes
    if not path.is_file() or state.st_size < least or time.time_ns() - changed_ns < unsettled_ns:
        return None
    return name


def code_of(files: Iterable[Path], *others: object) -> str:
    """Names files of code as they are, and what else there is to tell of it; short: it is in all entries' names."""
    states = ((file, file.stat()) for file in sorted(files) if file.is_file() and "__pycache__" not in file.parts)
    identities = [(str(file), state.st_size, state.st_mtime_ns) for file, state in states]
    return hashlib.sha256(repr((identities, others)).encode(errors="surrogateescape")).hexdigest()


@contextmanager
def _drafted(entry: Path, is_still: Callable[[], bool] = lambda: True) -> Iterator[Path]:
    """A folder for `_write_rank` that becomes the entry when the block ends well and the file is still the same.

    An error of the file system ends it, and nothing else.
    """
    draft = entry.with_name(_DRAFT)  # not there: nothing is written where nothing can be
    with suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=entry.parent))
    try:
        yield draft
        if (checksums := _checksums(draft)) and is_still():
            with suppress(OSError):  # another process was first
                (draft / _CHECKSUMS).write_bytes(msgspec.json.encode(checksums))
                draft.rename(entry)
            prune_at_times(entry)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_rank(place: Path, write: Callable[[Path], None]) -> None:
    """`write` puts one rank more into a folder of the draft's; what cannot be written takes all of it away."""
    try:
        place.mkdir()
        write(place)
    except UNREADABLE:
        shutil.rmtree(place.parent, ignore_errors=True)


def ranks_of(entry: Path) -> list[Path]:
    """The folders of an entry's ranks, in the order in which they were added.

    Raises:
        ValueError, and others of `UNREADABLE`: a file of the entry is not as it was written.
    """
    if msgspec.json.decode((entry / _CHECKSUMS).read_bytes()) != _checksums(entry):
        raise ValueError("not as it was written")
    return sorted((place for place in entry.iterdir() if place.is_dir()), key=lambda place: int(place.name))


def kept(entry: Path | None, read: Callable[[list[Path]], T]) -> T | None:
    """What `read` makes of the folders of an entry's ranks; `None` where there is no entry that can be read."""
    if entry is None or not entry.is_dir():
        return None
    with suppress(*UNREADABLE):
        entry.touch()
        return read(ranks_of(entry))
    shutil.rmtree(entry, ignore_errors=True)
    return None


def keep(entry: Path | None, again: Path | None, writes: Iterable[Callable[[Path], None]]) -> None:
    """Keep what each of `writes` puts into a folder, unless the entry has another name by now: `again`."""
    if entry is None or entry != again:
        return
    with _drafted(entry) as draft:
        for number, write in enumerate(writes):
            _write_rank(draft / str(number), write)


def _checksums(entry: Path) -> dict[str, int]:
    files = (file for file in entry.rglob("*") if file.is_file() and file.name != _CHECKSUMS)
    return {file.relative_to(entry).as_posix(): _checksum(file) for file in files}


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while part := file.read(BLOCK_BYTES):
            checksum = isal_zlib.crc32(part, checksum)
    return checksum


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if re.fullmatch(r"[0-9a-f]{64}(-ranks|-report)?", entry.name)]
    except OSError:
        return []


def _size_of(entry: Path) -> int:
    with suppress(OSError):  # another process removes it
        return sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
    return 0


def prune(folder: Path) -> None:
    """Keep within the limit, and forget what ended processes left."""
    with suppress(OSError):
        aged = sorted(((entry.stat().st_mtime_ns, entry) for entry in _entries(folder)), reverse=True)
        total = 0
        for _, entry in aged:
            total += _size_of(entry)
            if total > MOST_BYTES:
                shutil.rmtree(entry, ignore_errors=True)
        for draft in folder.glob(f"{_DRAFT}*"):
            if time.time() - draft.stat().st_mtime > DAY_S:
                shutil.rmtree(draft, ignore_errors=True)


class _Unpruned:
    """What this process has kept since it looked at all entries."""

    size_bytes: ClassVar[int] = 0


def prune_at_times(entry: Path) -> None:
    """`prune`, but not for each of the many small entries that one run keeps."""
    _Unpruned.size_bytes += _size_of(entry)
    if _AT_TIMES * _Unpruned.size_bytes >= MOST_BYTES:
        _Unpruned.size_bytes = 0
        prune(entry.parent)


# Tables as bytes, and back: exactly as they were, whatever types their columns have.
#
# An entry has eighty tables of ten columns: of each, Arrow's description takes longer to write than a rank takes to
# decode. Nothing in it runs when it is read; a table that would not come back as it was is refused when it is written.


StoredTable = tuple[str, pd.DataFrame, str]
"""A table's name, the table, and what else there is to say of it."""

_MASKED: Mapping[str, Any] = {
    "Int64": pd.arrays.IntegerArray,
    "Float64": pd.arrays.FloatingArray,
    "boolean": pd.arrays.BooleanArray,
}

_PACKED = "lz4"


class _Column(Struct, array_like=True):
    """A column's name and type, the type and bytes of its numbers, which are absent, and what codes stand for."""

    name: str
    dtype: str
    of_numbers: str
    numbers: bytes
    absent: bytes = b""
    texts: list[Any] = []
    of_texts: str = ""


class _Head(Struct, array_like=True):
    """What comes before a table's columns."""

    name: str
    facts: str
    rows: int
    columns: int


def write_tables(path: Path, tables: Iterable[StoredTable]) -> int:
    """Write the tables, and return how many they are; one column at a time.

    Raises:
        OSError, ValueError, TypeError: one is not of the kind that comes back, or cannot be written.
    """
    count = 0
    with path.open("wb") as file:
        for name, frame, facts in tables:
            count += 1
            if not frame.index.equals(pd.RangeIndex(len(frame))) or not frame.columns.is_unique:
                raise ValueError("not a table that is kept")
            columns = columns_of(frame)
            _put(file, _Head(name, facts, len(frame), len(columns)))
            for own, values in columns.items():
                _put(file, _packed(str(own), values))
    return count


_LENGTHS = struct.Struct("<QQ")


def _put(file: BinaryIO, part: Struct) -> None:
    body = msgspec.msgpack.encode(part)
    packed = pa.compress(body, codec=_PACKED, asbytes=True)
    file.write(_LENGTHS.pack(len(packed), len(body)) + packed)


def read_tables(path: Path, count: int) -> list[StoredTable]:
    """So many tables of a file, large columns in files without a name; what is wrong with it is of `UNREADABLE`."""
    found: list[StoredTable] = []
    with path.open("rb") as file:
        for _ in range(count):
            head = _next(file, _Head)
            columns = dict(_unpacked(_next(file, _Column)) for _ in range(head.columns))
            found.append((head.name, table_of(columns, pd.RangeIndex(head.rows)), head.facts))
        if file.read(1):
            raise ValueError("not as it was written")
    return found


def _next(file: BinaryIO, type_: type[T]) -> T:
    packed, size = _LENGTHS.unpack(file.read(_LENGTHS.size))
    return msgspec.msgpack.decode(memoryview(pa.decompress(file.read(packed), size, codec=_PACKED)), type=type_)


def _packed(name: str, values: Any) -> _Column:
    """A column as bytes."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        return _numbers(name, str(values.dtype), values)
    dtype = str(values.dtype)
    if isinstance(values, pd.Categorical):
        texts = values.categories.tolist()
        if values.ordered or not all(isinstance(text, str) for text in texts):
            raise ValueError("categories that are no names")
        of_texts = str(values.categories.dtype)
        return _numbers(name, dtype, values.codes, texts=texts, of_texts=of_texts)
    if dtype in _MASKED:
        plain = values.to_numpy(dtype=values.dtype.numpy_dtype, na_value=0)
        return _numbers(name, dtype, plain, absent=np.asarray(values.isna()).tobytes())
    if dtype not in ("str", "object"):
        raise ValueError(f"a column of {dtype}")
    held = values.tolist()
    kinds = {*map(type, held)}
    if dtype == "str" or kinds <= {str, NoneType}:
        number = {value: code for code, value in enumerate(dict.fromkeys(held))}
        codes = np.fromiter(map(number.__getitem__, held), dtype=np.int32, count=len(held))
        return _numbers(name, dtype, codes, texts=[*map(_plain, number)])
    texts = held if kinds <= _AS_THEY_ARE else [*map(_plain, held)]
    return _numbers(name, dtype, np.arange(len(held), dtype=np.int32), texts=texts)


_AS_THEY_ARE = {str, int, float, bool, NoneType}
"""Types of values that need no mark of their own."""


def _numbers(name: str, dtype: str, numbers: np.ndarray, **more: Any) -> _Column:
    return _Column(name, dtype, numbers.dtype.str, numbers.tobytes(), **more)


def _unpacked(column: _Column) -> tuple[str, Any]:
    """A column's name and values."""
    return column.name, _values(column, _laid(column.numbers, column.of_numbers), _laid(column.absent, "?"))


def _laid(raw: bytes, dtype: str) -> np.ndarray:
    grown = Growing(np.dtype(dtype).type)
    grown.extend(np.frombuffer(raw, dtype))
    return grown.array()


def _values(column: _Column, values: np.ndarray, absent: np.ndarray) -> Any:
    if column.dtype in _MASKED:
        return _MASKED[column.dtype](values, absent)
    if column.dtype == "category":
        return pd.Categorical.from_codes(values, categories=pd.Index(column.texts, dtype=column.of_texts))
    if column.dtype not in ("str", "object"):
        return values
    distinct = np.empty(len(column.texts), dtype=object)
    distinct[:] = [_value(value) for value in column.texts]
    held = distinct[values]
    return pd.array(held, dtype="str") if column.dtype == "str" else pd.arrays.NumpyExtensionArray(held)


_NA = msgspec.msgpack.Ext(1, b"")


def _plain(value: object) -> object:
    """One of a column of anything, if it comes back as it is."""
    if value is pd.NA:
        return _NA
    plain = value.item() if isinstance(value, np.generic) else value
    is_list = isinstance(plain, tuple) and {*map(type, plain)} <= {int, str}
    if not is_list and not isinstance(plain, str | int | float | None):
        raise TypeError(f"a {type(value).__name__} in a table")
    return plain


def _value(plain: object) -> object:
    if isinstance(plain, msgspec.msgpack.Ext):
        return pd.NA
    return tuple(plain) if isinstance(plain, list) else plain


# Large traces that were read, in the user's cache folder: the next run need not decode them again.
#
# An entry is of one file, the user's kinds of kernels, and the code that reads. It holds tables and a JSON of facts,
# nothing that runs when it is read. Whatever is wrong with the cache, the trace is read as if there were none.


WORTH_BYTES = 4 << 20
"""Smaller files, packed or databases, are read about as quickly from themselves; text of as many times that as packs
into it."""


def through(
    folder: Path | None, path: Path, options: tuple[object, ...], read: Iterable[RankTrace]
) -> Iterator[RankTrace]:
    """The ranks of a file, from the cache where they are in it; else as they are read, and kept for the next time.

    Args:
        folder: of the cache; `None` for none.
        path: the file.
        options: what else decides what is read, compared by `repr`.
        read: the ranks, not asked for when they are known.
    """
    key = None if folder is None else _key(path, options)
    if folder is None or key is None:
        yield from read
        return
    given = 0
    with suppress(*UNREADABLE):
        for trace in _stored(folder / key):
            yield trace
            given += 1
        if given:
            return
    shutil.rmtree(folder / key, ignore_errors=True)  # what is there cannot be read
    with _drafted(folder / key, lambda: not given and _key(path, options) == key) as draft:
        for number, trace in enumerate(islice(read, given, None)):
            work = partial(_write_rank, draft / str(number), partial(_write, trace))
            written = aside(work, processes=CORES_A_FILE.get())
            try:
                yield trace
            finally:
                del trace, work
                written()


def _key(path: Path, options: tuple[object, ...]) -> str | None:
    return key_of(path, (_code(), *options), WORTH_BYTES)


_READING = ("cuda_graphs", "decoding", "files", "kinds", "loading", "meaning", "model", "readers")
"""Rooms whose code decides what is read."""


@cache
def _code() -> str:
    """Names the code that reads: every file of the package outside the rooms that only use what was read."""
    package = Path(__file__).parents[1]
    return code_of([*package.glob("*.py"), *(file for room in _READING for file in (package / room).rglob("*.*"))])


def _write(trace: RankTrace, place: Path) -> None:
    if len(trace.steps) or trace.meta.kind_rules.extra or (trace.op_step != NONE).any():
        raise ValueError("not as a reader gives it")
    (place / "meta.json").write_bytes(msgspec.json.encode(facts_of(trace.meta)))
    write_tables(place / "tables.columns", ((name, trace.table(name), "") for name in TABLES))


def facts_of(meta: RankMeta) -> dict[str, object]:
    """What is known of a rank, as plain values; without the user's rules for kinds."""
    facts = {name: value for name, value in asdict(replace(meta, versions={})).items() if name != "kind_rules"}
    return facts | {"versions": dict(meta.versions)}


def _stored(entry: Path) -> Iterator[RankTrace]:
    """The ranks of an entry; none where there is none."""
    if not entry.is_dir():
        return
    os.utime(entry)
    for place in ranks_of(entry):
        yield _read(place)


def _read(place: Path) -> RankTrace:
    meta = msgspec.json.decode((place / "meta.json").read_bytes(), type=RankMeta)
    frames = {name: frame for name, frame, _ in read_tables(place / "tables.columns", len(TABLES))}
    ops = frames["gpu_ops"]
    return RankTrace(
        meta=meta,
        steps=conform(None, STEPS),
        op_step=np.full(len(ops), NONE, dtype=np.int64),
        window=whole_capture(ops),
        **frames,
    )
