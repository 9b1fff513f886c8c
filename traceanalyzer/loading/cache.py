"""Large traces that were read, as Arrow columns in the user's cache folder: the next run need not decode them again.

An entry is of one file as it was: its path, size, inode, times of change, the user's kinds of kernels, and the code
that reads. It holds tables and a JSON of facts, nothing that runs when it is read. Whatever is wrong with the cache,
the trace is read as if there were none.
"""

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.model import RankMeta, RankTrace, whole_capture
from traceanalyzer.model.schema import NONE, STEPS, TABLES, conform

FORMAT = 1
"""Of the entries: another number finds none of these."""

WORTH_BYTES, WORTH_BYTES_OF_TEXT = 4 << 20, 32 << 20
"""Smaller files, packed or databases, and plain text, are read about as quickly from themselves."""

MOST_BYTES = 4 << 30
"""Of all entries together; those that nobody asked for longest go first."""

_UNSETTLED_NS = 2 * 10**9
"""A file that changed so shortly ago may change again within one tick of its clock: it is not kept.

That is of clocks of whole seconds, or of two; where a time has parts of a second, a twentieth of it will do.
"""

_FORGOTTEN_S = 86_400
"""Age of drafts whose process must have been ended."""

_DRAFT = ".draft-"

UNREADABLE = (OSError, ValueError, TypeError, KeyError, pa.ArrowException, msgspec.MsgspecError)


@dataclass(frozen=True, slots=True)
class Contents:
    """What the cache holds.

    Attributes:
        folder: where.
        entries: traces.
        size_bytes: of all of them, and of what analyses made of ranks.
    """

    folder: Path
    entries: int
    size_bytes: int


def default_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The place for it in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`); `None` without a home."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not Path(base).is_absolute():
        home = environment.get("HOME", "")
        if not Path(home).is_absolute():
            return None
        base = str(Path(home, ".cache"))
    return Path(base, "traceanalyzer", "traces")


def contents(folder: Path) -> Contents:
    """How much there is."""
    sizes = {entry.name: _size_of(entry) for entry in _entries(folder)}
    return Contents(folder, sum(name.isalnum() for name in sizes), sum(sizes.values()))


def clear(folder: Path) -> Contents:
    """Remove all entries and drafts; what there was."""
    held = contents(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return held


def through(
    folder: Path | None, path: Path, options: tuple[object, ...], read: Iterable[RankTrace]
) -> Iterator[RankTrace]:
    """The ranks of a file, from the cache where they are in it; else as they are read, and kept for the next time.

    Args:
        folder: of the cache; `None` for none.
        path: the file.
        options: what else decides what is read, told apart by `repr`.
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
    draft = Draft.begun(folder) if not given else None
    try:
        for trace in islice(read, given, None):
            if draft is not None:
                draft.add(partial(_write, trace))
            yield trace
        if draft is not None and _key(path, options) == key:
            draft.settle(folder / key)
            prune(folder)
    finally:
        if draft is not None:
            draft.drop()


def _key(path: Path, options: tuple[object, ...]) -> str | None:
    least = WORTH_BYTES_OF_TEXT if path.suffix == ".json" else WORTH_BYTES
    return key_of(path, (FORMAT, _code(), *options), least)


def key_of(path: Path, options: tuple[object, ...], least_bytes: int) -> str | None:
    """Names the file as it is; `None` for what is not worth keeping or may not be."""
    try:
        state = path.stat()
        place = path.resolve(strict=True)
    except OSError:
        return None
    changed_ns = max(state.st_mtime_ns, state.st_ctime_ns)
    unsettled_ns = _UNSETTLED_NS // 20 if changed_ns % 10**9 else _UNSETTLED_NS
    if not path.is_file() or state.st_size < least_bytes or time.time_ns() - changed_ns < unsettled_ns:
        return None
    identity = (str(place), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev)
    text = repr((identity, options))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


_READING = ("cuda_graphs", "files", "kinds", "loading", "meaning", "model", "readers")
"""Rooms whose code decides what is read."""


@cache
def _code() -> tuple[object, ...]:
    """Names the code that reads: every file of the package outside the rooms that only use what was read."""
    package = Path(__file__).parents[1]
    return code_of([*package.glob("*.py"), *(file for room in _READING for file in (package / room).rglob("*.*"))])


def code_of(files: Iterable[Path]) -> tuple[object, ...]:
    """Names files of code as they are."""
    states = ((file, file.stat()) for file in sorted(files) if file.is_file() and "__pycache__" not in file.parts)
    return tuple((str(file), state.st_size, state.st_mtime_ns) for file, state in states)


@dataclass(slots=True)
class Draft:
    """An entry that is being written; it appears when it is whole. An error ends it, and nothing else."""

    folder: Path
    ranks: int = 0
    is_usable: bool = True

    @classmethod
    def begun(cls, folder: Path) -> "Draft | None":
        """An empty one in the cache's folder; `None` where nothing can be written."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return cls(Path(tempfile.mkdtemp(prefix=_DRAFT, dir=folder)))
        except OSError:
            return None

    def add(self, write: Callable[[Path], None]) -> None:
        """One rank more: `write` puts it into a folder."""
        if not self.is_usable:
            return
        try:
            place = self.folder / str(self.ranks)
            place.mkdir()
            write(place)
            self.ranks += 1
        except UNREADABLE:
            self.is_usable = False

    def settle(self, target: Path) -> None:
        """Make it the entry, if all of it was written."""
        if self.is_usable and self.ranks:
            with suppress(OSError):  # another process was first
                self.folder.rename(target)

    def drop(self) -> None:
        """Remove what is left of it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _write(trace: RankTrace, place: Path) -> None:
    if len(trace.steps) or trace.meta.kind_rules.extra or (trace.op_step != NONE).any():
        raise ValueError("not as a reader gives it")
    (place / "meta.json").write_bytes(msgspec.json.encode(facts_of(trace.meta)))
    for name, schema in TABLES.items():
        frame = trace.table(name)
        columns = {column: _arrow(frame[column], dtype) for column, dtype in schema.items()}
        rows = pa.record_batch(columns)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (place / f"{name}.arrow").open("wb") as file, pa.ipc.new_file(file, rows.schema, options=options) as out:
            out.write_batch(rows)


def facts_of(meta: RankMeta) -> dict[str, object]:
    """What is known of a rank, as plain values; without the user's rules for kinds."""
    facts = {name: value for name, value in asdict(replace(meta, versions={})).items() if name != "kind_rules"}
    return facts | {"versions": dict(meta.versions)}


def _stored(entry: Path) -> Iterator[RankTrace]:
    """The ranks of an entry; none where there is none."""
    if not entry.is_dir():
        return
    os.utime(entry)
    for number in count():
        place = entry / str(number)
        if not place.is_dir():
            return
        yield _read(place)


def _read(place: Path) -> RankTrace:
    meta = msgspec.json.decode((place / "meta.json").read_bytes(), type=RankMeta)
    frames = {name: _frame(place / f"{name}.arrow", schema) for name, schema in TABLES.items()}
    ops = frames["gpu_ops"]
    return RankTrace(
        meta=meta,
        steps=conform(None, STEPS),
        op_step=np.full(len(ops), NONE, dtype=np.int64),
        window=whole_capture(ops),
        **frames,
    )


def _frame(path: Path, schema: Mapping[str, str]) -> pd.DataFrame:
    with pa.memory_map(str(path)) as file:
        rows = pa.ipc.open_file(file).get_batch(0)
    columns = {name: _pandas(rows.column(name), dtype) for name, dtype in schema.items()}
    return pd.DataFrame(columns, index=pd.RangeIndex(rows.num_rows), copy=False)


def _arrow(column: pd.Series, dtype: str) -> Any:
    values: Any = column.array
    if dtype == "category":
        codes = pa.array(values.codes.astype(np.int32), mask=values.codes == NONE)
        return pa.DictionaryArray.from_arrays(codes, pa.array(values.categories.tolist(), type=pa.large_string()))
    if dtype == "Int64":
        return pa.array(values.to_numpy(dtype=np.int64, na_value=0), mask=np.asarray(values.isna()))
    return pa.array(column.to_numpy())


def _pandas(array: Any, dtype: str) -> Any:
    if dtype == "category":
        codes = array.indices.fill_null(NONE).to_numpy(zero_copy_only=False)
        texts = pd.Index(array.dictionary.to_pylist(), dtype="str")
        return pd.Categorical.from_codes(codes, categories=texts)
    if dtype == "Int64":
        absent = array.is_null().to_numpy(zero_copy_only=False)
        return pd.arrays.IntegerArray(array.fill_null(1).to_numpy(zero_copy_only=False).copy(), absent)
    values = array.to_numpy(zero_copy_only=False)
    return values if values.flags.writeable else values.copy()


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if re.fullmatch(r"[0-9a-f]{64}(-ranks)?", entry.name)]
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
            if time.time() - draft.stat().st_mtime > _FORGOTTEN_S:
                shutil.rmtree(draft, ignore_errors=True)
