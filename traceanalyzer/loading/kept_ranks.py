"""What the analyses made of a file's ranks, kept beside its columns: the same run again begins where ranks are joined.

An entry is of one file as it was, of what was asked of it, and of all code of the package. It holds tables as Arrow and
facts as JSON, nothing that runs when it is read; whatever is wrong with it, the file is read and analysed again.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.analyses.registry import ANALYSES, SHARED
from traceanalyzer.analyses.replay.piece import Piece
from traceanalyzer.cuda_graphs.captures import captures_beside, notes_beside
from traceanalyzer.discovery.clustering import Capture
from traceanalyzer.kinds import KindRules
from traceanalyzer.loading import LoadOptions
from traceanalyzer.loading.cache import UNREADABLE, Draft, code_of, key_of, prune
from traceanalyzer.loading.kept_traces import facts_of
from traceanalyzer.model import RankMeta
from traceanalyzer.model.schema import NONE

FORMAT = 1

WORTH_BYTES, WORTH_BYTES_OF_TEXT = 512 << 10, 4 << 20
"""Of smaller files: they are read and analysed within a moment."""

ENDING = "-ranks"
"""Of an entry's name, which else is as that of the file's columns."""

Tables = dict[str, pd.DataFrame]

_PIECE = "replay piece"
_FRAMES = tuple(field.name for field in fields(Piece) if field.name != "why_no_host")
_MASKED: Mapping[str, Any] = {
    "Int64": pd.arrays.IntegerArray,
    "Float64": pd.arrays.FloatingArray,
    "boolean": pd.arrays.BooleanArray,
}


@dataclass(frozen=True, slots=True)
class _Facts:
    """What of a rank is no table, and how many tables there are."""

    meta: RankMeta
    tables: int


def place_of(
    capture: Capture, options: LoadOptions, names: tuple[str, ...], thresholds: Mapping[str, Any]
) -> Path | None:
    """Where the ranks of a file are kept or would be, by all that decides what is made of it.

    `None` for what is not worth keeping, or may not be.
    """
    path = capture.path
    # Members of archives and remote files lie in a folder of this process, and no other run finds them there.
    if options.cache is None or capture.place != path:
        return None
    rules = tuple((kind, rule.pattern, rule.flags) for kind, rule in options.rules.extra)
    ranks = None if options.ranks is None else sorted(options.ranks)
    asked = (capture.hint, rules, ranks, options.selection, names, sorted(thresholds.items()))
    others = [*captures_beside(path), *notes_beside(path)]  # graphs take operators and names from them
    beside = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in others]
    least = WORTH_BYTES_OF_TEXT if path.suffix == ".json" else WORTH_BYTES
    key = key_of(path, (FORMAT, _code(), asked, beside), least)
    return None if key is None else options.cache / f"{key}{ENDING}"


def kept(place: Path | None, rules: KindRules) -> list[tuple[RankMeta, Tables]]:
    """The ranks of an entry, read under these rules; none where there is none that can be read."""
    if place is None or not place.is_dir():
        return []
    with suppress(*UNREADABLE):
        place.touch()
        found = [_read(own) for own in sorted(place.iterdir(), key=lambda each: int(each.name))]
        return [(replace(meta, kind_rules=rules) if rules.extra else meta, tables) for meta, tables in found]
    shutil.rmtree(place, ignore_errors=True)
    return []


def keep(place: Path | None, again: Path | None, ranks: Sequence[tuple[RankMeta, Tables]]) -> None:
    """Keep the ranks at `place`, unless the file is another one by now: `again` is its place at this moment."""
    if place is None or place != again or not ranks:
        return
    draft = Draft.begun(place.parent)
    if draft is None:
        return
    try:
        for meta, tables in ranks:
            draft.add(partial(_write, meta=meta, tables=tables))
        draft.settle(place)
        prune(place.parent)
    finally:
        draft.drop()


@cache
def _code() -> tuple[object, ...]:
    """Names the code: every file of the package, and which functions the registries have."""
    makers = [ANALYSES[name].per_rank for name in ANALYSES] + [*SHARED.values()]
    return (*code_of(Path(__file__).parents[1].rglob("*.py")), *(getattr(make, "__qualname__", "") for make in makers))


def _write(place: Path, meta: RankMeta, tables: Tables) -> None:
    flat = list(_flat(tables))
    (place / "rank.json").write_bytes(msgspec.json.encode({"meta": facts_of(meta), "tables": len(flat)}))
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with (place / "tables.arrow").open("wb") as file:
        for name, frame, said in flat:
            rows = _batch(name, frame, said)
            with pa.ipc.new_stream(file, rows.schema, options=options) as out:
                out.write_batch(rows)


def _read(place: Path) -> tuple[RankMeta, Tables]:
    facts = msgspec.json.decode((place / "rank.json").read_bytes(), type=_Facts)
    # Small tables: threads take longer than they save.
    options = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.memory_map(str(place / "tables.arrow")) as file:
        found = [_table(pa.ipc.open_stream(file, options=options)) for _ in range(facts.tables)]
    return facts.meta, _whole(found)


def _flat(tables: Tables) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """The tables by name; a rank's piece of the job's graph as the tables that it is of, and why it has no host."""
    for name, frame in tables.items():
        if "piece" in frame:
            piece = frame["piece"].iloc[0]
            if not isinstance(piece, Piece) or len(frame) != 1:
                raise ValueError("not as the analysis gives it")
            yield name, frame.drop(columns="piece"), _PIECE
            for part in _FRAMES:
                yield part, getattr(piece, part), piece.why_no_host
        else:
            yield name, frame, ""


def _whole(found: list[tuple[str, pd.DataFrame, str]]) -> Tables:
    tables: Tables = {}
    left = iter(found)
    for name, frame, said in left:
        if said == _PIECE:
            parts = [next(left) for _ in _FRAMES]
            piece = Piece(**{part: own for part, own, _ in parts}, why_no_host=parts[0][2])
            tables[name] = frame.assign(piece=[piece])
        else:
            tables[name] = frame
    return tables


def _batch(name: str, frame: pd.DataFrame, said: str) -> Any:
    if not frame.index.equals(pd.RangeIndex(len(frame))) or not frame.columns.is_unique:
        raise ValueError("not a table that is kept")
    arrays, types = [], []
    for column in frame:
        array, dtype = _arrow(frame[column])
        arrays.append(array)
        types.append((str(column), dtype))
    text = msgspec.json.encode({"name": name, "said": said, "types": types, "rows": len(frame)})
    names = [str(number) for number in range(len(arrays))]
    return pa.record_batch(arrays, names=names).replace_schema_metadata({"table": text})


def _table(stream: Any) -> tuple[str, pd.DataFrame, str]:
    facts = msgspec.json.decode(stream.schema.metadata[b"table"])
    rows = stream.read_all().combine_chunks()
    columns = {column: _pandas(rows.column(number), dtype) for number, (column, dtype) in enumerate(facts["types"])}
    return facts["name"], pd.DataFrame(columns, index=pd.RangeIndex(facts["rows"])), facts["said"]


def _arrow(column: pd.Series) -> tuple[Any, str]:
    """A column as Arrow, and what it was."""
    values: Any = column.array
    dtype = str(column.dtype)
    if isinstance(values, pd.Categorical):
        texts = values.categories
        if values.ordered or not all(isinstance(text, str) for text in texts):
            raise ValueError("categories that are no names")
        codes = pa.array(values.codes.astype(np.int32), mask=values.codes == NONE)
        dictionary = pa.array(texts.tolist(), type=pa.large_string())
        return pa.DictionaryArray.from_arrays(codes, dictionary), f"category of {texts.dtype}"
    if dtype in _MASKED:
        plain = values.to_numpy(dtype=values.dtype.numpy_dtype, na_value=0)
        return pa.array(plain, mask=np.asarray(values.isna())), dtype
    if dtype == "str":
        return pa.array(values.to_numpy(dtype=object, na_value=None), type=pa.large_string()), dtype
    if dtype == "object":
        return pa.array([_text(value) for value in column], type=pa.large_string()).dictionary_encode(), dtype
    if column.dtype.kind not in "iufb":
        raise ValueError(f"a column of {dtype}")
    return pa.array(column.to_numpy()), dtype


def _pandas(column: Any, dtype: str) -> Any:
    array = column.chunk(0) if column.num_chunks else pa.array([], type=column.type)
    if dtype.startswith("category of "):
        codes = array.indices.fill_null(NONE).to_numpy(zero_copy_only=False)
        texts = pd.Index(array.dictionary.to_pylist(), dtype=dtype.removeprefix("category of "))
        return pd.Categorical.from_codes(codes, categories=texts)
    if dtype in _MASKED:
        absent = array.is_null().to_numpy(zero_copy_only=False).copy()
        fill = pa.scalar(value=True if dtype == "boolean" else 1, type=array.type)
        return _MASKED[dtype](array.fill_null(fill).to_numpy(zero_copy_only=False).copy(), absent)
    if dtype == "str":
        return pd.array(array.to_pylist(), dtype="str")
    if dtype == "object":
        values = [_value(text) for text in array.dictionary.to_pylist()]
        rows = array.indices.to_numpy(zero_copy_only=False)
        return pd.Series([values[row] for row in rows.tolist()], dtype="object")
    plain = array.to_numpy(zero_copy_only=False)
    return plain if plain.flags.writeable else plain.copy()


def _text(value: object) -> str:
    """One of a column of anything: its JSON, or what JSON does not tell apart."""
    if value is None:
        return "null"
    if value is pd.NA:
        return "NA"
    if isinstance(value, float) and np.isnan(value):
        return "NaN"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    if not isinstance(value, str | int | float):
        raise TypeError(f"a {type(value).__name__} in a table")
    return msgspec.json.encode(value).decode()


def _value(text: str) -> object:
    if text == "NA":
        return pd.NA
    return np.nan if text == "NaN" else msgspec.json.decode(text)
