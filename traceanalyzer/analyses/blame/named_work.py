"""What ranks ran in a step and part, by name, as arrays: one rank's own beside what the others take for it."""

import re

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.sizes import SIZES
from traceanalyzer.analyses.blame.what_ran import OPERATOR
from traceanalyzer.analyses.blame.work_names import OF_DATA
from traceanalyzer.model.tables import array_of, floats

_THROUGHOUT = 0.7
"""Part of the time in the same kernels in which they are slower: a slow GPU slows them all, or nearly all."""

_SLOWER = 0.2
"""How much slower, of what all together are: a GPU that is shared slows this kernel or that one more, step by step."""

_UNKNOWN = np.full(3, np.nan)


class NamedWork(Struct, frozen=True):
    """What ran, on arrays: there are many cells, and few names in each."""

    rank: np.ndarray
    what: np.ndarray
    name: np.ndarray
    sums: np.ndarray
    """Time, calls and the number of the work of each row as floats; 0 where they are not known."""

    @classmethod
    def of(cls, work: pd.DataFrame) -> "NamedWork":
        """The rows of `what_ran`."""
        sums = [floats(work[name]) for name in ("total_ns", "calls", "work")]
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
        """Of time, calls and work, a row for each of the names; NaN where none of the ranks has it."""
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


class Alike(Struct, frozen=True):
    """Names under which the rank and its peers do the same work, and the time in each: its own, and theirs."""

    name: np.ndarray
    own_ns: np.ndarray
    peers_ns: np.ndarray

    @property
    def sums(self) -> tuple[float, float]:
        """Time in all of them: its own, and theirs."""
        return float(self.own_ns.sum()), float(self.peers_ns.sum())

    @property
    def excess_ns(self) -> float:
        """By how much its own is more."""
        own_ns, peers_ns = self.sums
        return own_ns - peers_ns

    def of(self, pattern: re.Pattern[str]) -> "Alike":
        """Those whose name begins with the pattern."""
        return self.at(np.array([pattern.match(name) is not None for name in self.name], dtype=bool))

    def at(self, held: np.ndarray) -> "Alike":
        """Those of a mask."""
        return Alike(self.name[held], self.own_ns[held], self.peers_ns[held])

    def are_slower(self) -> np.ndarray:
        """Mask of those that are slower, by a fifth of what all together are."""
        own_ns, peers_ns = self.sums
        mask: np.ndarray = (self.own_ns - self.peers_ns) * peers_ns >= _SLOWER * (own_ns - peers_ns) * self.peers_ns
        return mask

    def are_slower_throughout(self) -> bool:
        """Whether most of the time is in those that are slower."""
        return bool(self.peers_ns[self.are_slower()].sum() >= _THROUGHOUT * self.peers_ns.sum())


def alike(own: NamedWork, beside: Beside, what: str) -> Alike:
    """What of the rank's names may be the same work; names of what depends on the data are none of it."""
    held = own.of_kind(what)
    typical = beside.medians(what, held.name)
    same = (held.sums[:, 1:] == typical[:, 1:]).all(axis=1)
    same &= np.array([OF_DATA.search(name) is None for name in held.name], dtype=bool)
    return Alike(held.name[same], held.sums[same, 0], typical[same, 0])
