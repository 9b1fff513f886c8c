"""A process group that exchanges more often in a step than groups that do the same: gradients of every micro-step."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.groups import Groups
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, severity
from traceanalyzer.findings.communication.without_calls import gain_without
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.listed import listed
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import in_a_line

LEAST_TIMES = 1.5
"""As many calls as the others' median: from here on the group does something else."""

_SORT = ["role", "group_size", "collective", "size_bytes"]
_GROUP = ["group", "group_ranks"]


def more_exchanges(
    headline: Headline,
    steps: Steps,
    calls: Calls,
    groups: Groups,
    pipeline: Pipeline,
    replay: Replay,
    *,
    more_exchanges_times: float = LEAST_TIMES,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """A group runs a collective of one size 1.5 times as often as others of its role and size do.

    The gain is of the job replayed without the transfers of what it runs more, all but each step's last; it is said
    from 3 % of a step on. Stages of pipelines differ by design.
    """
    if replay.engine is None or not len(headline) or not len(calls) or not _have_sisters(groups) or len(pipeline):
        return []
    basis = Basis.of(headline, steps)
    held = _of_roles(basis.within(calls.table), groups.table)
    if basis.steps is None or held.empty:
        return []
    found = []
    for row in _more(held, basis, more_exchanges_times).to_dict("records"):
        own = held[(held[[*_SORT, *_GROUP]] == pd.Series(row)[[*_SORT, *_GROUP]]).all(axis=1)]
        place = own.sort_values("start_ns").groupby(["rank", "step"]).cumcount(ascending=False)
        gain = gain_without(replay.engine, own[place.reindex(own.index) >= round(row["others"])])
        if gain.gain_pct >= clear_gain_pct:
            found.append(_finding(row, gain))
    return found


def _finding(row: Mapping[str, Any], gain: Gain) -> Finding:
    ranks = tuple(numbers(row["group_ranks"]))
    what = f"{collectives_words(str(row['collective']))} of {in_a_line(float(row['size_bytes']), Unit.BYTES)}"
    return Finding(
        severity=severity(gain.gain_pct),
        title=Title(
            f"Ranks {listed(ranks)} run {row['count']:.3g} {what} a step among each other, other groups of as many "
            f"ranks that do the same {row['others']:.3g}. Without what is more, {gain.whole} is ",
            Won.recorded(gain),
            ".",
        ),
        recommendation="Look at how these ranks are set up: gradients that are exchanged in every micro-step "
        "(no_sync() is missing), other buckets, a hook or a metric of theirs alone.",
        caveat="Which of the calls are not needed is not known: of each step as many as the others run are left, the "
        "last ones.",
        **gained(gain),
        ranks=ranks,
        cause="transfer",
        table="calls",
    )


def _have_sisters(groups: Groups) -> bool:
    """Whether a role has several groups."""
    return bool(groups.table.drop_duplicates(_GROUP)["role"].dropna().duplicated().any())


def _of_roles(calls: pd.DataFrame, groups: pd.DataFrame) -> pd.DataFrame:
    """Calls of known size in groups whose role and ranks are known, with both."""
    known = groups.loc[groups["role"].notna() & groups["group_ranks"].notna(), [*_GROUP, "role", "group_size"]]
    held = calls[calls["collective"].notna() & calls["size_bytes"].notna() & calls["step"].notna()]
    held = held[["rank", "call", "step", "start_ns", "collective", "size_bytes", *_GROUP]]
    held, known = (table.astype(dict.fromkeys(_GROUP, "object")) for table in (held, known))
    return held.astype({"collective": "object"}).merge(known, on=_GROUP)


def _more(held: pd.DataFrame, basis: Basis, times: float) -> pd.DataFrame:
    """Groups that run a sort of call more often than the median of the others: `count` of a step, and the `others`'."""
    by_rank = held.groupby([*_SORT, *_GROUP, "rank"]).size().rename("count").reset_index()
    each = by_rank.groupby([*_SORT, *_GROUP])["count"].max().div(basis.per).reset_index()
    others = [
        each.loc[own.difference([row]), "count"].median() for own in each.groupby(_SORT).groups.values() for row in own
    ]
    rows = [row for own in each.groupby(_SORT).groups.values() for row in own]
    each = each.loc[rows].assign(others=others)
    return each[each["count"] >= times * each["others"]]  # of a group without others it is NA
