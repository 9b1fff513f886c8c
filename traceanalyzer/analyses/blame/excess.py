"""By how much a rank's step needs more than its peers', and which work it is."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.rank_sets import are_alone
from traceanalyzer.analyses.blame.step_budget import (
    PARTS,
)
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.spread import median_of_others, medians, of_each
from traceanalyzer.analyses.statistics import PERCENT, RATIO, SHARE, SIGMAS, jitter, least_beyond
from traceanalyzer.meaning.vocabulary import COMPUTE, COPY, DATA, HOST, LAUNCH, SYNC, UNKNOWN
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of, floats, picked, table_of, with_columns, without_rows


def _jitter_of(columns: Mapping[str, Any], excess_ns: np.ndarray) -> float:
    """How far the ranks' steps differ from each other where nothing is wrong.

    Of two peers the one needs as much less as the other needs more: that is told once. What a rank's GPU idles less for
    its host than the other's is no measure of that: it may wait for the other.
    """
    beside = Groups.of(columns, ["peers", "step"]).of_row
    more = np.maximum(excess_ns, 0.0)
    is_of_pair = np.bincount(beside)[beside] == 2
    excess = np.where(is_of_pair, 2 * more - np.bincount(beside, more)[beside], excess_ns)
    steps, row = np.unique(columns["step"], return_inverse=True)
    if len(steps) < 2 and is_of_pair.all():
        return 0.0
    ranks, column = np.unique(columns["rank"], return_inverse=True)
    wide = np.full((len(steps), len(ranks)), np.nan)
    wide[row, column] = excess
    return jitter(wide)


# In which steps others meet a rank, and how long they wait there.


_WAITING = ("exposed_wait_ns", "exposed_unmatched_ns")


def awaited_in(late: pd.DataFrame) -> pd.Series:
    """For each step the next one in which any rank communicates: there the others meet a rank that is late by then.

    That is the following one, but where steps are parts of a step of the optimizer, or local ones of which only some
    average. Absent for the last ones.
    """
    columns = columns_of(late)
    numbers, of_step = np.unique(columns["step"], return_inverse=True)
    place = _next_met(columns, of_step)
    met = np.where(place < len(numbers), numbers[np.minimum(place, len(numbers) - 1)], 0)
    return pd.Series(pd.arrays.IntegerArray(met, place >= len(numbers)), index=numbers)


def _next_met(columns: Mapping[str, Any], of_step: np.ndarray) -> np.ndarray:
    """For each step, by its place, that of the next one in which any rank communicates; their number for none."""
    count = of_step.max(initial=-1) + 1
    meets = np.zeros(count, dtype=bool)
    for name in ("transfer_ns", *_WAITING):
        meets[of_step[floats(columns[name]) > 0]] = True
    own = np.where(meets, np.arange(count), count)
    return np.append(np.minimum.accumulate(own[::-1])[::-1][1:], count)


def waited(columns: Mapping[str, Any], of: Sequence[str] = _WAITING) -> np.ndarray:
    """What another rank waits in the step, or the next that meets, at most: no one is late for whom nobody waits."""
    of_step, of_rank = (np.unique(columns[name], return_inverse=True)[1] for name in ("step", "rank"))
    waits = np.zeros((of_step.max(initial=-1) + 2, of_rank.max(initial=0) + 2))  # one for what is not there
    waits[of_step, of_rank] = sum(floats(columns[name]) for name in of)
    second, most = np.partition(waits, (-2, -1), axis=1)[:, -2:].T[:, :, None]
    of_others = np.where(waits == most, second, most)
    return np.maximum(of_others[of_step, of_rank], of_others[_next_met(columns, of_step)[of_step], of_rank])


# By how much each rank's step needs more of its own than its peers', part by part, and what ran then.


_NEEDED, _LOADING = "needed_host_ns", "loading_ns"

_HOST_PARTS = (SYNC.column, DATA.column, HOST.column, COPY.column)
"""What ranks of different stages of a pipeline have alike; their compute and bubbles differ by design."""


def with_excess(needs: pd.DataFrame) -> pd.DataFrame:
    """The rows with a part's excess over the median of the peers' same step, `<part>_excess`, and `excess_ns`.

    A rank without peers (a stage that no other rank has) is held against all ranks, by what stages have alike; its
    compute against its own steps, as far as the other stages' steps do not differ alike, and against what the other
    stages take for the same operators (`slower_ns`, of `with_slower_ns`).
    Steps that a capture cuts, or in which a rank's clock is set, are held against nothing. The excess is never longer
    than the step. A GPU may idle for
    its host where its peers' hosts are as slow behind a wait: the host's excess is no longer than what launching this
    step, or the one before, takes it more.
    """
    table = _held(needs)
    columns = columns_of(table)
    keys = Groups.of(columns, ["peers", "step"])
    of_peers, of_all = keys.of_row, Groups.of(columns, ["step"]).of_row
    alone = keys.distinct(np.unique(columns["rank"], return_inverse=True)[1])[of_peers] < 2
    is_stage = (columns["peers"] != "all") & alone
    values = np.column_stack([floats(columns[name]) for name in (*PARTS, _NEEDED, _LOADING)])
    operations = floats(columns["operations"])[:, None]

    def beside(own: np.ndarray, figure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """A figure of the peers' same step; of stages that no other rank has, of all ranks'."""
        found = of_each(own, of_peers, figure)
        return np.where(is_stage[:, None], of_each(own, of_all, figure), found) if is_stage.any() else found

    others = beside(values, median_of_others)
    # A stage with more layers launches more: its host is held against the others' by operation.
    launched = beside(operations, median_of_others)
    times = np.where(
        is_stage[:, None], np.divide(operations, launched, out=np.ones_like(operations), where=launched > 0), 1
    )
    others[:, [len(PARTS)]] *= times
    first = _beyond(columns, values - others, is_stage)
    compute = PARTS.index(COMPUTE.column)
    usual_ns = _usual_ns(table, is_stage) if is_stage.any() else others[:, compute]
    others[:, compute] = np.where(is_stage, usual_ns, others[:, compute])
    if "slower_ns" in columns:
        of_others = values[:, compute] - columns["slower_ns"]
        others[:, compute] = np.where(is_stage, np.minimum(others[:, compute], of_others), others[:, compute])
    # Where about half of the ranks are late, the others' median lies between the late and the rest.
    is_late = _are_late(columns | first)
    in_time = beside(np.where(is_late[:, None], np.nan, values), medians)
    in_time[:, compute] = np.where(is_stage, others[:, compute], in_time[:, compute])
    in_time[:, [len(PARTS)]] *= times
    usual = np.where(is_late[:, None] & ~np.isnan(in_time), in_time, others)
    return with_columns(table, **_beyond(columns, values - usual, is_stage))


def _held(needs: pd.DataFrame) -> pd.DataFrame:
    """The rows that are held against others: whole steps in which no clock is set."""
    is_jump = needs["clock_jump_ns"].notna().to_numpy()
    step = needs["step"].to_numpy(dtype=np.int64, na_value=NONE)
    # From there on the rank's calls may have no partners, so that transfers are known of some ranks alone.
    is_told = step < step[is_jump].min() if is_jump.any() else np.ones(len(step), dtype=bool)
    table = with_columns(
        needs,
        step=step,
        **{name: np.where(is_told, needs[name], 0) for name in ("transfer_ns", "slower_transfer_ns")},
        # A message that was asked for early waits beside the copy that holds up the rank.
        exposed_copy_ns=(needs["exposed_copy_ns"] + needs["copy_beside_wait_ns"]).array,
    )
    return picked(table, ~needs["is_partial"].to_numpy(dtype=bool) & ~is_jump)


def _beyond(columns: Mapping[str, Any], more: np.ndarray, is_stage: np.ndarray) -> dict[str, np.ndarray]:
    """Each part's excess, where it is a reason to be late, and their sum; `more` are `PARTS` and what a host needs."""
    excess = dict(zip((*PARTS, _NEEDED, _LOADING), more.T, strict=True))
    # Ranks that move the same data do it in as long: groups are held against each other, and no rank against its peers.
    excess["transfer_ns"] = floats(columns["slower_transfer_ns"])
    loading = excess.pop(_LOADING)  # no longer than others', whose queues may be longer, it is nobody's lateness
    excess[DATA.column] = _up_to(excess[DATA.column], loading, columns["rank"])
    # What launching takes holds the loading of data, which is a part by itself.
    needed = excess.pop(_NEEDED) - np.maximum(np.where(np.isnan(loading), excess[DATA.column], loading), 0.0)
    host, launch = excess[HOST.column], excess[LAUNCH.column]
    # A queue that runs dry shows every launch's latency, too: that is the host's, where it is the smaller part.
    is_of_host = (launch > 0) & (host >= launch) & ~is_stage
    excess[HOST.column] = _up_to(host, needed, columns["rank"]) + np.where(is_of_host, launch, 0.0)
    excess[LAUNCH.column] = np.where(is_of_host, 0.0, launch)
    for part in PARTS:
        if part not in (*_HOST_PARTS, COMPUTE.column, "transfer_ns"):  # by design
            excess[part] = np.where(is_stage, 0.0, excess[part])
    net = np.minimum(sum(excess.values()), columns["end_ns"] - columns["begin_ns"])
    return {**{f"{part}_excess": excess[part] for part in PARTS}, "excess_ns": net}


def _usual_ns(table: pd.DataFrame, is_stage: np.ndarray) -> np.ndarray:
    """What stages without peers usually compute in such a step; of too few steps what they do compute.

    That is the lower quartile of their own steps, times the stages' median of what the step holds of that.
    """
    own = table[COMPUTE.column].astype("float64")
    usual = own.groupby(table["rank"]).transform(lambda each: each.quantile(0.25, interpolation="lower"))
    is_measure = is_stage if len(table["rank"][is_stage].unique()) > 1 else ~is_stage  # one is none of itself
    times = (own / usual.where(usual > 0)).where(is_measure)
    known = own.groupby(table["rank"]).transform("size") > 2
    return (usual * times.groupby(table["step"]).transform("median")).where(known).fillna(own).to_numpy()


def _up_to(host: np.ndarray, more: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The host's excess, no longer than what launching the step takes it more, and what is left of the step before.

    A GPU that has work ahead idles for it a step later. Without limit where what launching takes is not known.
    """
    limit = np.where(np.isnan(more), np.inf, np.maximum(more, 0.0))
    now = np.minimum(host, limit)
    rest = np.where(np.isinf(limit), 0.0, limit - np.maximum(now, 0.0))
    order = np.argsort(rank, kind="stable")
    left = np.zeros(len(rank))
    left[order[1:]] = np.where(rank[order[1:]] == rank[order[:-1]], rest[order[:-1]], 0.0)
    up_to: np.ndarray = now + np.minimum(host - now, left)
    return up_to


def cells(late: pd.DataFrame) -> pd.DataFrame:
    """A row for each rank, step and part that makes the others wait: `rank`, `step`, `part`, `excess_ns`.

    A rank is late in a step when what it needs more is at least `PERCENT` of the step, far beyond the jitter of the
    ranks' steps, and the others wait. Its excess is split over the parts that are longer, in proportion, without those
    that are longer by less than half of the longest.
    """
    if late.empty:
        return without_rows(["rank", "step", "part", "excess_ns"])
    columns = columns_of(late)
    is_late = _are_late(columns)
    rank, excess_ns = columns["rank"][is_late], columns["excess_ns"][is_late]
    parts = np.maximum(np.column_stack([columns[f"{part}_excess"][is_late] for part in PARTS]), 0.0)
    share = _shares(parts)
    large = _shares(np.where(share >= SHARE * share.max(axis=1, keepdims=True), share, 0))
    names = np.array(PARTS, dtype=object)
    # Idle time without a reason is lateness only where others are seen to wait, not just to communicate.
    is_seen = waited(columns, ["exposed_wait_ns"])[is_late] >= SHARE * excess_ns
    large[:, names == UNKNOWN.column] *= is_seen[:, None]
    large[:, names == COMPUTE.column] *= ~_is_usual(columns, is_late)[is_late, None]
    row, column = np.nonzero(large)
    own_ns = np.minimum(excess_ns[row] * large[row, column], parts[row, column])
    return table_of(
        {
            "rank": rank[row],
            "step": columns["step"][is_late][row],
            "part": names[column],
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


def launches_more(late: pd.DataFrame) -> pd.Series:
    """Rows of ranks that launch more operations in most steps than their peers' median."""
    return pd.Series(_launch_more(columns_of(late)), index=late.index)


def _launch_more(columns: Mapping[str, Any]) -> np.ndarray:
    own = floats(columns["operations"])[:, None]
    others = of_each(own, Groups.of(columns, ["peers", "step"]).of_row, median_of_others)
    times = np.divide(own, others, out=np.full_like(own, np.nan), where=others > 0)
    is_more: np.ndarray = of_each(times, np.unique(columns["rank"], return_inverse=True)[1], medians)[:, 0] >= RATIO
    return is_more


def _are_late(columns: Mapping[str, Any]) -> np.ndarray:
    """Rows whose excess is beyond jitter, and worth a word, while another rank waits.

    What a rank needs more in most steps is held against the limits as a whole, by its median: of steps near them some
    alone would seem late. A step in which it needs less than half of what is worth a word is none of them.
    """
    if not len(columns["rank"]):
        return np.zeros(0, dtype=bool)
    excess_ns = np.asarray(columns["excess_ns"], dtype=np.float64)
    length_ns = (columns["end_ns"] - columns["begin_ns"]).astype(np.float64)
    length_ns = of_each(length_ns[:, None], np.unique(columns["step"], return_inverse=True)[1], medians)[:, 0]
    of_rank = np.unique(columns["rank"], return_inverse=True)[1]
    median = of_each(excess_ns[:, None], of_rank, medians)[:, 0]
    spread = _jitter_of(columns, excess_ns)
    least = PERCENT / 100 * length_ns
    is_steady = median >= np.maximum(least, least_beyond(spread, np.bincount(of_rank)[of_rank]))
    least = np.where(is_steady, SHARE * least, np.maximum(least, SIGMAS * spread))
    is_late = (excess_ns >= least) & (waited(columns) >= SHARE * least)
    # What is known to be longer counts from half of that on, in steps in which the others wait later, too.
    usual = of_each(np.where(is_late, excess_ns, np.nan)[:, None], of_rank, medians)[:, 0]
    also: np.ndarray = np.nan_to_num(excess_ns - SHARE * usual, nan=-1.0) >= 0
    return is_late | also


# Ranks with a role of their own that are ahead of the others: what they take long for, nobody waits for.


def awaited(found: pd.DataFrame, late: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """The cells (`lateness.cells`) but for those of ranks that are ahead; `wait_ns` of `calls` is exposed.

    No other rank is held against one with a role of its own, so that its longest work seems late even where it is done
    long before anybody asks for it. It is late where others are seen to wait for it half as long as it needs more, in
    the same steps or later ones; of calls whose waits are not known, where it waits for less than that itself then.
    """
    alone = late["rank"][are_alone(late)].unique()
    if not found["rank"].isin(alone).any():
        return found
    needed = found.groupby("rank")["excess_ns"].sum().astype("float64")
    met = calls[calls["waits_for"].isin(alone) & (calls["waits_for"] != calls["rank"])]
    seen = met.groupby(["waits_for", "rank"])["wait_ns"].sum().groupby("waits_for").max().astype("float64")
    own = (
        _waits(late).reindex(pd.MultiIndex.from_frame(found[["rank", "step"]].drop_duplicates())).groupby("rank").sum()
    )
    least = SHARE * needed
    is_ahead = needed.index.isin(alone) & (seen.reindex(needed.index, fill_value=0.0) < least)
    is_ahead &= own.reindex(needed.index, fill_value=0.0) >= least
    return picked(found, ~np.isin(found["rank"].to_numpy(), needed.index[is_ahead].to_numpy()))


def _waits(late: pd.DataFrame) -> pd.Series:
    """By rank and step what the rank waits, or may, in that one or in the next, whichever is more."""
    rows = late.sort_values(["rank", "step"]).set_index(["rank", "step"])
    now = (rows["exposed_wait_ns"] + rows["exposed_unmatched_ns"]).astype("float64")
    following = now.groupby("rank").shift(-1).fillna(0.0)
    return now.where(now >= following, following)
