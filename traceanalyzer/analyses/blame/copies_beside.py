"""Whether copies beside waits are a rank's own work, or what it does while it waits for one that copies for longer."""

import pandas as pd

from traceanalyzer.analyses.blame.lateness import LEAST_PCT, cells, with_excess
from traceanalyzer.analyses.replay.change import PEERS, Change
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.meaning.vocabulary import COPY

_SEEN = 0.5
"""Of what ranks copy longer, where copies beside waits are none of the others': the replay gains so much."""


def with_excess_of_copies(needs: pd.DataFrame, replay: Replay) -> pd.DataFrame:
    """The rows with what they need more than their peers (`with_excess`).

    A copy beside a wait is the rank's own work: who asks early for a message waits beside the copy that holds it up.
    But where all copy ahead, ranks in time copy while they wait for one whose bus is slower, and seem to need as long
    as it. If the job gains what this one copies for longer by itself once its copies are as its peers', theirs are
    not counted.
    """
    late = with_excess(needs)
    if replay.engine is None or not needs["copy_beside_wait_ns"].any():
        return late
    alone = with_excess(needs.assign(copy_beside_wait_ns=0))
    found = cells(alone)
    found = found[found["part"] == COPY.column]
    known = cells(late)
    more = found[~found["rank"].isin(known.loc[known["part"] == COPY.column, "rank"])]
    if more.empty:
        return late
    steps = more["step"].unique()
    gain = gain_of(replay, Change("copy", PEERS, frozenset(map(int, more["rank"])), frozenset(map(int, steps))))
    longer_ns = more.groupby("step")["excess_ns"].max().sum() / late["step"].nunique()
    is_seen = gain is not None and gain.gain_ns >= max(_SEEN * longer_ns, LEAST_PCT / 100 * gain.before_ns)
    return alone if is_seen else late
