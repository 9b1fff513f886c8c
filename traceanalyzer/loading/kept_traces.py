"""Large traces that were read, as Arrow columns in the user's cache folder: the next run need not decode them again.

An entry is of one file, the user's kinds of kernels, and the code that reads. It holds tables and a JSON of facts,
nothing that runs when it is read. Whatever is wrong with the cache, the trace is read as if there were none.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.forks import aside
from traceanalyzer.loading.cache import UNREADABLE, Draft, code_of, key_of, prune_at_times
from traceanalyzer.model import RankMeta, RankTrace, whole_capture
from traceanalyzer.model.aside import laid_aside
from traceanalyzer.model.schema import NONE, STEPS, TABLES, conform
from traceanalyzer.processes import CORES_A_FILE

FORMAT = 1
"""Of the entries: another number finds none of these."""

WORTH_BYTES, WORTH_BYTES_OF_TEXT = 4 << 20, 32 << 20
"""Smaller files, packed or databases, and plain text, are read about as quickly from themselves."""


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
            written = aside(partial(_with, draft, trace), processes=CORES_A_FILE.get()) if draft else None
            try:
                yield trace
            finally:
                del trace
                draft = written() if written else None
        if draft is not None and _key(path, options) == key:
            draft.settle(folder / key)
            prune_at_times(folder / key)
    finally:
        if draft is not None:
            draft.drop()


def _with(draft: Draft, trace: RankTrace) -> Draft:
    """The draft with one rank more."""
    draft.add(partial(_write, trace))
    return draft


def _key(path: Path, options: tuple[object, ...]) -> str | None:
    least = WORTH_BYTES_OF_TEXT if path.suffix == ".json" else WORTH_BYTES
    return key_of(path, (FORMAT, _code(), *options), least)


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
    frames = {name: laid_aside(_frame(place / f"{name}.arrow", schema)) for name, schema in TABLES.items()}
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
