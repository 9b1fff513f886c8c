"""By how much a rank's step needs more than its peers', and which work it is."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.rank_sets import EVERYBODY
from traceanalyzer.analyses.blame.slow_transfers import COLLECTIVE, TRANSFER
from traceanalyzer.analyses.blame.step_budget import (
    DOING,
    HAS_KNOWN_WORK,
    KERNEL,
    OF_DATA,
    OPERATOR,
    OTHER_PROCESS,
    PARTS,
    RANGE,
    SIZES,
    SLICE,
)
from traceanalyzer.analyses.grouping import Groups, rows_of_each
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.activity import NOTHING
from traceanalyzer.analyses.statistics import PERCENT, SHARE, SIGMAS, jitter, median_of_others, medians
from traceanalyzer.meaning.vocabulary import COMPUTE, COPY, DATA, HOST, UNKNOWN
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of, floats, picked, table_of, with_columns, without_rows

# By how much each rank's step needs more of its own than its peers', part by part, and what ran then.


_NEEDED, _LOADING, _COPY = "needed_host_ns", "loading_ns", "copy_ns"

_LOADS_BY_DESIGN = "stage 0"
"""Of a pipeline's stages the first has a loader that the others lack."""


def with_excess(needs: pd.DataFrame) -> pd.DataFrame:
    """The rows with a part's excess over the median of the peers' same step, `<part>_excess`, and `excess_ns`.

    A rank without peers (a stage that no other rank has) is compared with all ranks, by what stages have alike: its
    host by operation, its compute by what the other stages take for the same operators (`slower_ns`).
    Steps that a capture cuts, or in which a rank's clock is set, are compared with nothing. The excess is never longer
    than the step. A GPU may idle for its host where its peers' hosts are as slow behind a wait: the host's excess is no
    longer than what launching the step takes it more.
    """
    table = _comparable(needs)
    columns = columns_of(table)
    keys = Groups.of(columns, ["peers", "step"])
    of_peers, of_all = keys.of_row, Groups.of(columns, ["step"]).of_row
    alone = keys.distinct(np.unique(columns["rank"], return_inverse=True)[1])[of_peers] < 2
    is_stage = (columns["peers"] != EVERYBODY) & alone
    compute, needed = PARTS.index(COMPUTE.column), len(PARTS)
    values = np.column_stack([floats(columns[name]) for name in (*PARTS, _NEEDED, _LOADING, _COPY, "operations")])

    def beside() -> np.ndarray:
        """The median of the peers' same step; of stages that no other rank has, of all ranks' what is alike."""
        found = of_each(values, of_peers, median_of_others)
        if not is_stage.any():
            return found
        found = np.where(is_stage[:, None], of_each(values, of_all, median_of_others), found)
        found[:, compute] = np.where(is_stage, values[:, compute] - columns["slower_ns"], found[:, compute])
        found[:, needed] *= np.where(is_stage & (found[:, -1] > 0), values[:, -1] / np.maximum(found[:, -1], 1), 1)
        return found

    return with_columns(table, **_beyond(columns, values - beside(), is_stage))


def _comparable(needs: pd.DataFrame) -> pd.DataFrame:
    """The rows that are held against others: whole steps in which no clock is set."""
    is_jump = needs["clock_jump_ns"].notna().to_numpy()
    step = needs["step"].to_numpy(dtype=np.int64, na_value=NONE)
    # From there on the rank's calls may have no partners, so that transfers are known of some ranks alone.
    is_told = step < step[is_jump].min() if is_jump.any() else np.ones(len(step), dtype=bool)
    table = with_columns(
        needs,
        step=step,
        **{name: np.where(is_told, needs[name], 0) for name in ("transfer_ns", "slower_transfer_ns")},
    )
    return picked(table, ~needs["is_partial"].to_numpy(dtype=bool) & ~is_jump)


def _beyond(columns: Mapping[str, Any], more: np.ndarray, is_stage: np.ndarray) -> dict[str, np.ndarray]:
    """Each part's excess, where it is a reason to be late, and their sum; `more` are `PARTS` and what a host needs."""
    excess = dict(zip((*PARTS, _NEEDED, _LOADING, _COPY), more.T[:-1], strict=True))
    # Ranks that move the same data do it in as long: groups are held against each other, and no rank against its peers.
    excess[TRANSFER] = floats(columns["slower_transfer_ns"])
    # A copy may hold a rank up beside a message that was asked for early.
    excess[COPY.column] = np.maximum(excess[COPY.column], excess.pop(_COPY))
    loading = excess.pop(_LOADING)  # no longer than others', whose queues may be longer, it is nobody's lateness
    excess[DATA.column] = _up_to(excess[DATA.column], loading)
    # What launching takes holds the loading of data, which is a part by itself.
    needed = excess.pop(_NEEDED) - np.maximum(np.where(np.isnan(loading), excess[DATA.column], loading), 0.0)
    excess[HOST.column] = _up_to(excess[HOST.column], needed)
    is_first = is_stage & (columns["peers"] == _LOADS_BY_DESIGN)
    excess[DATA.column] = np.where(is_first, 0.0, excess[DATA.column])
    excess[UNKNOWN.column] = np.where(is_stage, 0.0, excess[UNKNOWN.column])  # each has bubbles of its own
    net = np.minimum(sum(excess.values()), columns["end_ns"] - columns["begin_ns"])
    return {**{f"{part}_excess": excess[part] for part in PARTS}, "excess_ns": net}


def _up_to(idle: np.ndarray, more: np.ndarray) -> np.ndarray:
    """The excess of idle time, no longer than what its cause takes the host more; without limit where unknown."""
    return np.minimum(idle, np.where(np.isnan(more), np.inf, np.maximum(more, 0.0)))


def cells(late: pd.DataFrame) -> pd.DataFrame:
    """A row for each rank, step and part that takes longer than on the peers: `rank`, `step`, `part`, `excess_ns`.

    A rank is a straggler in a step when what it needs more is at least `PERCENT` of the step, far beyond the jitter of
    the ranks' steps. Its excess is split over the parts that are longer, in proportion, without those
    that are longer by less than half of the longest. The replay of the job without it shows who waits for it.
    """
    if late.empty:
        return without_rows(["rank", "step", "part", "excess_ns"])
    columns = columns_of(late)
    by_all, by_links = _are_stragglers(columns)
    is_late = by_all | by_links
    parts = np.maximum(np.column_stack([columns[f"{part}_excess"][is_late] for part in PARTS]), 0.0)
    share = _shares(parts)
    large = _shares(np.where(share >= SHARE * share.max(axis=1, keepdims=True), share, 0))
    large[:, PARTS.index(COMPUTE.column)] *= ~_is_usual(columns, is_late)[is_late]
    large[~by_all[is_late], : PARTS.index(TRANSFER)] = 0
    row, column = np.nonzero(large)
    own_ns = np.minimum(columns["excess_ns"][is_late][row] * large[row, column], parts[row, column])
    own_ns = np.where(column == PARTS.index(TRANSFER), parts[row, column], own_ns)
    return table_of(
        {
            "rank": columns["rank"][is_late][row],
            "step": columns["step"][is_late][row],
            "part": np.array(PARTS, dtype=object)[column],
            "excess_ns": np.round(own_ns).astype(np.int64),
        }
    )


def _is_usual(columns: Mapping[str, Any], is_late: np.ndarray) -> np.ndarray:
    """Rows of ranks that compute about as long as in their other steps, where these are mostly in time.

    There the others compute less than they usually do (a last batch that is smaller on some ranks): nobody is late.
    """
    own = floats(columns[COMPUTE.column])
    of_rank = np.unique(columns["rank"], return_inverse=True)[1]
    usual = of_each(np.where(is_late, np.nan, own)[:, None], of_rank, medians)[:, 0]
    in_time = np.bincount(of_rank, ~is_late) / np.bincount(of_rank)
    is_usual: np.ndarray = (in_time[of_rank] > SHARE) & (columns["step"] >= 0)
    return is_usual & (own - usual < SHARE * columns[f"{COMPUTE.column}_excess"])


def _shares(parts: np.ndarray) -> np.ndarray:
    total = parts.sum(axis=1, keepdims=True)
    shares: np.ndarray = np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)
    return shares


def _are_stragglers(columns: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose excess is beyond jitter, and worth a word; what is so in some steps counts from half of that on.

    Of all its steps a rank's median has less jitter than one of them.
    And rows whose slower transfers are worth a word: that they are beyond chance is known (`SlowerCalls`).
    """
    excess_ns = np.asarray(columns["excess_ns"], dtype=np.float64)
    length_ns = (columns["end_ns"] - columns["begin_ns"]).astype(np.float64)
    steps, of_step = np.unique(columns["step"], return_inverse=True)
    ranks, of_rank = np.unique(columns["rank"], return_inverse=True)
    length_ns = of_each(length_ns[:, None], of_step, medians)[:, 0]
    wide = np.full((len(steps), len(ranks)), np.nan)
    wide[of_step, of_rank] = excess_ns
    spread = jitter(wide) if len(steps) > 1 or len(ranks) > 2 else 0.0
    worth_ns = PERCENT / 100 * length_ns
    in_step = excess_ns >= np.maximum(worth_ns, SIGMAS * spread)
    median_ns = of_each(excess_ns[:, None], of_rank, medians)[:, 0]
    throughout = median_ns >= np.maximum(worth_ns, SIGMAS * spread / np.sqrt(np.bincount(of_rank)[of_rank]))
    usual = of_each(np.where(in_step, excess_ns, np.nan)[:, None], of_rank, medians)[:, 0]
    usual = np.where(throughout, median_ns, usual)
    also = np.nan_to_num(excess_ns - SHARE * usual, nan=-1.0) >= 0
    return in_step | also, columns[f"{TRANSFER}_excess"] >= worth_ns


def of_each(values: np.ndarray, group: np.ndarray, figure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What `figure` gives of each group's rows, in their places; of floats in two dimensions."""
    made = np.empty_like(values)
    for rows in rows_of_each(group):
        made[rows] = figure(values[rows])
    return made


# What takes longer on a rank than on its peers, by name; and whether it is the same work, only slower.


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
