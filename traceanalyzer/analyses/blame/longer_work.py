"""What takes longer on a rank than on its peers, by name; and whether it is the same work, only slower."""

from collections import Counter

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
from traceanalyzer.meaning.vocabulary import COMPUTE, HOST

_KINDS = (OPERATOR, DOING, RANGE, KERNEL, "copy", COLLECTIVE)
"""The most telling first."""

Named = tuple[str | None, str | None]
"""What a name is of, and the name."""

Longer = tuple[dict[Named, float], float, float]
"""Names that fit with how much longer they take, and the time of the same work: the rank's own, and its peers'."""


class Side(Struct, frozen=True):
    """What a rank ran in one step and part, by name, beside what others ran.

    Attributes:
        what: of each name what it is of.
        name: the names.
        own: time in ns, calls and the number of the work of each (names × 3).
        typical: the median of the ranks that it is held against.
        others: the same of each of these (ranks × names × 3).
    """

    what: np.ndarray
    name: np.ndarray
    own: np.ndarray
    typical: np.ndarray
    others: np.ndarray

    @property
    def extra_ns(self) -> np.ndarray:
        """By how much the rank takes longer for each."""
        extra: np.ndarray = self.own[:, 0] - self.typical[:, 0]
        return extra

    @property
    def sums(self) -> tuple[float, float]:
        """Time in all of them: its own, and theirs."""
        return float(self.own[:, 0].sum()), float(self.typical[:, 0].sum())

    @property
    def excess_ns(self) -> float:
        """By how much it takes longer for all of them."""
        return float(self.extra_ns.sum())

    def at(self, held: np.ndarray) -> "Side":
        """The names of a mask."""
        return Side(self.what[held], self.name[held], self.own[held], self.typical[held], self.others[:, held])

    def of(self, what: str) -> "Side":
        """What the rank ran of a kind."""
        return self.at((self.what == what) & (self.own[:, 0] > 0))

    def alike(self) -> "Side":
        """What may be the same work: as many calls of as much, by a name that does not depend on the data."""
        same = (self.own[:, 1:] == self.typical[:, 1:]).all(axis=1)
        return self.at(same & np.array([OF_DATA.search(name) is None for name in self.name], dtype=bool))

    def are_slower(self) -> np.ndarray:
        """Mask of those that are slower, by half of what all together are."""
        peers_ns = self.typical[:, 0]
        mask: np.ndarray = self.extra_ns * peers_ns.sum() >= SHARE * self.excess_ns * peers_ns
        return mask

    def are_slower_throughout(self) -> bool:
        """Whether most of the time is in those that are slower."""
        peers_ns = self.typical[:, 0]
        return bool(peers_ns[self.are_slower()].sum() >= SHARE * peers_ns.sum())


def named(cells: pd.DataFrame, late: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The cells with the name that is longer than on the peers by at least half of the part's excess: `what`, `name`.

    `same_ns` and `peers_same_ns`: what the rank and its peers take for the kernels that all of them run, where these
    make at least half of the excess; NaN elsewhere. Where only some are slower, of these, which are then the name.
    """
    found: list[Longer] = [({}, np.nan, np.nan)] * len(cells)
    has_sizes = (work["what"] == OPERATOR) & work["name"].astype("str").str.contains(SIZES, regex=False)
    sized = work.loc[has_sizes, "rank"].unique()
    peers = late.drop_duplicates("rank").set_index("rank")["peers"]
    rows_of = work.groupby(["step", "part"]).indices
    places = cells.reset_index(drop=True).groupby(["step", "part"]).indices
    for (step, part), own in places.items():
        ranks = np.sort(late.loc[late["step"] == step, "rank"].unique())
        if (step, part) not in rows_of or len(ranks) < 2:
            continue
        known: dict[tuple[bytes, int], np.ndarray] = {}
        is_late = np.isin(ranks, cells.loc[cells["step"] == step, "rank"])
        of_rank = peers[ranks].to_numpy()
        every = _every(work.iloc[rows_of[step, part]], ranks)
        for place in own:
            at = int(np.searchsorted(ranks, cells["rank"].iloc[place]))
            # A transfer is named by its group, of which peers may be members.
            is_peer = np.ones(len(ranks), dtype=bool) if part == TRANSFER else of_rank == of_rank[at]
            side = _side(every, at, is_peer, is_late, np.isin(ranks, sized), known, by_sizes=part == COMPUTE.column)
            found[place] = _told(side, float(cells["excess_ns"].iloc[place]))
    chosen = _agreed(cells, [fits for fits, _, _ in found])
    columns = ("what", "name", "same_ns", "peers_same_ns")
    values = zip(*((*pair, own, theirs) for pair, (_, own, theirs) in zip(chosen, found, strict=True)), strict=True)
    return cells.assign(
        **(dict(zip(columns, map(list, values), strict=True)) if len(cells) else dict.fromkeys(columns))
    )


def _every(rows: pd.DataFrame, ranks: np.ndarray) -> Side:
    """What all ranks ran, as the `others` of nobody."""
    rows = rows[rows["rank"].isin(ranks)]
    codes, names = pd.factorize(pd.MultiIndex.from_frame(rows[["what", "name"]].astype("object")))
    sums = np.zeros((len(ranks), len(names), 3))
    values = rows[["total_ns", "calls", "work"]].astype("float64").fillna(0.0).to_numpy()
    np.add.at(sums, (np.searchsorted(ranks, rows["rank"]), codes), values)
    what, name = (np.array([pair[place] for pair in names], dtype=object) for place in (0, 1))
    return Side(what, name, sums[0], sums[0], sums)


def _side(
    every: Side,
    at: int,
    is_peer: np.ndarray,
    is_late: np.ndarray,
    sized: np.ndarray,
    known: dict[tuple[bytes, int], np.ndarray],
    *,
    by_sizes: bool,
) -> Side:
    """One rank beside those that do the same and are not late, as far as there are any.

    Operators are compared where either have sizes in their names, as some ranks' captures do (`record_shapes`).
    `known` are medians by ranks: the late ones of a step are mostly held against the same.
    """
    is_other = np.arange(len(is_peer)) != at
    others = is_peer & is_other if (is_peer & is_other).any() else is_other
    others = others & ~is_late if (others & ~is_late).any() else others
    is_alike = sized == sized[at]
    if not (others & is_alike).any():
        every = every.at(every.what != OPERATOR)
        is_alike = np.ones_like(is_alike)
        by_sizes = False
    others = others & is_alike
    if by_sizes:
        others = _of_the_same_sizes(every, at, others)
    key = (others.tobytes(), len(every.name))
    if key not in known:
        known[key] = np.median(every.others[others], axis=0)
    return Side(every.what, every.name, every.others[at], known[key], every.others[others])


def _of_the_same_sizes(every: Side, at: int, others: np.ndarray) -> np.ndarray:
    """Of the others those that ran operators of the same sizes as often, where most hardly ran any of them.

    Where every replica has sequences of its own lengths the ranks of a tensor group share them.
    """
    is_sized = (every.what == OPERATOR) & np.array([SIZES in name for name in every.name], dtype=bool)
    calls = every.others[:, is_sized, 1]
    own = calls[at]
    is_common = SHARE * others.sum() < (calls[others] == own).sum(axis=0)
    alike: np.ndarray = others & (calls == own).all(axis=1)
    return alike if alike.any() and is_common[own > 0].sum() < SHARE * (own > 0).sum() else others


def _agreed(cells: pd.DataFrame, fits: list[dict[Named, float]]) -> list[Named]:
    """Of all cells of a rank and part the name, of those that fit most of them, that takes most in all.

    None where a rank is late on its host, or by computing, by none as often as by any: a slow host's longest call
    is another in each step. An operator goes without its sizes where these differ from step to step.
    """
    chosen: list[Named] = [(None, None)] * len(fits)
    for (_, part), rows in cells.reset_index(drop=True).groupby(["rank", "part"]).indices.items():
        totals: Counter[Named] = Counter()
        for row in rows:
            totals.update(fits[row])
        best = {row: max(fits[row], key=totals.__getitem__) for row in rows if fits[row]}
        stems = Counter(
            {pair: str(pair[1]).partition(SIZES)[0] for pair in best.values() if pair[0] == OPERATOR}.values()
        )
        for row, (what, name) in best.items():
            stem = str(name).partition(SIZES)[0]
            best[row] = (what, stem) if what == OPERATOR and stems[stem] > 1 else (what, name)
        ((pair, most),) = Counter(best.values()).most_common(1) or [((None, None), 0)]
        is_of_none = part in (HOST.column, COMPUTE.column) and len(rows) - len(best) >= most
        for row in rows:
            chosen[row] = (None, None) if is_of_none else pair
    return chosen


def _told(side: Side, excess_ns: float) -> Longer:
    kernels = side.of(KERNEL).alike()
    same = _same_work(side, kernels, excess_ns)
    taken_ns = side.of(SLICE).excess_ns
    if taken_ns >= SHARE * excess_ns:  # another process has the GPU, whatever runs then
        return {(SLICE, OTHER_PROCESS): taken_ns}, *(same or kernels).sums
    if same is None:
        return _longest(side, excess_ns), np.nan, np.nan
    if same.are_slower_throughout():
        return {}, *same.sums
    slower = side.of(OPERATOR).alike()
    slower = slower.at(slower.are_slower() & (slower.extra_ns >= SHARE * excess_ns))
    if slower.excess_ns < SHARE * excess_ns:
        return {}, *same.sums
    names = " and ".join(sorted({name.partition(SIZES)[0] for name in slower.name}))
    return {(OPERATOR, names): slower.excess_ns}, *slower.sums


def _same_work(side: Side, kernels: Side, excess_ns: float) -> Side | None:
    """The kernels that do the same work on the rank and its peers; the most of the excess.

    None where neither shapes nor the many kernels that are slower tell that the work is the same: one kernel that alone
    takes longer may have more to do at the same place. Of kernels of CUDA graphs no shapes are known.
    """
    operators = side.of(OPERATOR)
    has_sizes = np.array([SIZES in name for name in operators.name], dtype=bool)
    has_shapes = operators.own[has_sizes, 0].sum() >= SHARE * side.of(KERNEL).own[:, 0].sum() > 0
    by_shape = operators.alike()
    if kernels.excess_ns < SHARE * excess_ns or (has_shapes and by_shape.excess_ns < SHARE * excess_ns):
        return None
    is_known = np.array([HAS_KNOWN_WORK.match(name) is not None for name in by_shape.name], dtype=bool)
    is_told = has_shapes and by_shape.at(is_known).excess_ns >= SHARE * excess_ns
    return kernels if is_told or kernels.are_slower_throughout() else None


def _longest(side: Side, excess_ns: float) -> dict[Named, float]:
    """All names of the most telling kind that explain about half of the excess, and how much."""
    for what in _KINDS:
        own = side.of(what)
        if what in (DOING, RANGE):  # a phase holds all that a host does, and a launch is what it is to do
            own = own.at(np.array([_is_work(name, what) for name in own.name], dtype=bool))
        extra = own.extra_ns * (_not_of_other_sizes(own, side) if what == OPERATOR else 1.0)
        is_long = extra >= SHARE * excess_ns
        if what in (DOING, RANGE):  # a host that is slow at everything is not slow by what it does most
            is_long &= extra >= SHARE * own.own[:, 0]
        if is_long.any():
            return {(what, str(name)): float(ns) for name, ns in zip(own.name[is_long], extra[is_long], strict=True)}
        if what == OPERATOR and len(own.name):  # in all sizes together
            stems, of_row = np.unique([name.partition(SIZES)[0] for name in own.name], return_inverse=True)
            total = np.bincount(of_row, extra)
            if (total >= SHARE * excess_ns).any():
                return {(what, str(stems[at])): float(total[at]) for at in np.flatnonzero(total >= SHARE * excess_ns)}
    doing = side.of(DOING)
    nothing = doing.at(doing.name == NOTHING)
    is_most = len(nothing.name) and nothing.excess_ns >= SHARE * max(excess_ns, nothing.own[0, 0])
    return {(DOING, NOTHING): nothing.excess_ns} if is_most else {}


def _is_work(name: str, what: str) -> bool:
    if host_names.holds_whole_pass(name):
        return False
    return what == RANGE or not (name == NOTHING or host_names.is_launch(name))


def _not_of_other_sizes(own: Side, side: Side) -> np.ndarray:
    """Of each operator the part that is more than what the others run of it in sizes that the rank does not run.

    A longer batch is not all of its operators more.
    """
    part = np.ones(len(own.name))
    is_own = (own.typical[:, 0] == 0) & np.array([SIZES in name for name in own.name], dtype=bool)
    theirs = side.at((side.what == OPERATOR) & (side.own[:, 0] == 0))
    of_others = np.array([name.partition(SIZES)[0] for name in theirs.name], dtype=object)
    stems = np.array([name.partition(SIZES)[0] for name in own.name], dtype=object)
    for stem in {*stems[is_own]}:
        rows = is_own & (stems == stem)
        total_ns = own.own[rows, 0].sum()
        other_ns = float(np.median(theirs.others[:, of_others == stem, 0].sum(axis=1)))
        part[rows] = max(total_ns - other_ns, 0.0) / max(total_ns, 1.0)
    return part
