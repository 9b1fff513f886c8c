"""Small tables as Arrow, and back: exactly as they were, whatever types their columns have.

Tables of one file follow each other. Nothing in it runs when it is read; a table that would not come back as it was is
refused when it is written.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of

Told = tuple[str, pd.DataFrame, str]
"""A table's name, the table, and what else there is to say of it."""

_MASKED: Mapping[str, Any] = {
    "Int64": pd.arrays.IntegerArray,
    "Float64": pd.arrays.FloatingArray,
    "boolean": pd.arrays.BooleanArray,
}


def write_tables(path: Path, tables: Iterable[Told]) -> int:
    """Write the tables, and return how many they are.

    Raises:
        ValueError, TypeError: one is not of the kind that comes back.
    """
    # Small tables: threads take longer than they save, and a better packing three times as long as this one.
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    written = 0
    sink = pa.BufferOutputStream()
    for name, frame, said in tables:
        rows = _batch(name, frame, said)
        with pa.ipc.new_stream(sink, rows.schema, options=options) as out:
            out.write_batch(rows)
        written += 1
    path.write_bytes(sink.getvalue())
    return written


def read_tables(path: Path, count: int) -> list[Told]:
    """So many tables of a file; what is wrong with it is one of `UNREADABLE`."""
    # Small tables: threads take longer than they save.
    options = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.memory_map(str(path)) as file:
        return [_table(pa.ipc.open_stream(file, options=options)) for _ in range(count)]


def _batch(name: str, frame: pd.DataFrame, said: str) -> Any:
    if not frame.index.equals(pd.RangeIndex(len(frame))) or not frame.columns.is_unique:
        raise ValueError("not a table that is kept")
    arrays, types = [], []
    for column, values in columns_of(frame).items():
        array, dtype = _arrow(values)
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


def _arrow(values: Any) -> tuple[Any, str]:
    """A column as Arrow, and what it was."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        return pa.array(values), str(values.dtype)
    dtype = str(values.dtype)
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
        texts = pa.array(values.to_numpy(dtype=object, na_value=None), type=pa.large_string())
        return texts.dictionary_encode(), dtype  # each text is made once when it is read
    if dtype == "object":
        return _dictionary(values.tolist()), dtype
    raise ValueError(f"a column of {dtype}")


def _dictionary(values: list[Any]) -> Any:
    """Values of any kind by their texts, each text once."""
    # By object first: a table of many rows repeats few, and each text takes a microsecond to make.
    places: dict[int, int] = {}
    texts: dict[str, int] = {}
    codes = []
    for value in values:
        place = places.get(id(value))
        if place is None:
            place = places[id(value)] = texts.setdefault(_text(value), len(texts))
        codes.append(place)
    return pa.DictionaryArray.from_arrays(pa.array(codes, type=pa.int32()), pa.array([*texts], type=pa.large_string()))


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
        return pd.array(_by_row(array, [*array.dictionary.to_pylist(), np.nan]), dtype="str")
    if dtype == "object":
        return pd.Series(_by_row(array, [_value(text) for text in array.dictionary.to_pylist()]), dtype="object")
    plain = array.to_numpy(zero_copy_only=False)
    return plain if plain.flags.writeable else plain.copy()


def _by_row(array: Any, values: Sequence[object]) -> np.ndarray:
    """The value of each row of a dictionary's; of a row without one the last."""
    own = np.fromiter(values, dtype=object, count=len(values))  # some are tuples
    found: np.ndarray = own[array.indices.fill_null(NONE).to_numpy(zero_copy_only=False)]
    return found


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
    is_list = isinstance(value, tuple) and {*map(type, value)} <= {int, str}
    if not is_list and not isinstance(value, str | int | float):
        raise TypeError(f"a {type(value).__name__} in a table")
    return msgspec.json.encode(value).decode()


def _value(text: str) -> object:
    if text == "NA":
        return pd.NA
    value = np.nan if text == "NaN" else msgspec.json.decode(text)
    return tuple(value) if isinstance(value, list) else value
