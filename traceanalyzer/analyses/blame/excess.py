"""By how much a rank's step needs more than its peers', and which work it is."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.rank_sets import EVERYBODY
from traceanalyzer.analyses.blame.slow_transfers import TRANSFER
from traceanalyzer.analyses.blame.step_budget import PARTS
from traceanalyzer.analyses.grouping import Groups, rows_of_each
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
