"""Hosts that are as late as a late rank's by the same, while their GPUs wait for others: they are late together."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.blame.lateness import LEAST_PCT
from traceanalyzer.analyses.replay.change import PEERS, Change
from traceanalyzer.analyses.replay.replay import Replay, gains_of
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.model.tables import under_each_other

_AS_LONG = 0.9
"""Of what the late hosts need for a step, the least of them: who needs this much is as late."""

_IN_TIME = 0.5
"""Of that: hosts that need no more than this are not late."""


def with_hidden_hosts(found: pd.DataFrame, late: pd.DataFrame, replay: Replay) -> pd.DataFrame:
    """The cells, and those of ranks whose hosts need as long for the steps in which others' hosts are late by a name.

    Behind a wait for another late rank, as in a pipeline, a GPU does not idle for its own host. They are added where
    the replay gains at least `LEAST_PCT` of a step more with their hosts as their peers', too, and where as many hosts
    need no more than half as long.
    """
    if replay.engine is None or not replay.engine.has_hosts or late["needed_host_ns"].isna().any():
        return found
    needed = late.pivot_table(index="step", columns="rank", values="needed_host_ns").astype("float64")
    is_named = (found["part"] == HOST.column) & found["name"].notna()
    added = [_hidden(rows, needed, replay) for _, rows in found[is_named].groupby("name", sort=False)]
    return under_each_other([found, *(rows for rows in added if len(rows))])


def _hidden(rows: pd.DataFrame, needed: pd.DataFrame, replay: Replay) -> pd.DataFrame:
    """The cells of further ranks that are late by this in all steps in which most of its ranks are."""
    own = sorted({*rows["rank"]})
    counts = rows["step"].value_counts()
    steps = sorted(counts.index[2 * counts >= len(own)])
    if not steps or steps[0] < 0:
        return rows.iloc[:0]
    each = needed.loc[steps].min()
    least_ns = float(each[own].min())
    others = each.drop(own)
    alike = [int(rank) for rank in others.index[others >= _AS_LONG * least_ns]]
    in_time = others.index[needed.loc[steps, others.index].max() <= _IN_TIME * least_ns]
    if not alike or len(in_time) < len(own) + len(alike):
        return rows.iloc[:0]
    sets = (frozenset(own), frozenset((*own, *alike)))
    gains = gains_of(replay, [(Change("host", PEERS, ranks, frozenset(steps)),) for ranks in sets])
    if gains is None or 100 * (gains[1].gain_ns - gains[0].gain_ns) < LEAST_PCT * gains[0].before_ns:
        return rows.iloc[:0]
    excess = needed.loc[steps].sub(needed.loc[steps, in_time].median(axis=1), axis=0)
    most = rows.groupby("step")["excess_ns"].max()
    return pd.concat(
        rows.iloc[:1].loc[[rows.index[0]] * len(steps)].assign(
            rank=rank,
            step=steps,
            excess_ns=np.round(np.minimum(excess[rank], most[steps])).astype("int64").to_numpy(),
        )
        for rank in alike
    )  # fmt: skip
