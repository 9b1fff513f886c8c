"""Hosts that are as late as a late rank's by the same, while their GPUs wait for others: they are late together."""

import pandas as pd

from traceanalyzer.analyses.blame.episode_rows import apart_ns
from traceanalyzer.analyses.blame.lateness import LEAST_PCT
from traceanalyzer.analyses.replay.change import PEERS, Change
from traceanalyzer.analyses.replay.replay import Replay, gains_of
from traceanalyzer.analyses.wide import by_step_and_rank
from traceanalyzer.meaning.vocabulary import DATA, HOST
from traceanalyzer.model.tables import rows_where, under_each_other

_AS_LONG = 0.9
"""Of what the late hosts need for a step, the least of them: who needs this much is as late."""

_IN_TIME = 0.5
"""Of that: hosts that need no more than this are not late, however far hosts are apart."""


def with_hidden_hosts(found: pd.DataFrame, late: pd.DataFrame, replay: Replay) -> pd.DataFrame:
    """The cells, and those of ranks whose hosts need as long for the steps in which others' hosts are late alike.

    Behind a wait for another late rank, as in a pipeline, a GPU does not idle for its own host; of several hosts that
    are slow alike each GPU idles only where its own is the last. They are added where the replay gains at least
    `LEAST_PCT` of a step more with their hosts as their peers', too, and where as many hosts are in time: they need no
    more than half as long, or the late ones are apart from them by more than chance. Who is late by another name in
    those steps is late by that.
    """
    if replay.engine is None or not replay.engine.has_hosts or late["needed_host_ns"].isna().any():
        return found
    # What launching takes holds the loading of data, which is a part by itself.
    own = late.assign(own_ns=late["needed_host_ns"].astype("float64") - late[DATA.column])
    needed = by_step_and_rank(own, "own_ns")
    of_hosts = rows_where(found, found["part"] == HOST.column)
    names = of_hosts["name"].fillna("")
    added = [
        _hidden(rows, of_hosts[names != name], needed, replay) for name, rows in of_hosts.groupby(names, sort=False)
    ]
    return under_each_other([found, *(rows for rows in added if len(rows))])


def _hidden(rows: pd.DataFrame, elsewhere: pd.DataFrame, needed: pd.DataFrame, replay: Replay) -> pd.DataFrame:
    """The cells that lack of ranks that are late by this in all steps in which most of its ranks are.

    `elsewhere` are the cells of hosts with other names; of those without a name all that have one.
    """
    counts = rows["step"].value_counts()
    steps = sorted(counts.index[2 * counts >= rows["rank"].nunique()])
    if not steps or steps[0] < 0:
        return rows.iloc[:0]
    held = rows[rows["step"].isin(steps)].groupby("rank")["step"].nunique()
    own = [int(rank) for rank in held.index[2 * held > len(steps)]]
    each = needed.loc[steps].median()
    least_ns = float(each[own].min()) if own else 0.0
    by_others = elsewhere.loc[elsewhere["step"].isin(steps), "rank"]
    others = each.drop([*{*own, *by_others}])
    alike = [int(rank) for rank in others.index[others >= _AS_LONG * least_ns]]
    in_time = _in_time(needed.loc[steps, others.index.drop(alike)], least_ns)
    if not own or not alike or len(in_time) < len(own) + len(alike):
        return rows.iloc[:0]
    sets = (frozenset(own), frozenset((*own, *alike)))
    gains = gains_of(replay, [(Change("host", PEERS, ranks, frozenset(steps)),) for ranks in sets])
    if gains is None or 100 * (gains[1].gain_ns - gains[0].gain_ns) < LEAST_PCT * gains[0].before_ns:
        return rows.iloc[:0]
    excess = needed.loc[steps].sub(needed.loc[steps, in_time].median(axis=1), axis=0)
    most = rows.groupby("step")["excess_ns"].max()
    known = {*zip(rows["rank"], rows["step"], strict=True)}
    cells = [(rank, step) for rank in (*own, *alike) for step in steps if (rank, step) not in known]
    more = [round(min(float(excess.loc[step, rank]), float(most[step]))) for rank, step in cells]
    ranks, numbers = zip(*cells, strict=True) if cells else ((), ())
    return rows.loc[[rows.index[0]] * len(cells)].assign(rank=ranks, step=numbers, excess_ns=more)


def _in_time(needed: pd.DataFrame, least_ns: float) -> list[int]:
    """Ranks whose hosts are not late, where late ones need at least so much: all from which these are apart."""
    fast = needed.columns[needed.max() <= _IN_TIME * least_ns]
    is_apart = len(needed.columns) and least_ns >= apart_ns(needed.median())
    return [int(rank) for rank in (needed.columns if is_apart else fast)]
