"""Large traces that were read, as Arrow columns in the user's cache folder: the next run need not decode them again.

An entry is of one file, the user's kinds of kernels, and the code that reads. It holds tables and a JSON of facts,
nothing that runs when it is read. Whatever is wrong with the cache, the trace is read as if there were none.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from traceanalyzer.forks import aside
from traceanalyzer.loading.cache import UNREADABLE, Draft, code_of, key_of, prune_at_times, ranks_of
from traceanalyzer.loading.table_files import read_table, write_table
from traceanalyzer.model import RankMeta, RankTrace, whole_capture
from traceanalyzer.model.schema import NONE, STEPS, TABLES, conform
from traceanalyzer.processes import CORES_A_FILE

FORMAT = 3
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
        write_table(place / f"{name}.arrow", trace.table(name), schema)


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
    frames = {name: read_table(place / f"{name}.arrow", schema) for name, schema in TABLES.items()}
    ops = frames["gpu_ops"]
    return RankTrace(
        meta=meta,
        steps=conform(None, STEPS),
        op_step=np.full(len(ops), NONE, dtype=np.int64),
        window=whole_capture(ops),
        **frames,
    )
