"""Grouping rows by keys on arrays, pivoting, and row blocks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    columns_of,
    floats,
    nowhere,
    nullable,
    spilled_arrays,
    table_of,
)

# Rows of a table that share their keys, on arrays: pandas' own grouping takes a millisecond for the smallest table.


_MOST, _SHORT = 2**62, np.dtype(np.uint16)
"""Of combined keys; the type of numbers that sort in one pass."""


class Groups(Struct, frozen=True):
    """Groups of a table's rows.

    Attributes:
        keys: the columns that name a group, one row for each group, in the types that the table has them in.
        first: the first row of each group in the table.
        of_row: for each row of the table the position of its group; -1 where a key is absent.
    """

    keys: dict[str, Any]
    first: np.ndarray
    of_row: np.ndarray
    _order: np.ndarray
    _starts: np.ndarray
    _counts: np.ndarray

    @classmethod
    def of(
        cls,
        table: pd.DataFrame | Mapping[str, Any],
        by: Sequence[str] = (),
        *,
        by_appearance: bool = False,
        with_absent: bool = False,
    ) -> "Groups":
        """Rows of one value in each column of `by`, else in all, in order of these values, or of appearance.

        Rows of absent values are in no group, or, `with_absent`, in groups of their own after the others. Categories
        are in their own order, texts in that of their letters.
        """
        columns = columns_of(table) if isinstance(table, pd.DataFrame) else table
        by = by or [*columns]
        rows_in_all = len(columns[by[0]])
        held, combined, size = np.ones(rows_in_all, dtype=bool), np.zeros(rows_in_all, dtype=np.int64), 1
        for name in by:
            codes, count = _codes(columns[name])
            if with_absent:
                codes, count = np.where(codes == NONE, count, codes), count + 1
            held &= codes != NONE
            if size * count > _MOST:  # made dense again, so that many keys never exceed an integer
                combined = np.unique(combined, return_inverse=True)[1]
                size = len(combined)
            combined, size = combined * count + codes, size * max(1, count)
        rows = np.flatnonzero(held)
        number, distinct = pd.factorize(combined[rows], sort=not by_appearance)
        counts = np.bincount(number, minlength=len(distinct))
        order = rows[stable_order(number)]
        starts = np.cumsum(counts) - counts
        of_row = nowhere(rows_in_all)
        of_row[rows] = number
        first = order[starts]
        return cls({name: columns[name].take(first) for name in by}, first, of_row, order, starts, counts)

    @classmethod
    def of_numbers(cls, numbers: np.ndarray) -> "Groups":
        """Rows of the same number, in order of numbers; they have no keys."""
        order = stable_order(numbers)
        starts = np.flatnonzero(np.append(True, np.diff(numbers[order]) != 0)[: len(order)])
        counts = np.diff(np.append(starts, len(order)))
        of_row = np.empty(len(order), dtype=np.int64)
        of_row[order] = np.repeat(np.arange(len(starts)), counts)
        return cls({}, order[starts], of_row, order, starts, counts)

    def __len__(self) -> int:
        return len(self.first)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """For each group the sum of its rows' integers; of a mask how many are in it."""
        return self._over(np.add, values.astype(np.int64, copy=False))

    def counts(self) -> np.ndarray:
        """For each group how many rows it has."""
        return self._counts

    def distinct(self, numbers: np.ndarray) -> np.ndarray:
        """For each group how many different numbers its rows have: numbers from 0 on."""
        held = self.of_row != NONE
        count = int(numbers.max(initial=0)) + 1
        pairs = np.unique(self.of_row[held] * count + numbers[held])
        return np.bincount(pairs // count, minlength=len(self))

    def largest(self, values: np.ndarray) -> np.ndarray:
        """For each group the largest of its rows' integers."""
        return self._over(np.maximum, values)

    def smallest(self, values: np.ndarray) -> np.ndarray:
        """For each group the smallest of its rows' integers."""
        return self._over(np.minimum, values)

    def medians(self, values: np.ndarray) -> np.ndarray:
        """For each group the median of its rows' integers, as floats."""
        held = self.of_row != NONE
        medians: np.ndarray = pd.Series(values[held]).groupby(self.of_row[held]).median().to_numpy(dtype=np.float64)
        return medians

    def spread(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """For each group how many rows it has, and total, median, smallest and largest of their times (ns)."""
        return {
            "calls": self.counts(),
            "total_ns": self.sums(values),
            "median_ns": self.medians(values),
            "min_ns": self.smallest(values),
            "max_ns": self.largest(values),
        }

    def any(self, mask: np.ndarray) -> np.ndarray:
        """For each group whether one of its rows is in the mask."""
        return self.largest(mask.astype(np.int8)).astype(bool)

    def first_known(self, values: Any) -> Any:
        """For each group the first value of its rows that is known; absent where none is."""
        first = self.smallest(np.where(values.isna(), len(values), np.arange(len(values))))
        return values.take(np.where(first < len(values), first, NONE), allow_fill=True)

    def only_known(self, values: pd.Categorical) -> pd.Categorical:
        """For each group the known value of its rows where there is but one."""
        first = self.first_known(values)
        differs = self.any((values.codes != NONE) & (values.codes != first.codes[self.of_row]))
        return first.take(np.where(differs, NONE, np.arange(len(self))), allow_fill=True)

    def table(self, **columns: Any) -> pd.DataFrame:
        """A row for each group: its keys and these columns."""
        return table_of({**self.keys, **columns})

    def total(self, values: Any) -> Any:
        """For each group the sum of its rows' integers as far as they are known; absent where none is."""
        if not isinstance(values, pd.arrays.IntegerArray):
            return self.sums(values)
        is_absent = values.isna()
        known = self.sums(~is_absent)
        return nullable(self.sums(values.to_numpy(dtype=np.int64, na_value=0)), known == 0)

    def _over(self, ufunc: np.ufunc, values: np.ndarray) -> np.ndarray:
        if not len(self._starts):
            return np.empty(0, dtype=values.dtype)
        return ufunc.reduceat(values[self._order], self._starts)


def sums_at(places: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """For each place from 0 to `count` the sum of the integers that are at it; 0 where none is."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, places, values)
    return sums


def extreme_at(ufunc: np.ufunc, places: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """For each place from 0 to `count` the least or largest integer (`np.minimum`, `np.maximum`); 0 where none is."""
    found = np.zeros(count, dtype=np.int64)
    found[places] = values
    ufunc.at(found, places, values)
    return found


def number_in_group(groups: np.ndarray) -> np.ndarray:
    """For each row how many rows of its group come before it."""
    numbers: np.ndarray = pd.Series(groups).groupby(groups).cumcount().to_numpy()
    return numbers


def by_category(values: Any, tell: Callable[[str], object]) -> np.ndarray:
    """The answer for each of a categorical's values by its name, which is asked once; `None` where it is absent."""
    codes, names = values.codes, values.categories.tolist()
    answers = np.full(len(names) + 1, None, dtype=object)
    for code in np.unique(codes[codes != NONE]).tolist():
        answers[code] = tell(names[code])
    return answers[codes]


def rows_of_each(values: np.ndarray) -> list[np.ndarray]:
    """Positions of each distinct value, in order of values; those of one as they come."""
    order = stable_order(values)
    ordered = values[order]
    return np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1) if len(order) else []


def largest_before(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """For each row the largest of the values of its group's rows before it; -1 for the first of a group."""
    found = nowhere(len(values))
    if len(values) < 2:
        return found
    order = stable_order(groups)
    number = np.cumsum(np.append(False, np.diff(groups[order]) != 0))
    # Places among the sorted values instead of these, so that each group's can lie above those of the one before.
    ranked = np.argsort(values, kind="stable")
    place = np.empty(len(values), dtype=np.int64)
    place[ranked] = np.arange(len(values))
    reach = np.maximum.accumulate(place[order] + number * len(values)) - number * len(values)
    is_first = np.append(True, number[1:] != number[:-1])
    found[order[1:]] = np.where(is_first[1:], NONE, values[ranked[reach[:-1]]])
    return found


def stable_order(numbers: np.ndarray) -> np.ndarray:
    """Positions in ascending order of integers, equal ones as they come.

    Those of 16 bits sort in one pass: a twentieth of the time for codes of 18,000 rows.
    """
    if len(numbers) and numbers.dtype.kind in "iu" and numbers.dtype.itemsize > _SHORT.itemsize:
        least = int(numbers.min())
        if int(numbers.max()) - least <= np.iinfo(_SHORT).max:
            numbers = (numbers - least).astype(_SHORT)
    return np.argsort(numbers, kind="stable")


def _codes(values: Any) -> tuple[np.ndarray, int]:
    """For each row the position of its value among the column's sorted ones, and how many they are; -1 for absent."""
    if isinstance(values, pd.Categorical):
        return values.codes.astype(np.int64), len(values.categories)
    codes, distinct = pd.factorize(values, sort=True)
    return codes.astype(np.int64), len(distinct)


# What is derived of one trace, or of some tables, alone, and asked for often: made once, kept while they live.


P = ParamSpec("P")
T = TypeVar("T")


def memoized_by_trace(make: Callable[[RankTrace], T]) -> Callable[[RankTrace], T]:
    """`make`, whose answer is remembered for each trace.

    For small answers that many analyses read deep inside; what is large is `SHARED` of the registry and goes when the
    rank's tables are made. Callers must not change the answer, and it must not hold the trace, which then never went.
    """
    made: WeakKeyDictionary[RankTrace, T] = WeakKeyDictionary()

    @wraps(make)
    def of(trace: RankTrace) -> T:
        try:
            return made[trace]
        except KeyError:
            answer = make(trace)
            return made.setdefault(trace, spilled_arrays(answer) if trace.is_large else answer)

    return of


def memoized_by_tables(make: Callable[P, T]) -> Callable[P, T]:
    """`make` of tables, or of what holds them, by position, and of values by name: remembered while the tables live.

    They are compared by identity: tables of Results, which nobody changes. Callers must not change the answer
    either; one that holds a table (or is one of them) would keep it for ever, and is made anew each time.
    """
    made: dict[tuple[Any, ...], tuple[list[ref[Any]], T]] = {}

    @wraps(make)
    def of(*tables: P.args, **named: P.kwargs) -> T:
        key = (*map(id, tables), *named.items())
        if key in made:
            return made[key][1]
        answer = make(*tables, **named)
        if not any(answer is table for table in tables):
            made[key] = ([ref(table, lambda _gone: made.pop(key, None)) for table in tables], answer)
        return answer

    return of


# How large tables are gone through: so many rows at once that what is needed on the way stays small.
#
# Only what comes of a block is kept; what is open at its end is taken along to the next, so that no figure
# depends on it.


MOST_ROWS = 1 << 15
"""Rows of a table that are gone through at once."""


def row_blocks(count: int) -> Iterator[slice]:
    """Rows of a table of so many, block after block; one block, if empty, of a table without."""
    for first in range(0, max(count, 1), MOST_ROWS):
        yield slice(first, min(first + MOST_ROWS, count))


def time_blocks(times: Sequence[np.ndarray]) -> Iterator[tuple[list[slice], int | None]]:
    """Rows of several tables, whose ascending times these are, from one moment to the next, and that moment.

    Each table has at most `MOST_ROWS` of them in a block, unless more are of one time; rows of one time are in one
    block. `None` stands for the end.
    """
    cuts = np.unique(np.concatenate([own[MOST_ROWS::MOST_ROWS] for own in times]))
    edges = [np.concatenate([[0], own.searchsorted(cuts), [len(own)]]).tolist() for own in times]
    for place, until in enumerate([*cuts.tolist(), None]):
        yield [slice(own[place], own[place + 1]) for own in edges], until


# What each rank has in each step, as a table with a row for each step and a column for each rank.


def by_step_and_rank(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The column's values by `step` and `rank`, as floats; NaN where there is none, the mean where there are several.

    Steps and ranks without any value are left out.
    """
    return table.assign(value=floats(table[name])).pivot_table(values="value", index="step", columns="rank")
