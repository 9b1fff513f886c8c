"""By how much each rank's step needs more of its own than its peers', part by part, and what ran then."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.jitter import jitter_of, of_others
from traceanalyzer.analyses.blame.step_needs import PARTS
from traceanalyzer.analyses.spread import median_of_others
from traceanalyzer.meaning.vocabulary import COMPUTE, COPY, DATA, HOST, LAUNCH, SYNC, UNKNOWN
from traceanalyzer.model.tables import table_of

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

_WAITING = ("exposed_wait_ns", "exposed_unmatched_ns")

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
    table = needs.assign(step=needs["step"].astype("Int64").fillna(-1).astype("int64"))
    is_jump = table["clock_jump_ns"].notna()
    # From there on the rank's calls may have no partners, so that transfers are known of some ranks alone.
    is_told = (
        table["step"] < table.loc[is_jump, "step"].min() if is_jump.any() else pd.Series(data=True, index=table.index)
    )
    columns = ["transfer_ns", "slower_transfer_ns"]
    table = table.assign(
        **{name: table[name].where(is_told, 0) for name in columns},
        # A message that was asked for early waits beside the copy that holds up the rank.
        exposed_copy_ns=table["exposed_copy_ns"] + table["copy_beside_wait_ns"],
    )
    table = table[~table["is_partial"].astype(bool) & ~is_jump].reset_index(drop=True)
    alone = table.groupby(["peers", "step"])["rank"].transform("nunique") < 2
    is_stage = (table["peers"] != "all") & alone
    values = table[[*PARTS, "needed_host_ns"]].astype("float64")
    beside = _of_peers(values, table, is_stage, _median_of_others)
    first = _beyond(table, values - beside, is_stage)
    beside[COMPUTE.column] = beside[COMPUTE.column].mask(is_stage, _usual_ns(table, is_stage))
    if "slower_ns" in table:
        of_others = values[COMPUTE.column] - table["slower_ns"]
        beside[COMPUTE.column] = beside[COMPUTE.column].mask(is_stage & (of_others < beside[COMPUTE.column]), of_others)
    # Where about half of the ranks are late, the others' median lies between the late and the rest.
    is_late = _is_late(first).to_numpy()[:, None] & np.ones(len(values.columns), dtype=bool)
    in_time = _of_peers(values.mask(is_late), table, is_stage, _median)
    in_time[COMPUTE.column] = in_time[COMPUTE.column].mask(is_stage, beside[COMPUTE.column])
    return _beyond(table, values - in_time.where(is_late, beside).fillna(beside), is_stage)


def _beyond(table: pd.DataFrame, excess: pd.DataFrame, is_stage: pd.Series) -> pd.DataFrame:
    """The rows with each part's excess, where it is a reason to be late, and their sum."""
    # Ranks that move the same data do it in as long: groups are held against each other, and no rank against its peers.
    transfer = table["slower_transfer_ns"].astype("float64")
    # What launching takes holds the loading of data, which is a part by itself.
    more = excess["needed_host_ns"] - excess[DATA.column].clip(lower=0)
    host, launch = excess[HOST.column], excess[LAUNCH.column]
    # A queue that runs dry shows every launch's latency, too: that is the host's, where it is the smaller part.
    is_of_host = (launch > 0) & (host >= launch) & ~is_stage
    host = _up_to(host, more, table["rank"]) + launch.where(is_of_host, 0.0)
    excess = excess.assign(**{"transfer_ns": transfer, HOST.column: host, LAUNCH.column: launch.mask(is_of_host, 0.0)})
    by_design = [part for part in PARTS if part not in (*_HOST_PARTS, COMPUTE.column, "transfer_ns")]
    excess[by_design] = excess[by_design].mask(is_stage, 0.0)
    net = excess[list(PARTS)].sum(axis=1).clip(upper=(table["end_ns"] - table["begin_ns"]).astype("float64"))
    return table.assign(**{f"{part}_excess": excess[part] for part in PARTS}, excess_ns=net)


def _usual_ns(table: pd.DataFrame, is_stage: pd.Series) -> pd.Series:
    """What stages without peers usually compute in such a step; of too few steps what they do compute.

    That is the lower quartile of their own steps, times the stages' median of what the step holds of that.
    """
    own = table[COMPUTE.column].astype("float64")
    usual = own.groupby(table["rank"]).transform(lambda each: each.quantile(0.25, interpolation="lower"))
    times = (own / usual.where(usual > 0)).where(is_stage)
    known = own.groupby(table["rank"]).transform("size") >= _LEAST_STEPS
    return (usual * times.groupby(table["step"]).transform("median")).where(known).fillna(own)


def _up_to(host: pd.Series, more: pd.Series, rank: pd.Series) -> pd.Series:
    """The host's excess, no longer than what launching the step takes it more, and what is left of the step before.

    A GPU that has work ahead idles for it a step later. Without limit where what launching takes is not known.
    """
    more = more.clip(lower=0).fillna(np.inf)
    now = host.clip(upper=more)
    left = (more - now.clip(lower=0)).where(np.isfinite(more), 0.0).groupby(rank).shift().fillna(0.0)
    return pd.Series(now + np.minimum(host - now, left))


def _of_peers(
    values: pd.DataFrame,
    table: pd.DataFrame,
    is_stage: pd.Series,
    figure: Callable[[pd.DataFrame, list[pd.Series]], pd.DataFrame],
) -> pd.DataFrame:
    """A figure of the peers' same step; of stages that no other rank has, of all ranks'."""
    of_peers = figure(values, [table["peers"], table["step"]])
    return of_peers.mask(is_stage, figure(values, [table["step"]])) if is_stage.any() else of_peers


def _median(values: pd.DataFrame, keys: list[pd.Series]) -> pd.DataFrame:
    return values.groupby(keys).transform("median")


def _median_of_others(values: pd.DataFrame, keys: list[pd.Series]) -> pd.DataFrame:
    """For each row and column the median over the other rows of its group; NA→0 excess for a row alone."""
    made = values.copy()
    for rows in values.groupby(keys).indices.values():
        own = values.to_numpy()[rows]
        made.iloc[rows] = median_of_others(own) if len(rows) > 1 else own
    return made


def cells(late: pd.DataFrame) -> pd.DataFrame:
    """A row for each rank, step and part that makes the others wait: `rank`, `step`, `part`, `excess_ns`, `beside`.

    A rank is late in a step when what it needs more is at least `LEAST_PCT` of the step, far beyond the jitter of the
    ranks' steps, and the others wait. Its excess is split over the parts that are longer, in proportion; `beside` are
    the parts that are longer by too little to be told apart.
    """
    if late.empty:
        return pd.DataFrame(columns=["rank", "step", "part", "excess_ns", "beside"])
    is_late = _is_late(late)
    chosen = late[is_late]
    signed = chosen[[f"{part}_excess" for part in PARTS]]
    parts = signed.clip(lower=0)
    share = _shares(parts.to_numpy())
    mean = _shares(parts.groupby(chosen["rank"]).transform("sum").to_numpy())
    large = _shares(np.where((share >= _SHARE_OF_OWN) | ((mean >= _SHARE_OF_OWN) & (share >= _SHARE_NOW)), share, 0))
    names = np.array(PARTS, dtype=object)
    # What is longer in one step and shorter in the next, as on lengths that are drawn, is mended with nothing.
    net, whole = (own.groupby(chosen["rank"]).transform("sum") for own in (signed, parts.sum(axis=1)))
    is_net = net.to_numpy() >= _BESIDE * whole.to_numpy()[:, None]
    beside = [tuple(names[own]) for own in (share >= _BESIDE) & is_net & (large == 0)]
    # Idle time without a reason is lateness only where others are seen to wait, not just to communicate.
    is_seen = _waited(late, ["exposed_wait_ns"]).to_numpy()[is_late] >= _SEEN * chosen["excess_ns"].to_numpy()
    large[:, names == UNKNOWN.column] *= is_seen[:, None]
    large[:, names == COMPUTE.column] *= ~_is_usual(late, is_late)[is_late, None]
    row, column = np.nonzero(large)
    return table_of(
        {
            "rank": chosen["rank"].to_numpy()[row],
            "step": chosen["step"].to_numpy()[row],
            "part": names[column],
            "excess_ns": np.round(chosen["excess_ns"].to_numpy()[row] * large[row, column]).astype(np.int64),
            "beside": [beside[number] for number in row],
        }
    )


def _is_usual(late: pd.DataFrame, is_late: pd.Series) -> np.ndarray:
    """Rows of ranks that compute about as long as in their other steps, where these are mostly in time.

    There the others compute less than they usually do (a last batch that is smaller on some ranks): nobody is late.
    """
    own = late[COMPUTE.column].astype("float64")
    usual = own.where(~is_late).groupby(late["rank"]).transform("median")
    in_time = (~is_late).groupby(late["rank"]).transform("mean")
    more, excess = own - usual, late[f"{COMPUTE.column}_excess"].astype("float64")
    is_usual = (in_time > _MOSTLY) & (late["step"] >= 0) & (more < _SEEN * excess)
    return is_usual.to_numpy(dtype=bool)


def _shares(parts: np.ndarray) -> np.ndarray:
    total = parts.sum(axis=1, keepdims=True)
    shares: np.ndarray = np.divide(parts, total, out=np.zeros_like(parts), where=total > 0)
    return shares


def awaited_in(late: pd.DataFrame) -> pd.Series:
    """For each step the next one in which any rank communicates: there the others meet a rank that is late by then.

    That is the following one, but where steps are parts of a step of the optimizer, or local ones of which only some
    average. Absent for the last ones.
    """
    meets = late[["transfer_ns", *_WAITING]].gt(0).any(axis=1).groupby(late["step"]).any()
    numbers = pd.Series(meets.index.to_numpy(), index=meets.index).where(meets)
    return numbers.astype("Int64").bfill().shift(-1)


def _waited(late: pd.DataFrame, of: Sequence[str] = _WAITING) -> pd.Series:
    """What another rank waits in the step, or the next that meets, at most: no one is late for whom nobody waits."""
    waited = late[list(of)].sum(axis=1).astype("float64")
    most = waited.groupby(late["step"]).max()
    following = awaited_in(late).map(most).fillna(0).astype("float64")
    return late["step"].map(np.maximum(most, following))


def _is_steady(late: pd.DataFrame, jitter: float) -> pd.Series:
    """Rows of ranks that need more in most steps: the median of three steps or more is far beyond its own error.

    What a fault costs may differ from step to step by more than one step could tell from jitter. Of few ranks a large
    part of a step needs less to be believed, and still less one of a rank that launches more: counts do not jitter.
    """
    excess = late.groupby("rank")["excess_ns"]
    count, median = excess.transform("size"), excess.transform("median")
    is_large = median >= _LARGE * (late["end_ns"] - late["begin_ns"]).median()
    sigmas = np.where(is_large & (late["rank"].nunique() <= _FEW_RANKS), _LARGE_SIGMAS, _STEADY_SIGMAS)
    sigmas = np.where(is_large & launches_more(late), _SIGMAS_OF_MORE, sigmas)
    is_beyond: pd.Series = median >= sigmas * _MEDIAN_TO_MEAN * jitter / np.sqrt(count)
    return is_beyond & (count >= _LEAST_STEPS)


def launches_more(late: pd.DataFrame) -> pd.Series:
    """Rows of ranks that launch more operations in most steps than their peers' median."""
    counts = late["operations"].to_frame("own").astype("float64")
    others = _median_of_others(counts, [late["peers"], late["step"]])["own"]
    times = (counts["own"] / others.where(others > 0)).groupby(late["rank"]).transform("median")
    is_more: pd.Series = times >= MORE_OPERATIONS
    return is_more


def _is_late(late: pd.DataFrame) -> pd.Series:
    """Rows whose excess is far beyond jitter while another rank waits.

    Of what a rank needs more in all steps the jitter of its median tells, which is less by the root of their number.
    """
    if late.empty:
        return pd.Series(dtype="bool")
    length = (late["end_ns"] - late["begin_ns"]).groupby(late["step"]).transform("median")
    jitter = jitter_of(late)
    least = np.maximum(LEAST_PCT / 100 * length, _LEAST_NS)
    # What is always there is held against the limit as a whole: of steps near the limit some alone would seem late.
    is_steady = _is_steady(late, jitter) & (late.groupby("rank")["excess_ns"].transform("median") >= least)
    least = np.where(is_steady, least / 2, np.maximum(least, _SIGMAS * of_others(late, jitter)))
    is_late: pd.Series = (late["excess_ns"] >= least) & (_waited(late) >= least / 2)
    return is_late
