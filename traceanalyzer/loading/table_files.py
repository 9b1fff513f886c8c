"""A table of a trace as a file of Arrow columns, and back, some rows at a time: it is in memory nowhere as a whole."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.decoding.columns import Growing
from traceanalyzer.model.aside import laid_aside
from traceanalyzer.model.schema import NONE

ROWS_AT_ONCE = 1 << 16


def write_table(path: Path, frame: pd.DataFrame, schema: Mapping[str, str]) -> None:
    """Write the table's columns, of these types.

    Raises:
        OSError, ValueError, pyarrow.ArrowException: it cannot be written.
    """
    batches = _batches(frame, schema)
    first = next(batches)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with path.open("wb") as file, pa.ipc.new_file(file, first.schema, options=options) as out:
        out.write_batch(first)
        for batch in batches:
            out.write_batch(batch)


def read_table(path: Path, schema: Mapping[str, str]) -> pd.DataFrame:
    """The table, in files without a name where it is large.

    Raises:
        OSError, ValueError, KeyError, pyarrow.ArrowException: there is none, or not such a one.
    """
    grown: dict[str, tuple[Growing, ...]] = {}
    with pa.memory_map(str(path)) as file:
        stored = pa.ipc.open_file(file)
        for batch in map(stored.get_batch, range(stored.num_record_batches)):
            for name, dtype in schema.items():
                parts = _arrays(batch.column(name), dtype)
                own = grown.setdefault(name, tuple(Growing(part.dtype.type) for part in parts))
                for growing, part in zip(own, parts, strict=True):
                    growing.extend(part)
        texts = {name: batch.column(name).dictionary for name, dtype in schema.items() if dtype == "category"}
    columns = {name: _column([own.array() for own in grown.pop(name)], texts.get(name)) for name in schema}
    return laid_aside(pd.DataFrame(columns, copy=False))


def _batches(frame: pd.DataFrame, schema: Mapping[str, str]) -> Iterator[Any]:
    """All rows; where there are none a batch without any, which has the columns' types."""
    columns: dict[str, Any] = {name: frame[name].array for name in schema}
    texts = {
        name: pa.array(columns[name].categories.tolist(), type=pa.large_string())
        for name, dtype in schema.items()
        if dtype == "category"
    }
    for begin in range(0, max(1, len(frame)), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        yield pa.record_batch({name: _arrow(columns[name][rows], texts.get(name)) for name in schema})


def _arrow(values: Any, texts: Any) -> Any:
    if texts is not None:
        return pa.DictionaryArray.from_arrays(pa.array(values.codes, mask=values.codes == NONE), texts)
    if isinstance(values, pd.arrays.IntegerArray):
        return pa.array(values.to_numpy(dtype=np.int64, na_value=0), mask=np.asarray(values.isna()))
    return pa.array(values.to_numpy())


def _arrays(column: Any, dtype: str) -> tuple[np.ndarray, ...]:
    """What numpy has of a column: codes of texts, or numbers, and which of them are absent where any may be."""
    if dtype == "category":
        return (column.indices.fill_null(NONE).to_numpy(zero_copy_only=False),)
    if dtype == "Int64":
        return (column.fill_null(1).to_numpy(zero_copy_only=False), column.is_null().to_numpy(zero_copy_only=False))
    return (column.to_numpy(zero_copy_only=False),)


def _column(arrays: list[np.ndarray], texts: Any) -> Any:
    if texts is not None:
        return pd.Categorical.from_codes(arrays[0], categories=pd.Index(texts.to_pylist(), dtype="str"))
    values, *absent = arrays
    return pd.arrays.IntegerArray(values, absent[0]) if absent else values
