"""What NVTX payloads say: bytes laid out by the export's own schema tables → a column for each field."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.readers.nsys.source import Source, int_values, is_known, text_values

ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
ENUMS = "NVTX_PAYLOAD_ENUMS"
ENUM_ENTRIES = "NVTX_PAYLOAD_ENUM_ENTRIES"
PAYLOAD_TABLES = (ENTRIES, ENUMS, ENUM_ENTRIES)

# Before the payload stand four little-endian 64-bit numbers: domain, schema, payload size, size of it all.
_HEADER_BYTES = 32

# NVTX_PAYLOAD_ENTRY_TYPE_*: whole numbers only, as NCCL uses no other.
_TYPES = {
    3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<i8", 8: "<u8", 9: "<i8", 10: "<u8", 11: "<i1", 12: "<u1",
    13: "<i2", 14: "<u2", 15: "<i4", 16: "<u4", 17: "<i8", 18: "<u8", 22: "<u8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    offset: int
    dtype: np.dtype
    enum: int | None


def decode(source: Source, payloads: Sequence[str]) -> pd.DataFrame:
    """One row for each payload (hexadecimal), one Int64 column for each field name; NA where it has none.

    An enumeration's field is text: the value's name. A payload that is empty, cut or of an unknown schema is
    a row of NA.
    """
    schemas, names = _schemas(source), _enum_names(source)
    raw = [_bytes(text) for text in payloads]
    schema_of = np.array([int.from_bytes(one[8:16], "little") if len(one) > _HEADER_BYTES else -1 for one in raw])
    decoded = pd.DataFrame(index=pd.RangeIndex(len(raw)))
    for schema, fields in schemas.items():
        size = _HEADER_BYTES + max(field.offset + field.dtype.itemsize for field in fields)
        rows = [row for row in np.flatnonzero(schema_of == schema).tolist() if len(raw[row]) >= size]
        if rows:
            block = np.frombuffer(b"".join(raw[row][:size] for row in rows), np.uint8).reshape(len(rows), size)
            decoded = _with_fields(decoded, rows, block, fields, names)
    return decoded


def _with_fields(
    decoded: pd.DataFrame,
    rows: list[int],
    block: np.ndarray,
    fields: list[_Field],
    names: dict[int, dict[int, str]],
) -> pd.DataFrame:
    new = {}
    for field in fields:
        first = _HEADER_BYTES + field.offset
        values = np.ascontiguousarray(block[:, first : first + field.dtype.itemsize]).view(field.dtype).ravel()
        if field.enum is None:
            # A communicator's id uses all 64 bits: keep them, as a signed number.
            column = pd.Series(values.astype(np.int64), index=rows).astype("Int64")
        else:
            column = pd.Series(values, index=rows).map(names.get(field.enum, {})).astype("str")
        held = decoded.get(field.name)
        column = column.reindex(decoded.index)
        new[field.name] = column if held is None else held.where(column.isna(), column)
    return decoded.assign(**new)


def _schemas(source: Source) -> dict[int, list[_Field]]:
    """Fields of each schema id; the same ids of several processes lay out the same."""
    rows = source.read(ENTRIES, ints=("schemaId", "idx", "type", "offset"), texts=("name",))
    sizes = _enum_sizes(source)
    table = pd.DataFrame(
        {
            "schema": int_values(rows, "schemaId"),
            "idx": int_values(rows, "idx", 0),
            "type": int_values(rows, "type"),
            "offset": int_values(rows, "offset"),
            "name": text_values(rows, "name"),
        }
    )
    table = table.drop_duplicates(["schema", "idx"]).sort_values(["schema", "idx"])
    return {int(schema): fields for schema, group in table.groupby("schema") if (fields := _fields(group, sizes))}


def _fields(group: pd.DataFrame, enum_sizes: dict[int, int]) -> list[_Field]:
    fields, end = [], 0
    for row in group.itertuples(index=False):
        kind = _TYPES.get(row.type) or _unsigned(enum_sizes.get(row.type))
        if kind is None:
            break  # what follows has no known place
        dtype = np.dtype(kind)
        # No offset means: the next place that suits the type.
        offset = row.offset if row.offset >= 0 else -(-end // dtype.itemsize) * dtype.itemsize
        end = offset + dtype.itemsize
        fields.append(_Field(row.name, offset, dtype, row.type if row.type in enum_sizes else None))
    return fields


def _unsigned(size: int | None) -> str | None:
    return f"<u{size}" if size in (1, 2, 4, 8) else None


def _enum_sizes(source: Source) -> dict[int, int]:
    rows = source.read(ENUMS, ints=("schemaId", "size"))
    return dict(zip(int_values(rows, "schemaId").tolist(), int_values(rows, "size", 4).tolist(), strict=True))


def _enum_names(source: Source) -> dict[int, dict[int, str]]:
    rows = source.read(ENUM_ENTRIES, ints=("schemaId", "value"), texts=("name",))
    names: dict[int, dict[int, str]] = {}
    # The export leaves a value of 0 out.
    values = np.where(is_known(rows, "value"), int_values(rows, "value", 0), 0).tolist()
    for schema, value, name in zip(
        int_values(rows, "schemaId").tolist(), values, text_values(rows, "name"), strict=True
    ):
        names.setdefault(schema, {})[value] = name
    return names


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
