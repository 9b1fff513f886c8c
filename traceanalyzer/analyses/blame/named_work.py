"""What ranks ran in a step and part, by name, as arrays: one rank's own beside what the others take for it."""

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.sizes import SIZES
from traceanalyzer.analyses.blame.what_ran import OPERATOR
from traceanalyzer.model.tables import array_of, floats

_UNKNOWN = np.full(3, np.nan)


class NamedWork(Struct, frozen=True):
    """What ran, on arrays: there are many cells, and few names in each."""

    rank: np.ndarray
    what: np.ndarray
    name: np.ndarray
    sums: np.ndarray
    """Time, calls and blocks of each row as floats; 0 where they are not known."""

    @classmethod
    def of(cls, work: pd.DataFrame) -> "NamedWork":
        """The rows of `what_ran`."""
        sums = [floats(work[name]) for name in ("total_ns", "calls", "blocks")]
        what, name = (work[column].to_numpy(dtype=object) for column in ("what", "name"))
        return cls(array_of(work, "rank"), what, name, np.nan_to_num(np.stack(sums, axis=1)))

    def at(self, rows: np.ndarray) -> "NamedWork":
        """These rows."""
        return NamedWork(self.rank[rows], self.what[rows], self.name[rows], self.sums[rows])

    def of_kind(self, what: str) -> "NamedWork":
        """The rows of `what`: of operators, say."""
        return self.at(np.flatnonzero(self.what == what))


class Beside:
    """What some ranks ran in one step and part: medians over them by name; who has none of it has 0."""

    def __init__(self, names: NamedWork, others: np.ndarray) -> None:
        self.names = names
        self.others = np.sort(others)
        self._known: dict[str, dict[str, np.ndarray]] = {}

    def medians(self, what: str, names: np.ndarray) -> np.ndarray:
        """Of time, calls and blocks, a row for each of the names; NaN where none of the ranks has it."""
        if what not in self._known:
            own = self.names.of_kind(what)
            place = {name: number for number, name in enumerate(dict.fromkeys(own.name))}
            sums = np.zeros((len(self.others), len(place), 3))
            row, column = (
                np.searchsorted(self.others, own.rank),
                np.array([place[name] for name in own.name], dtype=int),
            )
            np.add.at(sums, (row, column), own.sums)
            self._known[what] = dict(zip(place, np.median(sums, axis=0), strict=True)) if place else {}
        known = self._known[what]
        return np.array([known.get(name, _UNKNOWN) for name in names]).reshape(len(names), 3)

    def of_other_sizes(self, stem: str, shared: frozenset[str]) -> float:
        """The median over the ranks of the time in an operator of sizes that are not among the `shared` names."""
        own = self.names.of_kind(OPERATOR)
        is_other = np.array([name.startswith(stem + SIZES) and name not in shared for name in own.name], dtype=bool)
        total = np.zeros(len(self.others))
        np.add.at(total, np.searchsorted(self.others, own.rank[is_other]), own.sums[is_other, 0])
        return float(np.median(total))
