"""Conditions on rows: `rank=0`, `wait_ns>1e6`, `name~nccl`."""

import math
import re
from collections.abc import Sequence

import pandas as pd

from traceanalyzer.errors import UsageError
from traceanalyzer.validation import shown

_CONDITION = re.compile(r"(?P<column>\w+)\s*(?P<sign>>=|<=|!=|=|>|<|~)\s*(?P<value>.*)", re.DOTALL)


def chosen(table: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Rows that meet every condition; an absent value meets none.

    `~` means contains, ignoring case; the others compare numbers if the column has numbers.

    Raises:
        UsageError: a condition is not `COLUMN SIGN VALUE`, or there is no such column.
    """
    for condition in conditions:
        table = table[_mask(table, condition).fillna(value=False).to_numpy(dtype=bool)]
    return table


def _mask(table: pd.DataFrame, condition: str) -> pd.Series:
    match = _CONDITION.fullmatch(condition.strip()) if isinstance(condition, str) else None
    if not match:
        raise UsageError(f"{shown(condition)}: write COLUMN SIGN VALUE, such as rank=0, wait_ns>1e6 or name~nccl")
    if match["column"] not in table:
        raise UsageError(f"no column {match['column']!r}; there are {', '.join(map(str, table.columns))}")
    column, value = table[match["column"]], match["value"].strip()
    if match["sign"] == "~":
        return column.astype("string").str.contains(value, case=False, regex=False)
    if pd.api.types.is_bool_dtype(column):
        return _compared(column.astype("string").str.lower(), match["sign"], value.lower())
    if pd.api.types.is_numeric_dtype(column):
        return _compared(column, match["sign"], _number(value, condition))
    return _compared(column.astype("string"), match["sign"], value)


def _compared(column: pd.Series, sign: str, value: object) -> pd.Series:
    methods = {"=": column.eq, "!=": column.ne, ">": column.gt, "<": column.lt, ">=": column.ge, "<=": column.le}
    compared: pd.Series = methods[sign](value)
    return compared.where(column.notna(), other=False)


def _number(text: str, condition: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise UsageError(f"{condition!r}: {text!r} is not a number")
    return number
