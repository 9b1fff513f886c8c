"""What takes longer on a late rank than on its peers, by name; and whether it is the same work, only slower."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.named_work import Alike, Beside, NamedWork, alike
from traceanalyzer.analyses.blame.sizes import (
    SIZES,
    Named,
    Ran,
    of_all_sizes,
    of_the_same_sizes,
    ranks_with_sizes,
    recorded_alike,
    without_operators,
)
from traceanalyzer.analyses.blame.transfers import COLLECTIVE, TRANSFER
from traceanalyzer.analyses.blame.what_ran import DOING, KERNEL, OPERATOR, OTHER_PROCESS, RANGE, SLICE
from traceanalyzer.analyses.blame.work_names import HAS_KNOWN_WORK
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.host_activity import NOTHING
from traceanalyzer.meaning.vocabulary import COMPUTE, HOST
from traceanalyzer.model.tables import array_of

_NAMED = 0.5
"""A name is said when it explains this much of an excess; so is that the same kernels take longer."""

_NAMED_OF_SEVERAL = 0.4
"""A little less is enough in a step in which another one is said of the rank's other steps."""

_UNRECORDED = 0.8
"""Part of an excess from which on code that leaves no record is said: of a slow host calls are slower, too."""

_NEARLY_ALL = 0.8
"""Part of an excess from which on an operator of several sizes is said: a longer batch makes each of them longer."""

_HARDLY_ELSEWHERE = 0.9
"""Part of that time that peers have none of: so much is no slow host's, and half of an excess is enough."""

_LIKE_THE_OTHERS = 2.0
"""Times the excess of the steps without a name: one with a name is late by the same."""

_FORETELLING = 0.2
"""Of a rank's time in kernels: the same ones with so much of it tell how fast its GPU is."""

_A_PART = 0.2
"""Of an excess: operators that hold less of it are not named among those that are slower."""

_KINDS = (OPERATOR, DOING, RANGE, KERNEL, "copy", COLLECTIVE)
"""The most telling first."""

_NO_ROWS = np.empty(0, dtype=np.int64)
_NOTHING_KNOWN: tuple[Any, ...] = ({}, np.nan, np.nan)


def named(cells: pd.DataFrame, late: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """The cells with the name that is longer than on the peers by at least half of the part's excess: `what`, `name`.

    `same_ns` and `peers_same_ns`: what the rank and its peers take for the kernels that all of them run, where these
    make at least half of the excess; NaN elsewhere. Where only some are slower, of these, which are then the name.
    Where cells tell what their part alone takes longer (`in_part_ns`), that is what names are held against.
    """
    columns = ["what", "name", "same_ns", "peers_same_ns"]
    if cells.empty or work.empty:
        return cells.assign(what=None, name=None, same_ns=np.nan, peers_same_ns=np.nan)
    held = work[work["part"].isin(cells["part"]) & work["step"].isin(cells["step"])]
    ranks = late.groupby("step")["rank"].unique()
    late_ranks = cells.groupby("step")["rank"].unique()
    peers = late.drop_duplicates("rank").set_index("rank")["peers"]
    every_peer = peers.map(lambda _: "all")  # a transfer is named by its group, of which peers may be members
    every, rows = NamedWork.of(held), held.groupby(["step", "part", "rank"]).indices
    in_part = held.groupby(["step", "part"]).indices
    sized, bare = ranks_with_sizes(held), None
    beside: dict[tuple[object, ...], Beside] = {}  # late ranks of a step are mostly held against the same others
    ran: dict[object, dict[int, Ran]] = {}
    found = []
    longer = "in_part_ns" if "in_part_ns" in cells else "excess_ns"
    for rank, step, part, excess_ns in cells[["rank", "step", "part", longer]].itertuples(index=False):
        others = _others(ranks[step], rank, every_peer if part == TRANSFER else peers, late_ranks[step])
        others, is_alike = recorded_alike(others, rank, sized)
        names = every if is_alike else bare if bare is not None else (bare := NamedWork.of(without_operators(held)))
        if part == COMPUTE.column and is_alike:
            if step not in ran:
                ran[step] = _sized(
                    {int(each): names.at(rows.get((step, part, each), _NO_ROWS)) for each in ranks[step]}
                )
            others = of_the_same_sizes(others, rank, ran[step])
        key = (step, part, others.tobytes(), is_alike)
        if key not in beside:
            of_all = in_part.get((step, part), _NO_ROWS)
            beside[key] = Beside(names.at(of_all[np.isin(every.rank[of_all], others)]), others)
        own = names.at(rows.get((step, part, rank), _NO_ROWS))
        found.append(_told(own, excess_ns, beside[key]) if (step, part) in in_part else _NOTHING_KNOWN)
    chosen = _agreed(cells, [row[0] for row in found])
    table = cells.assign(**{name: [pair[place] for pair in chosen] for place, name in enumerate(columns[:2])})
    return table.assign(**{name: [row[place] for row in found] for place, name in enumerate(columns[2:], 1)})


def _sized(ran: Mapping[int, NamedWork]) -> dict[int, Ran]:
    """Of each rank the operators with sizes that it ran, and how often."""
    held = {rank: own.of_kind(OPERATOR) for rank, own in ran.items()}
    return {
        rank: frozenset((name, calls) for name, calls in zip(own.name, own.sums[:, 1], strict=True) if SIZES in name)
        for rank, own in held.items()
    }


def _agreed(cells: pd.DataFrame, fits: list[dict[Named, float]]) -> list[Named]:
    """Of each cell the name, of those that fit it, that takes most of all its rank's cells of that part.

    None where a rank is late on its host, or by computing, by none as often as by any: a slow host's longest call
    is another in each step. Of two copies of one size each may be the longer one now and then.
    """
    chosen: list[Named] = [(None, None)] * len(fits)
    for (_, part), rows in cells.reset_index(drop=True).groupby(["rank", "part"]).indices.items():
        totals: dict[Named, float] = {}
        for row in rows:
            for pair, extra_ns in fits[row].items():
                totals[pair] = totals.get(pair, 0.0) + extra_ns
        for row in rows:
            chosen[row] = max(fits[row], key=totals.__getitem__, default=(None, None))
        for row, pair in of_all_sizes({row: chosen[row] for row in rows}).items():
            chosen[row] = pair
        unnamed = [row for row in rows if not fits[row]]
        most = max(Counter(chosen[row] for row in rows if fits[row]).values(), default=0)
        if part in (HOST.column, COMPUTE.column) and len(unnamed) >= most:
            excess = array_of(cells, "excess_ns")
            for row in rows:
                if excess[row] <= _LIKE_THE_OTHERS * np.median(excess[unnamed]):
                    chosen[row] = (None, None)
    return chosen


def _others(ranks: np.ndarray, rank: int, peers: pd.Series, late: np.ndarray) -> np.ndarray:
    """The ranks that do the same and are not late, as far as there are any."""
    peers_of_rank = ranks[(ranks != rank) & (peers[ranks] == peers[rank]).to_numpy()]
    others: np.ndarray = peers_of_rank if len(peers_of_rank) else ranks[ranks != rank]
    in_time = others[~np.isin(others, late)]
    return in_time if len(in_time) else others


def _told(own: NamedWork, excess_ns: int, beside: Beside) -> tuple[Any, ...]:
    same = _same_work(own, beside, excess_ns)
    if taken := _taken(own, beside, excess_ns):
        return taken, *(alike(own, beside, KERNEL) if same is None else same).sums
    if same is None:
        return _longest(own, beside, excess_ns), np.nan, np.nan
    slower = same if same.are_slower_throughout() else _slower_part(own, beside, excess_ns)
    if slower is None or slower is same:  # no one of them is to be named
        return {}, *same.sums
    named = " and ".join(sorted({name.partition(SIZES)[0] for name in slower.name}))
    return {(OPERATOR, named): slower.excess_ns}, *slower.sums


def _taken(own: NamedWork, beside: Beside, excess_ns: int) -> dict[Named, float]:
    """The time in which another process has the GPU, where that is half of the excess, whatever runs then."""
    held = own.of_kind(SLICE)
    extra = float((held.sums[:, 0] - np.nan_to_num(beside.medians(SLICE, held.name)[:, 0])).sum())
    return {(SLICE, OTHER_PROCESS): extra} if extra >= _NAMED * excess_ns else {}


def _longest(own: NamedWork, beside: Beside, excess_ns: int) -> dict[Named, float]:
    """All names of the most telling kind that explain about half of the excess, and how much."""
    for what in _KINDS:
        named = own.of_kind(what)
        if what == RANGE:  # a phase holds all that a host does
            named = named.at(np.flatnonzero([not host_names.holds_whole_pass(name) for name in named.name]))
        if what == DOING:  # neither is what a host is to do less of
            named = named.at(np.flatnonzero([_is_work(name) for name in named.name]))
        if not len(named.name):
            continue
        held, typical = named.sums[:, 0], np.nan_to_num(beside.medians(what, named.name)[:, 0])
        extra = held - typical
        if what == OPERATOR and not typical.all():
            extra *= _not_of_other_sizes(named, typical == 0, beside)
        is_long = extra >= _NAMED_OF_SEVERAL * excess_ns
        if what in (DOING, RANGE):  # a host that is slow at everything is not slow by what it does most
            is_long &= extra >= _NAMED * held
        if extra[is_long].max(initial=0) >= _NAMED * excess_ns:
            return {(what, str(named.name[row])): float(extra[row]) for row in np.flatnonzero(is_long)}
        if what == OPERATOR and (of_all := _of_all_sizes(named.name, extra, excess_ns)):
            return of_all
    return _unrecorded(own, beside, excess_ns)


def _of_all_sizes(names: np.ndarray, extra: np.ndarray, excess_ns: int) -> dict[Named, float]:
    """The operators without their sizes that explain nearly all of the excess in all sizes together."""
    stems, of_row = np.unique([name.partition(SIZES)[0] for name in names], return_inverse=True)
    total = np.bincount(of_row, extra)
    return {(OPERATOR, str(stems[at])): float(total[at]) for at in np.flatnonzero(total >= _NEARLY_ALL * excess_ns)}


def _not_of_other_sizes(own: NamedWork, is_own: np.ndarray, beside: Beside) -> np.ndarray:
    """Of each name the part that is more than what the peers run of it in sizes that the rank does not run.

    `is_own` are those whose sizes the peers do not run: a longer batch is not all of its operators more.
    """
    part = np.ones(len(own.name))
    stems = np.array([name.partition(SIZES)[0] if SIZES in name else "" for name in own.name], dtype=object)
    shared = frozenset(own.name[~is_own])
    for stem in {*stems[is_own]} - {""}:
        rows = is_own & (stems == stem)
        total_ns = own.sums[rows, 0].sum()
        part[rows] = max(total_ns - beside.of_other_sizes(stem, shared), 0.0) / max(total_ns, 1.0)
    return part


def _is_work(doing: str) -> bool:
    return doing != NOTHING and not host_names.is_launch(doing) and not host_names.holds_whole_pass(doing)


def _unrecorded(own: NamedWork, beside: Beside, excess_ns: int) -> dict[Named, float]:
    """Host time in which nothing is recorded, where that is nearly all of the excess: one thing without a name."""
    doing = own.of_kind(DOING)
    nothing = doing.at(np.flatnonzero(doing.name == NOTHING))
    if not len(nothing.name):
        return {}
    held, extra = nothing.sums[0, 0], nothing.sums[0, 0] - np.nan_to_num(beside.medians(DOING, nothing.name)[0, 0])
    is_one = extra >= max(_UNRECORDED * excess_ns, _NAMED * held)
    is_one |= extra >= max(_NAMED * excess_ns, _HARDLY_ELSEWHERE * held)
    return {(DOING, NOTHING): float(extra)} if is_one else {}


def _same_work(own: NamedWork, beside: Beside, excess_ns: int) -> "Alike | None":
    """The kernels that do the same work on the rank and its peers; the most of the excess.

    None where neither shapes nor the many kernels that are slower tell that the work is the same: one kernel that alone
    takes longer may have more to do at the same place. Of kernels of CUDA graphs no shapes are known.
    """
    kernels = alike(own, beside, KERNEL)
    has_shapes = _have_shapes(own)
    by_shape = alike(own, beside, OPERATOR)
    if kernels.excess_ns < _NAMED * excess_ns:
        # The same place tells no sizes: a sum, or a product whose blocks stay, has more to do in each.
        alike_work = by_shape.of(HAS_KNOWN_WORK) if has_shapes else kernels
        told = all(_foretell_all(each, own, excess_ns) for each in (kernels, alike_work))
        return alike_work if told else None
    if has_shapes and by_shape.excess_ns < _NAMED * excess_ns:
        return None
    is_told = has_shapes and by_shape.of(HAS_KNOWN_WORK).excess_ns >= _NAMED * excess_ns
    return kernels if is_told or kernels.are_slower_throughout() else None


def _foretell_all(kernels: "Alike", own: NamedWork, excess_ns: int) -> bool:
    """Whether all that the rank runs, slower by as much as the same kernels are, makes nearly all of the excess.

    So it is where much of the time is in kernels whose work depends on the data, as experts' products, and takes no
    longer than the GPU's pace makes it.
    """
    own_ns, peers_ns = kernels.sums
    every_ns = own.of_kind(KERNEL).sums[:, 0].sum()
    if own_ns <= _FORETELLING * every_ns or not kernels.are_slower_throughout():
        return False
    return bool(every_ns * (own_ns - peers_ns) >= _NEARLY_ALL * excess_ns * own_ns)


def _have_shapes(own: NamedWork) -> bool:
    """Whether operators whose shapes are known launched most of the rank's kernels, by time."""
    operators = own.of_kind(OPERATOR)
    has_sizes = np.array([SIZES in name for name in operators.name], dtype=bool)
    return bool(operators.sums[has_sizes, 0].sum() >= _NAMED * own.of_kind(KERNEL).sums[:, 0].sum() > 0)


def _slower_part(own: NamedWork, beside: Beside, excess_ns: int) -> "Alike | None":
    """Of the operators that do the same work those few that are slower, where they hold most of the excess."""
    same = alike(own, beside, OPERATOR)
    same = same.at(same.are_slower() & (same.own_ns - same.peers_ns >= _A_PART * excess_ns))
    return same if same.excess_ns >= _NAMED * excess_ns else None
