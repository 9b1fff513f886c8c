"""By how much each rank's step needs more of its own than its peers', part by part, and what ran then."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.jitter import HARDLY, RankSteps, jitter_of, of_others
from traceanalyzer.analyses.blame.meetings import waited
from traceanalyzer.analyses.blame.step_needs import PARTS
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.spread import low_medians, median_of_others, medians, of_each
from traceanalyzer.meaning.vocabulary import COMPUTE, COPY, DATA, HOST, LAUNCH, SYNC, UNKNOWN
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of, floats, picked, table_of, with_columns, without_rows

LEAST_PCT = 2.0
"""Of a step; less is noise."""

_LEAST_NS = 20_000
_SIGMAS = 4.0

_STEADY_SIGMAS = 3.0
_LARGE_SIGMAS = 2.0
_LARGE = 0.1
"""Of a step."""

_FEW_RANKS = 3
"""Of so few what one of them needs more, now more and now less, is a large part of what jitter is told from."""

MORE_OPERATIONS = 1.15
"""Times what the others' median is: a host that launches so many more needs longer for a reason."""

_SIGMAS_OF_MORE = 1.0

_LEAST_STEPS = 3
_MEDIAN_TO_MEAN = 1.25
"""How much less surely a median is known than a mean, of normal errors."""

_SHARE_OF_OWN = 0.35
"""A part with less of a rank's excess than this goes to the largest."""

_SHARE_NOW = 0.2
"""One that has that share of the excess of all the rank's late steps needs only this of a step's."""

_NEEDED, _LOADING = "needed_host_ns", "loading_ns"

_HOST_PARTS = (SYNC.column, DATA.column, HOST.column, COPY.column)
"""What ranks of different stages of a pipeline have alike; their compute and bubbles differ by design."""

_SEEN = 0.5
"""Of the excess."""

_MOSTLY = 0.5
"""Of a rank's steps."""

_BESIDE = 0.05
"""A part with this much of a rank's excess is mended with the one that it goes to."""


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

    def beside(own: np.ndarray, figure: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """A figure of the peers' same step; of stages that no other rank has, of all ranks'."""
        found = of_each(own, of_peers, figure)
        return np.where(is_stage[:, None], of_each(own, of_all, figure), found) if is_stage.any() else found

    others = beside(values, median_of_others)
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
    known = own.groupby(table["rank"]).transform("size") >= _LEAST_STEPS
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
    """A row for each rank, step and part that makes the others wait: `rank`, `step`, `part`, `excess_ns`, `beside`.

    A rank is late in a step when what it needs more is at least `LEAST_PCT` of the step, far beyond the jitter of the
    ranks' steps, and the others wait. Its excess is split over the parts that are longer, in proportion; `beside` are
    the parts that are longer by too little to be told apart, and `in_part_ns` is the excess without them.
    """
    if late.empty:
        return without_rows(["rank", "step", "part", "excess_ns", "in_part_ns", "beside"])
    columns = columns_of(late)
    is_late = _are_late(columns)
    rank, excess_ns = columns["rank"][is_late], columns["excess_ns"][is_late]
    of_rank = np.unique(rank, return_inverse=True)[1]
    signed = np.column_stack([columns[f"{part}_excess"][is_late] for part in PARTS])
    parts = np.maximum(signed, 0.0)
    share = _shares(parts)
    mean = _shares(_sums(of_rank, parts))
    large = _shares(np.where((share >= _SHARE_OF_OWN) | ((mean >= _SHARE_OF_OWN) & (share >= _SHARE_NOW)), share, 0))
    names = np.array(PARTS, dtype=object)
    # What is longer in one step and shorter in the next, as on lengths that are drawn, is mended with nothing.
    is_net = _sums(of_rank, signed) >= _BESIDE * _sums(of_rank, parts).sum(axis=1, keepdims=True)
    beside = [tuple(names[own]) for own in (share >= _BESIDE) & is_net & (large == 0)]
    # Idle time without a reason is lateness only where others are seen to wait, not just to communicate.
    is_seen = waited(columns, ["exposed_wait_ns"])[is_late] >= _SEEN * excess_ns
    large[:, names == UNKNOWN.column] *= is_seen[:, None]
    large[:, names == COMPUTE.column] *= ~_is_usual(columns, is_late)[is_late, None]
    row, column = np.nonzero(large)
    own_ns = np.round(excess_ns[row] * large[row, column]).astype(np.int64)
    return table_of(
        {
            "rank": rank[row],
            "step": columns["step"][is_late][row],
            "part": names[column],
            "excess_ns": own_ns,
            "in_part_ns": np.minimum(own_ns, np.round(parts[row, column]).astype(np.int64)),
            "beside": [beside[number] for number in row],
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
    is_usual: np.ndarray = (in_time[of_rank] > _MOSTLY) & (columns["step"] >= 0)
    return is_usual & (own - usual < _SEEN * columns[f"{COMPUTE.column}_excess"])


def _shares(parts: np.ndarray) -> np.ndarray:
    total = parts.sum(axis=1, keepdims=True)
    shares: np.ndarray = np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)
    return shares


def _sums(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each row its group's sums of the columns."""
    sums = np.zeros((group.max(initial=-1) + 1, values.shape[1]))
    np.add.at(sums, group, values)
    return sums[group]


def _is_steady(steps: RankSteps, jitter: float, median: np.ndarray, is_more: np.ndarray) -> np.ndarray:
    """Rows of ranks that need more in most steps: the median of three steps or more is far beyond its own error.

    What a fault costs may differ from step to step by more than one step could tell from jitter. Of few ranks a large
    part of a step needs less to be believed, and still less one of a rank that launches more (`is_more`).
    """
    of_rank = np.unique(steps.rank, return_inverse=True)[1]
    count = np.bincount(of_rank)
    is_large = median >= _LARGE * np.median(steps.length_ns)
    sigmas = np.where(is_large & (len(count) <= _FEW_RANKS), _LARGE_SIGMAS, _STEADY_SIGMAS)
    sigmas = np.where(is_large & is_more, _SIGMAS_OF_MORE, sigmas)
    return (median >= sigmas * _error_of_median(of_rank, jitter)) & (count[of_rank] >= _LEAST_STEPS)


def _error_of_median(of_rank: np.ndarray, jitter: float) -> np.ndarray:
    """Of each row by how much the median of its rank's steps is off by chance."""
    error: np.ndarray = _MEDIAN_TO_MEAN * jitter / np.sqrt(np.bincount(of_rank)[of_rank])
    return error


def _launch_more_always(columns: Mapping[str, Any], steps: RankSteps) -> np.ndarray:
    """Rows of ranks that launch more, by more than chance: counts do not jitter, unless drawn anew in each step."""
    own = floats(columns["operations"])[:, None]
    more = own - of_each(own, Groups.of(columns, ["peers", "step"]).of_row, median_of_others)
    of_rank = np.unique(columns["rank"], return_inverse=True)[1]
    jitter = jitter_of(replace(steps, excess_ns=more[:, 0]))
    is_beyond = of_each(more, of_rank, medians)[:, 0] >= _STEADY_SIGMAS * _error_of_median(of_rank, jitter)
    return _launch_more(columns) & is_beyond


def launches_more(late: pd.DataFrame) -> pd.Series:
    """Rows of ranks that launch more operations in most steps than their peers' median."""
    return pd.Series(_launch_more(columns_of(late)), index=late.index)


def _launch_more(columns: Mapping[str, Any]) -> np.ndarray:
    own = floats(columns["operations"])[:, None]
    others = of_each(own, Groups.of(columns, ["peers", "step"]).of_row, median_of_others)
    times = np.divide(own, others, out=np.full_like(own, np.nan), where=others > 0)
    is_more: np.ndarray = (
        of_each(times, np.unique(columns["rank"], return_inverse=True)[1], medians)[:, 0] >= MORE_OPERATIONS
    )
    return is_more


def _are_late(columns: Mapping[str, Any]) -> np.ndarray:
    """Rows whose excess is far beyond jitter while another rank waits.

    Of what a rank needs more in all steps the jitter of its median tells, which is less by the root of their number;
    a step in which it needs hardly anything of that is none of them.
    """
    steps = RankSteps.of(columns)
    if not len(steps.rank):
        return np.zeros(0, dtype=bool)
    length_ns = of_each(steps.length_ns[:, None], np.unique(steps.step, return_inverse=True)[1], medians)[:, 0]
    of_rank = np.unique(steps.rank, return_inverse=True)[1]
    median, in_most = (of_each(steps.excess_ns[:, None], of_rank, own)[:, 0] for own in (medians, low_medians))
    jitter = jitter_of(steps)
    least = np.maximum(LEAST_PCT / 100 * length_ns, _LEAST_NS)
    # What is always there is held against the limit as a whole: of steps near the limit some alone would seem late.
    is_steady = _is_steady(steps, jitter, median, _launch_more_always(columns, steps)) & (median >= least)
    of_steady = np.maximum(np.where(in_most >= least, least / 2, least), HARDLY * median)
    least = np.where(is_steady, of_steady, np.maximum(least, _SIGMAS * of_others(steps, jitter)))
    is_late: np.ndarray = (steps.excess_ns >= least) & (waited(columns) >= least / 2)
    return is_late
