"""What a file of stored tables may hold: checked when it is read, so that nothing after meets anything else."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

from traceanalyzer.analyses import ANALYSES
from traceanalyzer.diff import splits
from traceanalyzer.errors import InputError
from traceanalyzer.job.run_info import RunInfo, legible
from traceanalyzer.meaning.columns import Column, Unit

Rows = list[dict[str, Any]]

T = TypeVar("T")

_MOST = 2**63


class Around(msgspec.Struct, frozen=True):
    """What a stored capture says besides its tables."""

    label: str
    steps: tuple[int, ...]
    is_exact: bool
    notes: tuple[str, ...]
    info: RunInfo | None = None
    dimensions: tuple[int, ...] = ()


class AroundSummary(msgspec.Struct, frozen=True):
    """What a summary.json says besides its tables, of that which is used."""

    label: str | None = None
    notes: tuple[str, ...] = ()
    run_info: RunInfo | None = None


def around(content: Mapping[str, Any], where: str) -> Around:
    """A stored capture's own words.

    Raises:
        InputError: one of them is missing, or is something else.
    """
    return _converted(content, Around, where)


def around_summary(content: Mapping[str, Any], where: str) -> AroundSummary:
    """A summary's own words; errors as `around`."""
    return _converted({name: value for name, value in content.items() if value}, AroundSummary, where)


def _converted(content: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(legible({name: value for name, value in content.items() if name != "results"}), kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: damaged or made by another version ({error}); make it again") from error


def tables(results: Any, where: str) -> dict[str, Rows]:
    """The rows of each table, with all columns that its analysis has; a column that is not there is `None`.

    Raises:
        InputError: a table, a row or a value is not what its analysis gives; the message says where.
    """
    if not isinstance(results, Mapping):
        raise InputError(f"{where}: its results are no tables; make it again")
    return {str(name): _rows(str(name), rows, where) for name, rows in results.items()}


def _rows(name: str, rows: Any, where: str) -> Rows:
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{where}: {name} is no list of rows; make it again")
    known = ANALYSES[name].result if name in ANALYSES else None
    if known is None:
        return cast("Rows", legible(rows))
    columns = splits.columns_of(name, known.columns)
    names = list(columns)
    made = [{column: row.get(column) for column in names} for row in rows]
    for number, row in enumerate(made, 1):
        odd = next((column for column in names if not _fits(row[column], columns[column], column)), None)
        if odd is not None:
            unit = columns[odd].unit
            raise InputError(f"{where}: {name}, row {number}: {odd} is {row[odd]!a:.40}, not {_word(odd, unit)}")
        if known.keys == ("rank",) and row["rank"] is None:
            raise InputError(f"{where}: {name}, row {number}: it names no rank; make it again")
    again = _twice([tuple(row[key] for key in known.keys) for row in made])
    if again is not None:
        which = ", ".join(f"{key} {value}" for key, value in zip(known.keys, again, strict=True))
        raise InputError(f"{where}: {name} has two rows of {which}; make it again")
    return made


_WORDS = {Unit.TEXT: "a text", Unit.FLAG: "true or false", Unit.ID: "a number or a name"}


_HALF = re.compile("[\ud800-\udfff]")
"""Of a character: no file of UTF-8 can hold it."""

_NUMBERS = frozenset({"rank", "step"})
"""Columns by which tables are joined: whole numbers, wherever they are."""


def _word(name: str, unit: Unit) -> str:
    return "a whole number" if name in _NUMBERS else _WORDS.get(unit, "a number")


def _fits(value: Any, column: Column, name: str) -> bool:
    if value is None:
        return True
    if name in _NUMBERS:
        return type(value) in (int, float) and abs(value) < _MOST and value == int(value)
    if isinstance(value, bool):
        return column.unit is Unit.FLAG
    if isinstance(value, str):
        return column.unit in (Unit.TEXT, Unit.ID) and not _HALF.search(value)
    is_number = isinstance(value, int | float) and abs(value) < _MOST
    return is_number and column.unit not in (Unit.TEXT, Unit.FLAG)


def _twice(keys: list[tuple[Any, ...]]) -> tuple[Any, ...] | None:
    seen: set[tuple[Any, ...]] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    return None
