"""One analysis' small tables of several ranks under each other: partial answers, which are joined in a tree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.model.tables import columns_as_they_are, picked, table_of, under_each_other


@dataclass(frozen=True, slots=True, eq=False)
class RankTables(Mapping[int, pd.DataFrame]):
    """A table for each of some numbers, which are ranks, or places in the order of files.

    Joining is associative: the same tables in the same order give the same one, whatever was joined first.

    Attributes:
        numbers: as their rows follow each other.
        counts: rows of each.
        pieces: tables that hold the rows, of one number each or, once joined, of all.
    """

    numbers: np.ndarray
    counts: np.ndarray
    pieces: tuple[pd.DataFrame, ...]

    @classmethod
    def of(cls, tables: Mapping[int, pd.DataFrame]) -> "RankTables":
        """Tables in the order in which they come."""
        counts = np.array([len(table) for table in tables.values()], dtype=np.int64)
        held = tuple(table for table in tables.values() if len(table))
        return cls(np.array([*tables], dtype=np.int64), counts, held)

    @classmethod
    def joined(cls, parts: Sequence["RankTables"]) -> "RankTables":
        """What the parts hold, one after the other, as one piece."""
        numbers = np.concatenate([part.numbers for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        return cls(numbers, counts, _as_one([piece for part in parts for piece in part.pieces]))

    def moved(self, by: int) -> "RankTables":
        """The same under numbers that are as much larger."""
        return RankTables(self.numbers + by, self.counts, self.pieces)

    def renumbered(self, numbers: Mapping[int, int]) -> "RankTables":
        """The tables of these numbers, in order of the new ones that they are given."""
        new = np.array([numbers.get(number, -1) for number in self.numbers.tolist()], dtype=np.int64)
        order = np.flatnonzero(new >= 0)
        order = order[np.argsort(new[order], kind="stable")]
        if len(order) == len(new) and (order == np.arange(len(order))).all():
            return RankTables(new, self.counts, self.pieces)
        counts, begins = self.counts[order], (np.cumsum(self.counts) - self.counts)[order]
        rows = np.arange(counts.sum()) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
        pieces = tuple(picked(piece, rows) for piece in _as_one(self.pieces)) if len(rows) else ()
        return RankTables(new[order], counts, pieces)

    def under_each_other(self) -> pd.DataFrame | None:
        """All rows, with their numbers as the column `rank`, first; names of categories are texts. `None`: no row."""
        if not self.pieces:
            return None
        (table,) = _as_one(self.pieces)
        rank = np.repeat(self.numbers, self.counts)
        return table_of({"rank": rank} | columns_as_they_are(table) | {"rank": rank})

    def __getitem__(self, number: int) -> pd.DataFrame:
        place = np.flatnonzero(self.numbers == number)
        if not len(place):
            raise KeyError(number)
        if not self.counts[place[0]]:
            return pd.DataFrame()
        end = int(self.counts[: place[0] + 1].sum())
        return picked(_as_one(self.pieces)[0], np.arange(end - int(self.counts[place[0]]), end))

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers.tolist())

    def __len__(self) -> int:
        return len(self.numbers)


def _as_one(pieces: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, ...]:
    """The pieces as one, or none; categories differ from rank to rank, so that their names are texts from here on."""
    return (under_each_other(pieces, is_with_texts=True),) if pieces else ()
