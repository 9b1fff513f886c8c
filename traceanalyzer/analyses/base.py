"""What an analysis gives: a Result is one table with its keys and the definition of every column."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from operator import index
from typing import Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.columns import Column, Unit, Written
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    columns_as_they_are,
    columns_of,
    nullable,
    pandas_set_up,
    table_of,
    under_each_other,
    with_columns,
    without_rows,
)
from traceanalyzer.validation import shown

# Columns that several tables have.


RANK = Column.ident("Global rank.")
GROUP_RANKS = Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label")
COLLECTIVE = Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE)
GROUP_LABEL = Column.text(
    "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
)
GROUP_IF_KNOWN = Column.text("Process group; absent when the trace does not say.", replaced_by="group_label")
GROUP_NAME = Column.text("Process group.", replaced_by="group_label")
CALL = Column.ident("Position among the rank's communication operations.")
STEP_OF_LAUNCH = Column.ident("Step that launched it; absent for none.")
GPU_START = Column.moment("Start on the GPU.")
GPU_END = Column.moment("End on the GPU.")
INNERMOST_RANGE = Column.text("The user's innermost range around the launch.", written=Written.KERNEL)
NAME = Column.text("Name as the trace has it.", written=Written.KERNEL)
KIND = Column.text("compute, comm or copy.", written=Written.KIND, is_aside=True)


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """One table of figures. Subclasses state what it means; the table holds integers, ratios are derived.

    Attributes:
        table: the rows, with `stored` columns.
    """

    table: pd.DataFrame
    _shown: list[pd.DataFrame] = field(default_factory=list, init=False, compare=False)
    """The answer of `to_frame()` once it was asked for."""

    title: ClassVar[str] = ""
    """Heading in a report."""
    keys: ClassVar[tuple[str, ...]] = ()
    """Columns that together name a row, once."""
    columns: ClassVar[Mapping[str, Column]] = {}
    """Every column of `to_frame()`, in order. A name ends in its unit."""
    derived: ClassVar[Mapping[str, str]] = {}
    """Formulas of columns that follow from others, as `figures` takes them; those of shares are in percent."""
    stored: ClassVar[tuple[str, ...]] = ()
    """Columns of the table beside these, of which others are derived."""
    joined_by: ClassVar[tuple[str, ...]] = ()
    """Columns by which two runs' rows are joined, where keys are names that each run gives anew (process groups)."""
    is_of_one_run: ClassVar[bool] = False
    """It says something of one capture, or a comparison shows it otherwise: no table of two runs is made of it."""
    is_of_a_moment: ClassVar[bool] = False
    """Its sums are of one moment, such as a peak: more steps do not make them more."""
    is_detail: ClassVar[bool] = False
    """A row for each event: written as a table of its own, left out of `summary.json` and pages."""
    is_event_copy: ClassVar[bool] = False
    """The events themselves, in the form that a page draws: no table at all; `--format parquet` has the events."""

    @classmethod
    def of_ranks(cls, parts: Mapping[int, pd.DataFrame]) -> Self:
        """The ranks' rows under each other: all that many an analysis does across ranks."""
        return cls(stack(parts, (*cls.columns, *cls.stored)))

    @classmethod
    def without_rows(cls) -> Self:
        """The answer where there is none to give."""
        return cls(without_rows((*cls.columns, *cls.stored)))

    def complete(self) -> Self:
        """The same; without rows it has all of its columns, which its table may lack."""
        if len(self):
            return self
        shown = self.to_frame()
        made = replace(self, table=shown.reindex(columns=[*self.columns, *self.stored]))
        made._shown.append(shown)  # noqa: SLF001 - its own
        return made

    @classmethod
    def meaning(cls) -> str:
        """The definition of a row: the first line of the class's docstring."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    def to_frame(self) -> pd.DataFrame:
        """The table with derived columns, in the order of `columns`; absent values are NA."""
        if not self._shown and not len(self):  # what is derived of no rows has no types
            self._shown.append(without_rows(self.columns))
        if not self._shown:
            with pandas_set_up():
                held = columns_as_they_are(self._derived(self.table))
            self._shown.append(table_of({name: held[name] for name in self.columns}))
        return self._shown[0].copy(deep=False)

    def head(self, n: int = 5) -> pd.DataFrame:
        """The first rows of `to_frame()`, as pandas has it.

        Raises:
            UsageError: `n` is no whole number.
        """
        try:
            rows = index(n)
        except TypeError as error:
            raise UsageError(f"head takes a whole number of rows, not {shown(n)}") from error
        return self.to_frame().head(rows)

    def where(self, *conditions: str, **values: Any) -> Self:
        """The same with only the rows that pass all conditions; shares and the like stay as they were of all rows.

            ta.kernels(traces).where("total_ns>1e6", "name~nccl", rank=0)

        Args:
            conditions: `COLUMN SIGN VALUE` with =, !=, >, <, >=, <= or ~ (contains, any case).
            values: a column's wanted value, or a list of them.

        Raises:
            UsageError: a condition makes no sense, or there is no such column.
        """
        frame = self.to_frame()
        rows = chosen(frame, conditions)
        for name, wanted in values.items():
            if name not in frame:
                raise UsageError(f"no column {name!r}; there are {', '.join(map(str, frame.columns))}")
            if callable(wanted) or isinstance(wanted, Mapping):
                raise UsageError(f"{name} takes a value or a list of them, not {shown(wanted)}")
            is_list = isinstance(wanted, Iterable) and not isinstance(wanted, str | bytes)
            rows = rows[rows[name].isin(list(wanted) if is_list else [wanted])]
        is_row_for_row = len(self.table) == len(frame)
        made = replace(self, table=self.table.iloc[rows.index] if is_row_for_row else rows)
        made._shown.append(rows.reset_index(drop=True))  # noqa: SLF001 - one of its own kind
        return made

    def rows(self) -> list[dict[str, Any]]:
        """The table as plain Python rows; absent values are `None`."""
        return plain_rows(self.to_frame())

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"{type(self).__name__}\n{self.to_frame()!r}" if len(self) else self._none()

    def _repr_html_(self) -> str:
        if not len(self):
            return f"<p>{escape(self._none())}</p>"
        return f"<p><b>{escape(self.title)}</b> {escape(self.meaning())}</p>{self.to_frame()._repr_html_()}"

    def _none(self) -> str:
        """What stands for a table without rows."""
        return f"{self.title}: no rows. {self.meaning()}"

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table with its `derived` columns."""
        for name, formula in self.derived.items():
            value = figures(table, formula)
            table = table.assign(**{name: 100.0 * value if self.columns[name].unit is Unit.PCT else value})
        return table

    @classmethod
    def _with(cls, table: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
        """The table with these columns, which are of its own: others are type errors."""
        return with_columns(table, **cast("dict[str, Any]", columns))


def plain_values(column: pd.Series) -> list[Any]:
    """Python values of a column with `None` for NA."""
    return _listed(column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array)


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A table's rows as Python values with `None` for NA."""
    plain = {str(name): _listed(values) for name, values in columns_of(frame).items()}
    return [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]


def _listed(values: Any) -> list[Any]:
    """The same of an array: of a Series it takes several times as long."""
    made: list[Any] = values.tolist()
    if values.dtype.kind in "iub" and isinstance(values, np.ndarray):
        return made
    absent = pd.isna(values)
    return [None if gone else value for value, gone in zip(made, absent, strict=True)] if absent.any() else made


def percent(part: pd.Series, whole: pd.Series) -> pd.Series:
    """Return 100 · part / whole; NA where whole is 0 or either is absent."""
    return 100.0 * ratio(part, whole)


OF_A_MEAN_RANK: Mapping[str, str] = {
    "calls": "all_calls / ranks",
    "total_ns": "all_ns / ranks",
    "mean_ns": "all_ns / all_calls",
    "share_pct": "all_ns / all",
}
"""What a mean rank does of each thing, from `all_calls` and `all_ns` (ns) of all `ranks` together."""

STORED_OF_A_MEAN_RANK = ("all_calls", "all_ns", "ranks")


def figures(table: pd.DataFrame, formula: str) -> pd.Series:
    """What a formula gives row by row: `a - b`, `a / b`, `a - b / c` (the difference over c).

    `a / rank` is over the sum of the rank's rows, `a / all` over that of all rows.
    """
    above, _, below = formula.partition(" / ")
    first, *others = above.split(" ")
    value = table[first]
    for sign, name in zip(others[::2], others[1::2], strict=True):
        value = value + table[name] if sign == "+" else value - table[name]
    if not below:
        return value
    if below == "rank":
        return ratio(value, value.groupby(table["rank"]).transform("sum"))
    return ratio(value, pd.Series(value.sum(), value.index) if below == "all" else table[below])


def ratio(part: pd.Series, whole: pd.Series) -> pd.Series:
    """Return part / whole, row by row, as Float64; NA where whole is 0 or either is absent."""
    return part.astype("Float64") / whole.astype("Float64").where(whole != 0)


def is_true(flags: pd.Series) -> pd.Series:
    """Where a flag is known, and set: an absent one is not."""
    return flags.fillna(value=False).astype(bool)


def all_known(values: np.ndarray) -> pd.arrays.IntegerArray:
    """Integers that are all known, as a column that may have absent ones."""
    return nullable(values, np.zeros(len(values), dtype=bool))


def stack(parts: Mapping[int, pd.DataFrame], columns: Mapping[str, Any] | tuple[str, ...] = ()) -> pd.DataFrame:
    """Rows of all ranks under each other, in order of rank, with a `rank` column first.

    `columns` names the columns that an empty answer still has.
    """
    # Names as plain strings: categories differ from rank to rank, and these tables are small.
    held = {rank: table for rank, table in sorted(parts.items()) if len(table)}
    if not held:
        return without_rows(dict.fromkeys(["rank", *columns]))
    rank = np.repeat(np.array([*held], dtype=np.int64), [*map(len, held.values())])
    table = under_each_other([*held.values()], is_with_texts=True)
    return table_of({"rank": rank} | columns_as_they_are(table) | {"rank": rank})


def joined(parts: Sequence[pd.Categorical]) -> pd.Categorical:
    """Names under each other: every category of every part, those of the first part first."""
    return union_categoricals(parts) if parts else pd.Categorical([])


def taken(values: pd.Categorical, rows: np.ndarray) -> pd.Categorical:
    """Values by row; absent for negative rows."""
    return values.take(np.maximum(rows, NONE), allow_fill=True)


# Conditions on rows: `rank=0`, `wait_ns>1e6`, `name~nccl`.


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
