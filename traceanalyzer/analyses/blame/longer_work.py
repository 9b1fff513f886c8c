"""What takes longer on a rank than on its peers, by name; and whether it is the same work, only slower."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.slow_transfers import COLLECTIVE, TRANSFER
from traceanalyzer.analyses.blame.step_budget import (
    DOING,
    HAS_KNOWN_WORK,
    KERNEL,
    OF_DATA,
    OPERATOR,
    OTHER_PROCESS,
    RANGE,
    SIZES,
    SLICE,
)
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import NOTHING
from traceanalyzer.analyses.statistics import SHARE

_KINDS = (OPERATOR, DOING, RANGE, KERNEL, "copy", COLLECTIVE)
"""The most telling first."""

Longer = tuple[str | None, str | None, float, float]
"""What a name is of, and the name; and the time of the same work: the rank's own, and its peers'."""


class Side(Struct, frozen=True):
    """What a rank ran in some steps and one part, by name, beside what its peers run in a median.

    Attributes:
        what: of each name what it is of.
        name: the names.
        own: time in ns, calls and the number of the work of each (names × 3).
        peers: the same, as its peers have it.
    """

    what: np.ndarray
    name: np.ndarray
    own: np.ndarray
    peers: np.ndarray

    @property
    def extra_ns(self) -> np.ndarray:
        """By how much the rank takes longer for each."""
        extra: np.ndarray = self.own[:, 0] - self.peers[:, 0]
        return extra

    @property
    def sums(self) -> tuple[float, float]:
        """Time in all of them: its own, and its peers'."""
        return float(self.own[:, 0].sum()), float(self.peers[:, 0].sum())

    @property
    def excess_ns(self) -> float:
        """By how much it takes longer for all of them."""
        return float(self.extra_ns.sum())

    def at(self, held: np.ndarray) -> "Side":
        """The names of a mask."""
        return Side(self.what[held], self.name[held], self.own[held], self.peers[held])

    def of(self, what: str) -> "Side":
        """What the rank ran of a kind."""
        return self.at((self.what == what) & (self.own[:, 0] > 0))

    def named(self, is_so: Callable[[str], object]) -> np.ndarray:
        """Mask of the names of which something is true."""
        return np.array([bool(is_so(name)) for name in self.name], dtype=bool)

    def alike(self) -> "Side":
        """What may be the same work: as many calls of as much, by a name that does not depend on the data."""
        return self.at((self.own[:, 1:] == self.peers[:, 1:]).all(axis=1) & ~self.named(OF_DATA.search))

    def slower(self) -> "Side":
        """Those that are slower, by half of what all together are."""
        return self.at(self.extra_ns * self.sums[1] >= SHARE * self.excess_ns * self.peers[:, 0])


def named(cells: pd.DataFrame, late: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The cells with the name that is longer than on the peers by half of what the rank's part is: `what`, `name`.

    `same_ns` and `peers_same_ns`: what the rank and its peers take for the kernels that all of them run, where these
    make at least half of the excess; NaN elsewhere. Where only some are slower, of these, which are then the name.
    """
    peers = late.drop_duplicates("rank").set_index("rank")["peers"].sort_index()
    has_sizes = (work["what"] == OPERATOR) & work["name"].astype("str").str.contains(SIZES, regex=False)
    is_sized = peers.index.isin(work.loc[has_sizes, "rank"])
    every = lru_cache(None)(lambda part, steps: _every(work, part, steps, peers.index))
    medians: dict[tuple[str, tuple[int, ...], bytes], np.ndarray] = {}
    found: dict[tuple[int, str], Longer] = {}
    for (rank, part), own in cells.groupby(["rank", "part"]):
        steps = tuple(sorted(own["step"]))
        what, name, sums = every(part, steps)
        # A transfer is named by its group, of which peers may be members.
        others, held = peers.index != rank, np.ones(len(name), dtype=bool)
        is_late = peers.index.isin(cells.loc[cells["step"].isin(steps), "rank"])
        for mask in ((peers == peers[rank]).to_numpy() | (part == TRANSFER), ~is_late):
            others = others & mask if (others & mask).any() else others
        # Operators are compared where either have sizes in their names, as some ranks' captures do (`record_shapes`).
        is_alike = is_sized == is_sized[peers.index.get_loc(rank)]
        if (others & is_alike).any():
            others = others & is_alike
        else:
            held = what != OPERATOR
        key = (part, steps, others.tobytes())
        if key not in medians:
            medians[key] = np.median(sums[others], axis=0)
        side = Side(what, name, sums[peers.index.get_loc(rank)], medians[key]).at(held)
        found[rank, part] = _longer(side, float(own["excess_ns"].sum()))
    values = [found[key] for key in zip(cells["rank"], cells["part"], strict=True)]
    return cells.join(pd.DataFrame(values, cells.index, ["what", "name", "same_ns", "peers_same_ns"]))


def _every(
    work: pd.DataFrame, part: str, steps: Sequence[int], ranks: pd.Index
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What all ranks ran of a part in some steps: what, name, and by rank time, calls and the number of the work."""
    rows = work[(work["part"] == part) & work["step"].isin(steps) & work["rank"].isin(ranks)]
    codes, names = pd.factorize(pd.MultiIndex.from_frame(rows[["what", "name"]].astype("object")))
    sums = np.zeros((len(ranks), len(names), 3))
    values = rows[["total_ns", "calls", "work"]].astype("float64").fillna(0.0).to_numpy()
    np.add.at(sums, (ranks.get_indexer(rows["rank"]), codes), values)
    what, name = (np.array([pair[place] for pair in names], dtype=object) for place in (0, 1))
    return what, name, sums


def _longer(side: Side, excess_ns: float) -> Longer:
    kernels = side.of(KERNEL).alike()
    same = _is_same_work(side, kernels, excess_ns)
    if side.of(SLICE).excess_ns >= SHARE * excess_ns:  # another process has the GPU, whatever runs then
        return SLICE, OTHER_PROCESS, *kernels.sums
    if not same:
        return *_longest(side, excess_ns), np.nan, np.nan
    operators = side.of(OPERATOR).alike()
    slower = operators.slower()
    slower = slower.at(slower.extra_ns >= SHARE * excess_ns)
    told = operators if operators.sums[0] >= SHARE * kernels.sums[0] else kernels
    if _are_slower_throughout(told) or slower.excess_ns < SHARE * excess_ns:
        return None, None, *kernels.sums
    names = " and ".join(sorted({name.partition(SIZES)[0] for name in slower.name}))
    return OPERATOR, names, *slower.sums


def _are_slower_throughout(kernels: Side) -> bool:
    """Whether most of the time is in those that are slower."""
    return kernels.slower().sums[1] >= SHARE * kernels.sums[1]


def _is_same_work(side: Side, kernels: Side, excess_ns: float) -> bool:
    """Whether kernels that do the same work on the rank and its peers are the most of the excess.

    Not where neither shapes nor the many kernels that are slower tell that the work is the same: one kernel that alone
    takes longer may have more to do at the same place. Of kernels of CUDA graphs no shapes are known.
    """
    operators = side.of(OPERATOR)
    has_shapes = (
        operators.at(operators.named(lambda name: SIZES in name)).sums[0] >= SHARE * side.of(KERNEL).sums[0] > 0
    )
    by_shape = operators.alike()
    if kernels.excess_ns < SHARE * excess_ns or (has_shapes and by_shape.excess_ns < SHARE * excess_ns):
        return False
    is_told = has_shapes and by_shape.at(by_shape.named(HAS_KNOWN_WORK.match)).excess_ns >= SHARE * excess_ns
    return is_told or _are_slower_throughout(kernels)


def _longest(side: Side, excess_ns: float) -> tuple[str | None, str | None]:
    """Of the most telling kind the name that is longest beyond the peers', by half of the excess; of a host by itself.

    An operator goes without its sizes where it is so in all of them together. A phase holds all that a host does, and
    a launch is what it is to do; a host that is slow at everything is not slow by what it does most.
    """
    for what in _KINDS:
        own = side.of(what)
        if what in (DOING, RANGE):
            own = own.at(own.named(lambda name: _is_work(name, what)))  # noqa: B023 - asked at once
            own = own.at(own.extra_ns >= SHARE * own.own[:, 0])
        stems = np.array([name.partition(SIZES)[0] for name in own.name], dtype=object)
        for names in (own.name, stems) if len(stems) else ():
            extra_ns = pd.Series(own.extra_ns).groupby(names).sum()
            if extra_ns.max() >= SHARE * excess_ns:
                return what, str(extra_ns.idxmax())
    nothing = side.of(DOING)
    nothing = nothing.at(nothing.name == NOTHING)
    is_most = len(nothing.name) and nothing.excess_ns >= SHARE * max(excess_ns, nothing.own[0, 0])
    return (DOING, NOTHING) if is_most else (None, None)


def _is_work(name: str, what: str) -> bool:
    if host_names.holds_whole_pass(name):
        return False
    return what == RANGE or not (name == NOTHING or host_names.is_launch(name))
