"""What a source of an export's tables offers, so that nothing above it knows databases from Parquet files."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from traceanalyzer.errors import NotATraceError
from traceanalyzer.model.schema import NONE

Triples = Mapping[str, tuple[str, str, str]]

PACK_BITS = (32, 16, 0)
"""Where a triple's three numbers stand in its packed int64: CUDA's limits are 2³¹−1, 65,535 and 65,535."""


STRINGS = "StringIds"
"""The table of all names."""

ESSENTIAL = frozenset({
    STRINGS, "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
})  # fmt: skip
"""Tables without which figures would be wrong, and not only fewer."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is read of a table.

    Attributes:
        ints: columns read as int64 (unsigned ones wrap).
        floats: columns read as float64.
        texts: columns read as text; NULL may come as "".
        blobs: columns of bytes, as hexadecimal text; NULL may come as "".
        triples: name → three columns, read as one int64 (`PACK_BITS`), NULL where one is.
        containing: only rows whose column `text`, or string of `textId`, contains one of these words, in any case.
    """

    ints: Sequence[str] = ()
    floats: Sequence[str] = ()
    texts: Sequence[str] = ()
    blobs: Sequence[str] = ()
    triples: Triples = field(default_factory=dict)
    containing: Sequence[str] = ()


class Source(ABC):
    """The tables of one export. Tables and columns come and go between versions: ask, or read NULLs."""

    @property
    @abstractmethod
    def tables(self) -> frozenset[str]:
        """Names of the tables that exist; empty ones usually do not."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; empty when there is no such table."""

    @abstractmethod
    def strings(self, ids: np.ndarray) -> dict[int, str]:
        """Texts of these `StringIds`; only these, since the table also holds the machine's environment."""

    def __init__(self) -> None:
        self.damaged: dict[str, str] = {}
        """Tables that are taken as absent, and why."""

    def read(self, table: str, **wanted: Any) -> pa.Table:
        """Chosen columns of all rows, by the names of `Wanted`.

        Columns that the table lacks are NULL, a table that is absent is empty. So is one that cannot be read, where
        figures can do without it: `damaged` names it then.

        Raises:
            NotATraceError: a table of `ESSENTIAL` cannot be read.
        """
        try:
            return self._read(table, Wanted(**wanted))
        except NotATraceError as error:
            if table in ESSENTIAL:
                raise
            self.damaged[table] = str(error)
            names = Wanted(**wanted)
            kinds = {
                **dict.fromkeys((*names.ints, *names.triples), pa.int64()),
                **dict.fromkeys(names.floats, pa.float64()),
                **dict.fromkeys((*names.texts, *names.blobs), pa.large_string()),
            }
            return pa.table({name: pa.nulls(0, kind) for name, kind in kinds.items()})

    @abstractmethod
    def _read(self, table: str, wanted: Wanted) -> pa.Table:
        """The same."""


def with_valid_text(rows: pa.Table) -> pa.Table:
    """The table with replacement characters for bytes of text columns that are not UTF-8."""
    for position, column in enumerate(rows.columns):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                raw = column.cast(pa.large_binary()).to_pylist()
                texts = [None if value is None else value.decode("utf-8", errors="replace") for value in raw]
                mended = pa.chunked_array([pa.array(texts, pa.large_string())])
                rows = rows.set_column(position, rows.column_names[position], mended)
    return rows


def int_values(rows: pa.Table, name: str, missing: int = NONE) -> np.ndarray:
    """A column as int64 with `missing` for NULL."""
    column = rows[name]
    if column.null_count == len(column):
        return np.full(len(column), missing, dtype=np.int64)
    values: np.ndarray = (column.fill_null(missing) if column.null_count else column).to_numpy()
    return values


def maybe_ints(rows: pa.Table, name: str) -> pd.api.extensions.ExtensionArray:
    """A column as pandas' Int64 with NA for NULL."""
    column = rows[name]
    if not column.null_count:
        return pd.array(column.to_numpy(), dtype="Int64")
    return pd.arrays.IntegerArray(
        column.fill_null(0).to_numpy().copy(), column.is_null().to_numpy(zero_copy_only=False)
    )


def text_values(rows: pa.Table, name: str) -> list[str]:
    """A column as strings with "" for NULL."""
    return [value or "" for value in rows[name].to_pylist()]


def is_known(rows: pa.Table, name: str) -> np.ndarray:
    """Where a column is not NULL."""
    return np.asarray(pc.is_valid(rows[name]).to_numpy())


def category(codes: np.ndarray, names: Sequence[str | None]) -> pd.Categorical:
    """Categories of those `names` that `codes` (positions in `names`) use; equal names become one."""
    used = np.zeros(len(names), dtype=bool)
    used[codes] = True
    kept = [name for name, is_used in zip(names, used.tolist(), strict=True) if is_used and name is not None]
    distinct = {name: position for position, name in enumerate(dict.fromkeys(kept))}
    # An unused or absent name is never looked up: -1 is pandas' code for NA.
    remap = np.array([NONE if name is None else distinct.get(name, NONE) for name in names], dtype=np.int64)
    new_codes = remap[codes] if len(names) else np.empty(0, dtype=np.int64)
    return pd.Categorical.from_codes(new_codes, categories=pd.Index(list(distinct), dtype="str"))


def triple_category(packed: np.ndarray) -> pd.Categorical:
    """Packed triples as "24x1x1"; NA for negative ones."""
    codes, distinct = pd.factorize(packed)
    high, middle, _ = PACK_BITS
    names = [
        None if value < 0 else f"{value >> high}x{(value >> middle) & 0xFFFF}x{value & 0xFFFF}"
        for value in distinct.tolist()
    ]
    return category(codes, names)
